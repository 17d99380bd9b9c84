"""Vertical and slash patterns, against whole matrices of weights."""

from itertools import product

import pytest
import torch

import glasshead as gh
from glasshead.watching.analytics import sparse_patterns
from watching.analytics.direct import explicit
from watching.small import BATCH, HEADS, watched

NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
PLACES = torch.arange(7)
DISTANCE = PLACES[:, None] - PLACES
EMPTY = torch.ones(7, 7, dtype=torch.bool)
EMPTY[[0, 5]] = False
BOTH_WAYS = (DISTANCE.abs() < 3) & (PLACES != 2)


def directly(W, vertical, slash, window, over):
    """The lines and shares of one head's matrix, pair by pair."""
    rows = range(7 - window, 7)
    columns = {j: float(sum(W[i, j] for i in rows)) for j in range(7)}
    slashes = {d: sum(float(W[i, i - d]) for i in rows if 0 <= i - d < 7) for d in range(-6, 7)}
    best = sorted(columns, key=lambda j: (-columns[j], j))[:vertical]
    near = sorted(slashes, key=lambda d: (-slashes[d], -d))[:slash]
    first = min((j for j in columns if columns[j]), default=0)
    of_a = range(first, min(first + vertical, 7))
    nearest = sorted((d for d in slashes if slashes[d]), key=lambda d: (abs(d), -d))[:slash]
    rows = rows if over == "window" else range(7)
    total = sum(float(W[i, j]) for i in rows for j in range(7))

    def share(keys, distances):
        pairs = [(i, j) for i in rows for j in range(7) if j in keys or i - j in distances]
        held = sum(float(W[pair]) for pair in pairs)
        return held / total if total else 0.0

    shares = [share(best, []), share([], near), share(best, near), share(of_a, nearest)]
    return best, [columns[j] for j in best], near, [slashes[d] for d in near], shares


@pytest.mark.parametrize("over", ["window", "text"])
@pytest.mark.parametrize("window", [1, 3, 7])
@pytest.mark.parametrize("mask", [None, EMPTY])
def test_lines_and_shares_are_those_of_the_matrix(mask, window, over, monkeypatch):
    monkeypatch.setattr(sparse_patterns, "_NUMBERS", 2 * 42)  # two rows at a time
    seen, model = watched([], keep="weights", mask=mask)
    found = gh.patterns(seen, vertical=2, slash=3, window=window, over=over)
    assert list(found) == ["layers.0", "layers.1"]
    for pattern, matrices in zip(found.values(), explicit(model), strict=True):
        for at in product(range(BATCH), range(HEADS)):
            agree(pattern, at, directly(matrices[at], 2, 3, window, over))


def agree(pattern, at, said):
    """The lines and shares of one head are those that were computed pair by pair."""
    keys, key_mass, distances, distance_mass, shares = said
    assert pattern.columns[at].tolist() == keys
    assert pattern.distances[at].tolist() == distances
    torch.testing.assert_close(pattern.column_mass[at], torch.tensor(key_mass), **NEAR)
    torch.testing.assert_close(pattern.distance_mass[at], torch.tensor(distance_mass), **NEAR)
    torch.testing.assert_close(pattern.shares[at], torch.tensor(shares), **NEAR)


@pytest.mark.parametrize("over", ["window", "text"])
def test_keys_that_come_later_are_at_distances_below_0(over):
    rule, x = gh.Attention(mask=gh.dense(BOTH_WAYS)), torch.randn(7, 5)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x)
    (pattern,) = gh.patterns(seen, vertical=2, slash=5, window=4, over=over).values()
    agree(pattern, ..., directly(rule.weights(x, x).dense(), 2, 5, 4, over))
    assert min(pattern.distances.tolist()) < 0


def test_of_a_text_that_has_grown():
    seen, model = watched([], keep="weights", lengths=(4, 1, 2), cached=True)
    whole = torch.zeros(BATCH, HEADS, 7, 7, dtype=torch.double)
    for call, (first, keys) in enumerate(((0, 4), (4, 5), (5, 7))):
        whole[..., first:keys, :keys] = explicit(model, 1, call)[0]
    pattern = gh.patterns(seen, vertical=2, slash=2, window=4)["layers.0"]
    for at in product(range(BATCH), range(HEADS)):
        agree(pattern, at, directly(whole[at], 2, 2, 4, "window"))


@pytest.mark.parametrize("leading", [(2, 3), (2,)])
@pytest.mark.parametrize("offset", [None, 1, torch.tensor([1, 3])])
def test_distances_are_counted_from_where_the_queries_stand(leading, offset):
    rule, query = gh.Attention(mask=gh.causal()), torch.randn(*leading, 3, 5)
    key = torch.randn(*leading, 7, 5)
    with gh.watch(rule, keep="weights") as seen:
        rule(query, key, key, offset=offset)
    (pattern,) = gh.patterns(seen, slash=2, window=3).values()
    weights = rule.weights(query, key, offset=offset).dense()
    firsts = torch.as_tensor(4 if offset is None else offset).expand(2)
    for at in product(*map(range, leading)):
        back = firsts[at[0]] + torch.arange(3)[:, None] - PLACES
        sums = torch.stack([weights[at][back == d].sum() for d in pattern.distances[at]])
        assert pattern.distances[at].min() >= 0
        torch.testing.assert_close(pattern.distance_mass[at], sums, **NEAR)


