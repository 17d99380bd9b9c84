"""Biases: hand-computed values."""

import pytest
import torch

import glasshead as gh


def test_alibi_falls_with_the_distance_on_both_sides():
    values = gh.ALiBi(2)(gh.Tile(range(2), range(3), offset=1))
    distances = torch.tensor([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    torch.testing.assert_close(values[0], -distances / 16)
    torch.testing.assert_close(values[1], -distances / 256)


def test_alibi_slopes_of_heads_that_are_no_power_of_two():
    expected = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    torch.testing.assert_close(gh.ALiBi(6).slopes, torch.tensor(expected).double())


def test_relative_buckets_are_exact_when_near_and_widen_when_far():
    bias = gh.RelativeBias(heads=1, buckets=8, max_distance=16)
    before = bias.bucket(torch.tensor([0, 1, 2, 3, 5, 6, 15, 16, 99]))
    assert before.tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 3]
    after = bias.bucket(-torch.tensor([1, 2, 5, 6, 99]))
    assert after.tolist() == [5, 6, 6, 7, 7]


def test_relative_buckets_of_one_direction_see_no_future():
    bias = gh.RelativeBias(heads=1, buckets=4, max_distance=8, bidirectional=False)
    assert bias.bucket(torch.tensor([-9, -1, 0, 1, 2, 3, 4, 7, 8, 50])).tolist() == [
        *(0, 0, 0, 1, 2, 2, 3, 3, 3, 3)
    ]


@pytest.mark.parametrize("offset", [2, torch.tensor([0, 4])])
def test_relative_bias_reads_its_weight_by_bucket_and_head(offset):
    bias = gh.RelativeBias(heads=3, buckets=8, max_distance=16)
    tile = gh.Tile(range(1, 5), range(2, 7), offset=offset)
    values = bias(tile)
    rows = [offset] * 2 if isinstance(offset, int) else offset.tolist()
    for batch, start in enumerate(rows):
        for i in tile.queries:
            for j in tile.keys:
                bucket = bias.bucket(torch.tensor(i + start - j))
                row = values if values.ndim == 3 else values[batch]
                assert torch.equal(row[:, i - 1, j - 2], bias.weight[bucket])


def test_biases_of_the_object_and_of_the_call_are_added():
    x = torch.randn(2, 3, 5, 7)
    own, extra = torch.randn(3, 5, 5), torch.randn(2, 1, 1, 5)
    both = gh.Attention(bias=own)(x, x, x, bias=extra)
    torch.testing.assert_close(both, gh.Attention()(x, x, x, bias=own + extra))
    learned = gh.Attention(bias=torch.nn.Parameter(own))
    assert [name for name, _ in learned.named_parameters()] == ["bias"]


def test_a_rule_of_ones_own_may_hide():
    class Blinkers(gh.Bias):
        hides = True

        def forward(self, tile):
            return torch.where(tile.distance() > 1, -torch.inf, 0.5)

    x = torch.randn(2, 5, 7)
    expected = gh.Attention(mask=gh.window(before=1, after=None))(x, x, x)
    for engine in ("auto", "reference"):
        context = gh.Attention(bias=Blinkers(), engine=engine)(x, x, x)
        torch.testing.assert_close(context, expected)
