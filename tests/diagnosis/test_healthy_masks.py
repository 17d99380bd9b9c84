"""What glasshead's masks are, written for each library, is recognised again and found healthy."""

from inspect import signature

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

import glasshead as gh
from hypothesis_profiles import examples

QUERIES = KEYS = 11
BATCH, HEADS = 3, 2


def written(mask, queries=QUERIES, keys=KEYS, offset=None):
    """The visible pairs, with axes of 1 where nothing changes but of queries and keys."""
    offset = keys - queries if offset is None else offset
    cells = mask.visible(gh.Tile(range(queries), range(keys), offset))
    return cells.expand(*cells.shape[:-2], queries, keys).clone()


def run(line, mask):
    """What the line of code makes of a mask."""
    names = {"gh": gh, "torch": torch, "F": F, "mask": mask}
    exec(line, names)
    return names


def lowest(dtype):
    return lambda cells: torch.zeros(cells.shape, dtype=dtype).masked_fill(
        ~cells, torch.finfo(dtype).min
    )


FORMS = {
    "attend": lambda cells: cells,
    "hidden": lambda cells: ~cells,
    "additive": lowest(torch.float32),
    "additive bf16": lowest(torch.bfloat16),
    "additive -inf": lambda cells: torch.zeros(cells.shape).masked_fill(~cells, -torch.inf),
}

SQUARE = {
    "causal": gh.causal(),
    "window": gh.window(before=2),
    "both sides": gh.window(before=2, after=3),
    "one side": gh.window(before=1, after=4),
    "prefix": gh.causal() | gh.prefix(4),
    "documents": gh.documents([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]),
    "causal documents": gh.causal() & gh.documents([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]),
    "pictures": gh.causal() | gh.documents([0, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7]),
    "pictures that see each other": gh.causal() | gh.documents([0, 1, 1, 2, 3, 1, 1, 1, 4, 5, 6]),
    "pictures in a window": gh.window(2) | gh.documents([0, 1, 1, 1, 1, 1, 2, 3, 3, 4, 5]),
    "documents that come back": gh.documents([0, 0, 1, 1, 0, 0, 2, 2, 2, 0, 0]),
}
PADDED = {
    "right": gh.padding([7, 11, 3]),
    "left": ~gh.padding([4, 0, 8]),
    "causal right": gh.causal() & gh.padding([7, 11, 3]),
    "causal left": gh.causal() & ~gh.padding([4, 0, 8]),
    "window right": gh.window(before=2) & gh.padding([7, 11, 9]),
    "pictures left": (gh.causal() | gh.documents([0, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7]))
    & ~gh.padding([1, 0, 1]),
    "prefix right": (gh.causal() | gh.prefix([2, 4, 3])) & gh.padding([7, 11, 9]),
}


def check(mask, form, name, **sizes):
    diagnosis = gh.diagnose(FORMS[form](mask), **sizes)
    assert diagnosis.convention == form.split()[0], diagnosis.findings
    assert diagnosis.healthy, (name, diagnosis.findings)
    assert same(diagnosis, FORMS[form](mask), mask)
    return diagnosis


def same(diagnosis, given, visible, position=None):
    """Whether the mask, and the mask that the line makes, show exactly the same pairs."""
    *_, queries, keys = visible.shape
    position = keys - queries if position is None else position
    tile = gh.Tile(range(queries), range(keys), position)
    made = run(diagnosis.conversion, given)["mask"]
    return all(
        torch.equal(one.visible(tile).expand(visible.shape), visible)
        for one in (diagnosis.mask, made)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SQUARE)
def test_a_structured_mask_is_recognised_in_every_form(name, form):
    diagnosis = check(written(SQUARE[name]), form, name)
    assert "dense" not in diagnosis.conversion
    assert diagnosis.bias is None


@pytest.mark.parametrize("form", ["attend", "additive", "additive bf16"])
@pytest.mark.parametrize("name", PADDED)
def test_padding_is_recognised_in_the_forms_of_four_axes(name, form):
    diagnosis = check(written(PADDED[name]), form, name)
    assert "dense" not in diagnosis.conversion


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_recognised_where_true_hides_as_stated(name):
    cells = written(PADDED[name])
    diagnosis = gh.diagnose(~cells, convention="hidden")
    assert diagnosis.healthy, diagnosis.findings
    assert same(diagnosis, ~cells, cells)


@pytest.mark.parametrize(("lengths", "line"), [([7, 11, 3], "gh.padding([7, 11, 3])")])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_a_tokenizers_mask_is_recognised(lengths, line, dtype):
    ones = (torch.arange(KEYS) < torch.tensor(lengths)[:, None]).to(dtype)
    diagnosis = gh.diagnose(ones)
    assert (diagnosis.convention, diagnosis.findings) == ("tokenizer", ())
    assert diagnosis.conversion == f"mask = {line}"
    assert same(diagnosis, ones, (ones == 1)[:, None, None, :])