def of_heads(*matrices):
    """What a watch sees of heads with these weights, 0 or more; rows of equals."""
    masks = torch.stack([matrix > 0 for matrix in matrices])[None]
    rule, x = gh.Attention(), torch.zeros(1, len(matrices), 7, 5)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x, mask=gh.dense(masks))
    return seen


CAUSAL = DISTANCE >= 0
HEADS_OF_EACH_KIND = {
    "A-shape": CAUSAL & ((PLACES == 0) | (DISTANCE < 2)),
    "vertical-slash": CAUSAL & ((PLACES == 2) | (DISTANCE == 3)),
    "dense": CAUSAL,
    "empty": CAUSAL & (PLACES[:, None] < 0),
}


def test_the_kind_of_a_head():
    found = gh.patterns(of_heads(*HEADS_OF_EACH_KIND.values()), vertical=1, slash=2, window=3)
    assert found.kinds("") == list(HEADS_OF_EACH_KIND)
    strict = gh.patterns(of_heads(CAUSAL), vertical=1, slash=2, window=3, enough=0.3)
    assert strict.kinds("") == ["A-shape"]
    seen = of_heads(*(HEADS_OF_EACH_KIND[kind] for kind in ("A-shape", "vertical-slash", "empty")))
    found = gh.patterns(seen, vertical=1, slash=2, window=3)
    table = """\
What the last 3 queries look at
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━

1 vertical, 2 slash, and the share of the mass that they hold
layer      head 0        head 1               head 2
──────────────────────────────────────────────────────
the model  A-shape 100%  vertical-slash 100%  empty 0%"""
    assert str(found).strip() == table
    assert "vertical-slash" in found._repr_html_()


def test_shares_of_what_is_no_number_are_none():
    rule, x = gh.Attention(mask=gh.causal()), torch.full((1, 1, 7, 5), torch.nan)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x)
    found = gh.patterns(seen)
    assert found[""].shares.isnan().all()
    assert found.kinds("") != ["empty"]


def test_a_frame_has_a_row_for_each_layer_text_and_head():
    pytest.importorskip("pandas")
    seen, _ = watched([], keep="weights")
    found = gh.patterns(seen, vertical=2, slash=2)
    frame = found.to_frame()
    assert frame.index.names == ["layer", "batch", "head"]
    assert list(frame.columns) == ["kind", "vertical", "slash", "vertical_slash", "a_shape"]
    assert len(frame) == 2 * BATCH * HEADS
    expected = found["layers.1"].shares[1, 2].tolist()
    assert frame.loc[("layers.1", 1, 2)].tolist()[1:] == expected


@pytest.mark.parametrize(
    ("asked", "error", "sentence"),
    [
        ({"vertical": 0}, ValueError, "^vertical must be a whole number of at least 1, got 0.$"),
        ({"slash": 1.5}, TypeError, "^slash must be a whole number of at least 1"),
        ({"window": 0}, ValueError, "^window must be a whole number of at least 1, got 0.$"),
        ({"over": "all"}, ValueError, "^over must be 'window' or 'text', got 'all'.$"),
        ({"enough": 0.0}, ValueError, "^enough must be a number above 0, got 0.0.$"),
        ({"enough": 1.1}, ValueError, "^enough must be a share of at most 1, got 1.1.$"),
        ({"layers": "decoder"}, ValueError, "^layers must be names"),
    ],
)
def test_what_it_does_not_take(asked, error, sentence):
    seen, _ = watched([], keep="weights")
    with pytest.raises(error, match=sentence):
        gh.patterns(seen, **asked)


def test_weights_that_were_not_kept_are_asked_for():
    with pytest.raises(ValueError, match="^the weights of 'layers.0' were not kept. Watch with"):
        gh.patterns(watched()[0])


def test_attention_that_crosses_has_no_distances():
    layer = gh.MultiHeadAttention(6, 2)
    with gh.watch(layer, keep="weights") as seen:
        layer(torch.randn(2, 7, 6), torch.randn(2, 7, 6))
    with pytest.raises(ValueError, match="patterns needs the attention of a text to itself"):
        gh.patterns(seen)


def test_a_text_without_a_token_has_none():
    rule, x = gh.Attention(), torch.zeros(1, 2, 0, 5)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x)
    with pytest.raises(ValueError, match="patterns needs a text of at least"):
        gh.patterns(seen)
