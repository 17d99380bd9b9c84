"""Each fault of padding is found, and the batch row is named."""

from diagnosis.planted import found, kinds


def test_holes_in_a_tokenizers_mask_are_named():
    finding = found([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [1, 1, 1, 0, 0]], "holes")
    assert finding.where == ((1, 1),)
    assert "key 1 (batch row 1)" in finding.sentence


def test_padding_on_both_sides_of_a_batch_is_found():
    finding = found([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]], "mixed-padding")
    assert finding.where == ((1,), (0,))


def test_left_padding_is_noted_with_the_keys_that_it_hides():
    finding = found([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], "left-padding")
    assert finding.severity == "note"
    assert "the first 2 keys are hidden in batch row 1" in finding.sentence


def test_right_padding_hides_the_newest_token_of_a_cache():
    mask = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    finding = found(mask, "padding-side", queries=1)
    assert finding.where == ((1, 4),)
    assert "the last query stands at key 4, which right padding hides (batch row 1)" in (
        finding.sentence
    )
    assert "padding-side" not in kinds(mask)
    assert "padding-side" not in kinds([row[::-1] for row in mask], queries=1)


def test_an_empty_batch_row_is_found():
    finding = found([[1, 1, 1], [0, 0, 0]], "dead-rows")
    assert finding.where == ((1,),)
    assert "1 batch row shows no key at all: batch row 1" in finding.sentence