def test_a_key_padding_mask_that_has_a_full_row_is_recognised():
    cells = torch.arange(KEYS) < torch.tensor([[7], [11], [3]])
    assert gh.diagnose(cells).convention == "attend"
    diagnosis = gh.diagnose(~cells)
    assert (diagnosis.convention, diagnosis.healthy) == ("hidden", True)
    assert same(diagnosis, ~cells, cells[:, None, None, :])


@examples(60)
@given(
    queries=st.integers(3, 13),
    extra=st.integers(0, 9),
    before=st.none() | st.integers(0, 7),
    form=st.sampled_from(sorted(FORMS)),
)
def test_causal_masks_with_a_cache_are_healthy(queries, extra, before, form):
    keys = queries + extra
    cells = written(gh.window(before=before), queries, keys)
    diagnosis = check(cells, form, f"{queries} {keys} {before}")
    assert "dense" not in diagnosis.conversion


@examples(60)
@given(queries=st.integers(3, 13), offset=st.integers(0, 9), form=st.sampled_from(sorted(FORMS)))
def test_an_offset_that_is_stated_is_no_fault(queries, offset, form):
    keys = 23
    cells = written(gh.causal(offset=offset), queries, keys)
    diagnosis = gh.diagnose(FORMS[form](cells), offset=offset)
    assert diagnosis.healthy, diagnosis.findings
    assert same(diagnosis, FORMS[form](cells), cells, offset)


@examples(60)
@given(
    lengths=st.lists(st.integers(1, 11), min_size=2, max_size=5),
    left=st.booleans(),
    causal=st.booleans(),
    form=st.sampled_from(["attend", "additive", "additive bf16"]),
)
def test_any_padding_on_either_side_is_healthy(lengths, left, causal, form):
    mask = ~gh.padding([KEYS - n for n in lengths]) if left else gh.padding(lengths)
    cells = written(gh.causal() & mask if causal else mask)
    diagnosis = gh.diagnose(FORMS[form](cells))
    assert diagnosis.healthy, diagnosis.findings
    assert same(diagnosis, FORMS[form](cells), cells)


def test_arrays_lists_and_tensors_are_told_alike():
    cells = written(gh.causal())
    for mask in (cells, cells.numpy(), cells.tolist(), list(cells), [list(r) for r in cells]):
        diagnosis = gh.diagnose(mask)
        assert (diagnosis.convention, diagnosis.healthy) == ("attend", True)
        assert diagnosis.conversion == "mask = gh.causal()"
    random = np.random.default_rng(0).random((5, 7)) < 0.8
    random |= np.tri(5, 7, 2, dtype=bool)
    diagnosis = gh.diagnose(random, convention="attend")
    made = run(diagnosis.conversion, random)["mask"]
    assert torch.equal(made.visible(gh.Tile(range(5), range(7))), torch.from_numpy(random))


def test_a_bias_is_kept_beside_the_mask():
    hidden = ~written(gh.causal(), 5, 5)
    bias = torch.randn(2, 3, 5, 5)
    for low in (-torch.inf, torch.finfo(torch.float32).min, -1e9):
        given = bias.masked_fill(hidden, low)
        for one in (given, given[0, 0]):
            diagnosis = gh.diagnose(one)
            made = run(diagnosis.conversion, one)
            expected = one.masked_fill(hidden, 0.0)
            assert torch.equal(diagnosis.bias, expected)
            assert torch.equal(made["bias"], expected)
            assert same(diagnosis, one, (~hidden).expand(one.shape))


def test_a_bias_that_grows_with_the_distance_hides_nothing():
    bias = gh.ALiBi(heads=2)(gh.Tile(range(3), range(70_000)))
    assert bias.min() < -4000
    diagnosis = gh.diagnose(bias)
    assert diagnosis.healthy
    assert torch.equal(diagnosis.bias, bias)
    assert diagnosis.mask.visible(gh.Tile(range(3), range(70_000))).all()


@pytest.mark.parametrize("name", SQUARE)
def test_a_glasshead_mask_is_looked_at_too(name):
    diagnosis = gh.diagnose(SQUARE[name], queries=QUERIES, keys=KEYS)
    assert (diagnosis.convention, diagnosis.healthy) == ("attend", True)
    cells = written(SQUARE[name])
    assert same(diagnosis, SQUARE[name], cells)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("padded", [None, "left", "right"])
