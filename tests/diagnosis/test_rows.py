"""Rows: what each query sees, and the first few places of some cells."""

import torch

from glasshead.diagnosis.mask_input import RowSummary, last_edge, places, total

CELLS = torch.tensor(
    [
        [False, True, True, False, True],
        [False, False, False, False, False],
        [False, False, True, True, False],
    ]
)


def test_rows_have_a_count_and_two_ends_and_dead_ones_zeros():
    rows = RowSummary.of(CELLS)
    assert rows.count.tolist() == [3, 0, 2]
    assert rows.first.tolist() == [1, 0, 2]
    assert rows.last.tolist() == [4, 0, 3]
    assert rows.alive.tolist() == [True, False, True]


def test_the_edge_is_where_most_queries_end_that_do_not_see_the_last_key():
    cells = torch.ones(5, 7, dtype=torch.bool).tril(1)
    cells[3] = False
    edge = last_edge(RowSummary.of(cells))
    assert (edge.lag, edge.share, edge.count) == (1, 1.0, 3)
    assert last_edge(RowSummary.of(torch.ones(3, 5, dtype=torch.bool))) is None


def test_places_are_the_first_few_and_the_total_is_of_all():
    assert places(CELLS) == ((0, 1), (0, 2), (0, 4), (2, 2))
    assert places(CELLS.any(-1)) == ((0,), (2,))
    assert total(CELLS) == 5
    assert total(torch.ones(2049, 4099, dtype=torch.bool)) == 2049 * 4099