def test_what_transformers_makes_is_healthy(implementation, cached, padded):
    transformers = pytest.importorskip("transformers")
    from transformers.masking_utils import create_causal_mask

    config = transformers.LlamaConfig(
        hidden_size=8, num_attention_heads=2, num_hidden_layers=1, vocab_size=7
    )
    config._attn_implementation = implementation
    queries, keys = 7, 7 + cached
    cache = None
    if cached:
        cache = transformers.DynamicCache(config=config)
        cache.update(*torch.zeros(2, 3, 2, cached, 4), 0)
    tokens = None
    if padded is not None:
        lengths = torch.tensor([[keys], [keys - 2], [keys - 1]])
        tokens = (torch.arange(keys) < lengths).long()
        tokens = tokens.flip(-1) if padded == "left" else tokens
    given = {"attention_mask": tokens, "past_key_values": cache}
    parameters = signature(create_causal_mask).parameters
    if "cache_position" in parameters:
        # Before transformers 5.20.
        given["cache_position"] = torch.arange(cached, keys)
    # The name before transformers 5.
    embeddings = "input_embeds" if "input_embeds" in parameters else "inputs_embeds"
    given[embeddings] = torch.zeros(3, queries, 8)
    made = create_causal_mask(config=config, **given)
    if made is None:
        pytest.skip("transformers leaves this mask to is_causal")
    diagnosis = gh.diagnose(made, queries=queries, keys=keys)
    assert diagnosis.convention == ("additive" if implementation == "eager" else "attend")
    unexpected = {f.kind for f in diagnosis.findings if f.severity != "note"}
    # With a cache, padding to the right hides the newest token: that is the fault it is.
    assert unexpected == ({"padding-side"} if cached and padded == "right" else set())
    shown = made == 0 if implementation == "eager" else made
    assert same(diagnosis, made, shown)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", ["attend", "additive"])
@pytest.mark.parametrize("lengths", [[7], [5, 7, 2]])
def test_padding_that_hides_queries_too_is_the_same_note_on_both_sides(lengths, form, causal):
    keys = torch.arange(7) < torch.tensor(lengths)[:, None]
    notes = []
    for real in (keys, keys.flip(1)):
        shown = (real[:, :, None] & real[:, None])[:, None]
        shown = shown.tril() if causal else shown
        diagnosis = gh.diagnose(FORMS[form](shown))
        assert diagnosis.healthy, diagnosis.findings
        counts = [one for one in diagnosis.findings if one.kind == "dead-rows"]
        notes.append([(one.severity, one.sentence.partition(":")[0]) for one in counts])
    assert notes[0] == notes[1]
    assert bool(notes[0]) == (sum(lengths) < 7 * len(lengths))


def test_the_pictures_of_two_batch_rows_are_recognised_in_their_places():
    pictures = torch.tensor([[0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 2, 2, 2, 2]])
    same = (pictures[:, :, None] == pictures[:, None]) & (pictures > 0)[:, None]
    shown = (torch.ones(7, 7, dtype=torch.bool).tril() | same)[:, None]
    diagnosis = gh.diagnose(shown)
    assert diagnosis.healthy
    assert [one.where for one in diagnosis.findings if one.kind == "blocks"] == [((0, 0, 1, 2),)]
    tile = gh.Tile(range(7), range(7))
    assert torch.equal(diagnosis.mask.visible(tile), shown)


@pytest.mark.parametrize("name", ["causal", "window", "causal left", "pictures"])
def test_a_block_mask_of_flex_attention_is_the_pairs_of_its_rule(name):
    mask = (SQUARE | PADDED)[name]
    shown = written(mask)
    shown = shown.reshape(1 if shown.ndim < 3 else len(shown), 1, QUERIES, KEYS)

    def rule(batch, _head, query, key):
        return shown[batch, 0, query, key]

    blocks = create_block_mask(rule, len(shown), None, QUERIES, KEYS, device="cpu")
    diagnosis = gh.diagnose(blocks)
    assert diagnosis.convention == "attend"
    assert diagnosis.healthy, diagnosis.findings
    assert same(diagnosis, blocks, shown)
    upside_down = create_block_mask(lambda b, h, q, k: k >= q, None, None, 5, 5, device="cpu")
    assert [one.kind for one in gh.diagnose(upside_down).findings] == ["polarity"]


def test_the_line_for_a_block_mask_runs_and_agrees():
    blocks = create_block_mask(lambda b, h, q, k: (q + k) % 3 != 1, None, None, 5, 7, device="cpu")
    diagnosis = gh.diagnose(blocks)
    rows, columns = torch.arange(5)[:, None], torch.arange(7)
    assert same(diagnosis, blocks, ((rows + columns) % 3 != 1)[None, None])


def test_the_masks_of_a_dict_are_told_by_name():
    full = written(SQUARE["causal"])
    masks = {"full_attention": full, "sliding_attention": written(SQUARE["window"]), "none": None}
    found = gh.diagnose(masks)
    assert [(name, one.conversion) for name, one in found.items()] == [
        ("full_attention", "mask = gh.causal()"),
        ("sliding_attention", "mask = gh.window(before=2)"),
    ]
    assert found.healthy
    assert "sliding_attention: A healthy mask" in str(found)
    full[2, 5] = True
    found = gh.diagnose(masks)
    assert not found.healthy
    assert [one.kind for one in found.findings] == ["future"]
    with pytest.raises(ValueError, match=r"got \{'full_attention': None\}"):
        gh.diagnose({"full_attention": None})
