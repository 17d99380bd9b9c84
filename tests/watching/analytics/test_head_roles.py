"""Head roles: scores by their definition, on handmade weights and on models."""

import math

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.watching.analytics import roles as masses
from glasshead.watching.analytics.role_scores import THRESHOLDS

ROLES = ("previous", "first", "induction", "duplicate", "local", "broad")
LENGTH, HEADS, VOCABULARY = 17, 3, 23
BELONGS = {
    "previous": lambda t, i, j: j == i - 1,
    "first": lambda t, i, j: j == 0 < i,
    "induction": lambda t, i, j: j > 0 and t[j - 1] == t[i] and j not in (i, i + 1),
    "duplicate": lambda t, i, j: t[j] == t[i] and j != i,
    "local": lambda t, i, j: abs(i - j) <= 2,
}


def scores_of(weights, sees, tokens):
    """All scores, key by key, of weights `[batch, heads, queries, keys]`."""
    found = {}
    length = range(weights.shape[-1])
    for role, belongs in BELONGS.items():
        values = []
        for P, t in zip(weights.double(), tokens.tolist(), strict=True):
            for i in length:
                mine = [j for j in length if sees[i, j] and belongs(t, i, j)]
                if 0 < len(mine) < sees[i].sum():
                    values.append(P[:, i, mine].sum(-1))
        found[role] = torch.stack(values).mean(0) if values else torch.tensor([math.nan] * HEADS)
    entropy = -torch.special.xlogy(weights, weights).sum(-1).double()
    several = sees.sum(-1) > 1
    even = entropy[..., several] / sees.sum(-1)[several].log()
    return found | {"broad": even.mean((0, 2))}


def attending(weights, mask=None):
    """What is seen of an attention with these weights, `[heads, queries, keys]`."""
    rule, x = gh.Attention(mask=mask), torch.zeros(1, len(weights), weights.shape[-1], 2)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x, bias=weights.clamp(min=1e-30).log()[None])
    return seen


def roles_at(keys, tokens, mask=None, **asked):
    """Of one head, each of whose queries looks at one key."""
    weights = nn.functional.one_hot(torch.tensor(keys), len(tokens)).double()
    return gh.head_roles(attending(weights[None], mask), torch.tensor(tokens), **asked)


# One period and the same again, after a token of its own.
TWICE = [9, *(3, 1, 4, 5, 2, 6), *(3, 1, 4, 5, 2, 6)]


@pytest.mark.parametrize(
    ("role", "key"),
    [
        ("previous", lambda i: max(i - 1, 0)),
        ("first", lambda i: 0),
        ("induction", lambda i: i - 5 if i > 6 else i),
        ("duplicate", lambda i: i - 6 if i > 6 else i),
        ("local", lambda i: i),
    ],
)
def test_a_head_that_looks_at_one_key_has_its_role_with_a_score_of_1(role, key):
    roles = roles_at([key(i) for i in range(13)], TWICE, gh.causal(), near=0)
    assert roles.scores[role].item() == pytest.approx(1, abs=1e-6)
    assert roles.roles == ((role,),)
    assert roles.best(role) == ("", 0)
    assert roles.heads(role) == [("", 0)]
    assert [other for other in ROLES if other != role and roles.heads(other)] == []


def test_the_scores_of_a_previous_token_head_by_hand():
    roles = roles_at([0, *range(12)], TWICE, gh.causal(), near=4)
    found = {role: float(one) for role, one in roles.scores.items()}
    # The previous token is the first one of query 1 alone, of 12; it follows and repeats nothing.
    expected = {"previous": 1, "first": 1 / 12, "induction": 0, "duplicate": 0, "local": 1}
    assert found == pytest.approx(expected | {"broad": 0}, abs=1e-6)


def test_a_head_that_looks_everywhere_alike_is_broad_and_nothing_else():
    roles = gh.head_roles(attending(torch.ones(1, 5, 5).double(), gh.causal()), torch.arange(5))
    assert roles.scores["broad"].item() == pytest.approx(1)
    assert roles.roles == (("broad",),)
    # Queries 1 to 4 see 2 to 5 keys, of which one is the previous, and one the first.
    even = (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4
    assert roles.scores["previous"].item() == pytest.approx(even)
    assert roles.scores["first"].item() == pytest.approx(even)
    assert roles.scores["induction"].isnan().all()
    assert roles.scores["duplicate"].isnan().all()
    for role in ("previous", "first"):
        assert roles.even[role].item() == pytest.approx(even)
    assert roles.even["broad"].item() == 0


def test_half_of_the_way_from_an_even_look_to_1_is_asked():
    # Queries 2 and 3 have keys that are no neighbours; they see 2 of 3, and 2 of 4 keys nearby.
    tokens, even = torch.arange(4), (2 / 3 + 2 / 4) / 2
    bar = even + (1 - even) / 2
    for score, role in ((bar - 0.01, None), (bar + 0.01, "local")):
        weights = torch.eye(4).double() * score
        weights[2:, 0] += 1 - score
        roles = gh.head_roles(attending(weights[None], gh.causal()), tokens, near=1)
        assert roles.even["local"].item() == pytest.approx(even)
        assert roles.scores["local"].item() == pytest.approx(score)
        assert roles.roles == ((role,),)


def random_weights(seed=0, heads=HEADS, length=LENGTH, mask=None):
    """Weights of no structure, neither flat nor sharp."""
    scores = 3 * torch.randn(heads, length, length, generator=torch.Generator().manual_seed(seed))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.double().softmax(-1)


def test_weights_of_no_structure_have_no_role():
    roles = gh.head_roles(
        attending(random_weights(length=53), gh.causal()),
        gh.repeated_random_tokens(53, period=13, begin=0),
    )
    assert roles.roles == ((None,) * HEADS,)


MASKS = {
    "causal": gh.causal(),
    "encoder": None,
    "window": gh.causal() & gh.window(before=5),
    "around": gh.window(before=3, after=2),
}
_DISTANCE = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
SEES = {
    "causal": _DISTANCE >= 0,
    "encoder": _DISTANCE > -LENGTH,
    "window": (_DISTANCE >= 0) & (_DISTANCE <= 5),
    "around": (_DISTANCE >= -2) & (_DISTANCE <= 3),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("at_once", [1, 2**22])
def test_scores_are_those_of_the_definition_whatever_the_mask(kind, at_once, monkeypatch):
    monkeypatch.setattr(masses, "_AT_ONCE", at_once)
    weights = random_weights(mask=SEES[kind])
    tokens = torch.randint(5, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    roles = gh.head_roles(attending(weights, MASKS[kind]), tokens, near=2)
    for role, expected in scores_of(weights[None], SEES[kind], tokens).items():
        torch.testing.assert_close(roles.scores[role][0], expected, atol=1e-6, rtol=1e-5)


def language_model(layers=2, **changes):
    torch.manual_seed(3)
    config = gh.LanguageModelConfig(
        vocab_size=VOCABULARY, d_model=12, num_heads=HEADS, num_layers=layers, **changes
    )
    model = gh.LanguageModel(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    return model


def text(rows=2):
    return torch.randint(7, (rows, LENGTH), generator=torch.Generator().manual_seed(2))


def test_a_model_is_run_and_each_of_its_layers_has_its_scores():
    model, tokens = language_model(), text()
    roles = gh.head_roles(model, tokens, near=2)
    assert roles.names == ("blocks.0.attention", "blocks.1.attention")
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(tokens)
    for layer, watched in enumerate(seen.values()):
        weights = watched.weights.dense()
        for role, expected in scores_of(weights, SEES["causal"], tokens).items():
            found = roles.scores[role][layer]
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert gh.head_roles(seen, tokens, near=2).scores["local"].equal(roles.scores["local"])


def test_a_text_read_in_parts_has_the_scores_of_the_whole():
    model, tokens = language_model(), text()
    cache = model.new_cache()
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        for part in tokens.split((7, 1, 1, 8), 1):
            model(part, cache=cache)
    whole, parts = gh.head_roles(model, tokens), gh.head_roles(seen, tokens)
    for role in ROLES:
        torch.testing.assert_close(parts.scores[role], whole.scores[role], atol=1e-5, rtol=1e-4)


def test_keys_that_a_cache_has_let_go_are_counted_in_the_text():
    query, key = torch.randn(2, 1, HEADS, 17, 5, generator=torch.Generator().manual_seed(4))
    # Queries 9 to 16, while keys 0 to 4 are gone.
    weights = gh.Attention(mask=gh.causal()).weights(query[..., 9:, :], key[..., 5:, :])
    tokens = torch.arange(17)[None] % 6
    found = masses.masses_of(weights, tokens, position=9, first_key=5, near=4)
    P = nn.functional.pad(weights.dense()[0], (5, 0)).double()
    # Another place of its token is 6 before; of 15 and 16 also 12 before, which is gone.
    counted = [i for i in range(9, 17) if i - 6 >= 5]
    sums = sum(P[:, i - 9, i - 6] for i in counted)
    duplicate = ROLES.index("duplicate")
    torch.testing.assert_close(found.sums[:, duplicate], sums, atol=1e-6, rtol=1e-5)
    assert found.counts[:, duplicate].tolist() == [len(counted)] * HEADS


def test_one_text_needs_no_batch_and_rows_count_alike():
    model, tokens = language_model(), text(rows=2)
    both = gh.head_roles(model, tokens)
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(tokens[:1])
    first = gh.head_roles(seen, tokens[0])
    second = gh.head_roles(model, tokens[1:])
    mean = (first.scores["previous"] + second.scores["previous"]) / 2
    torch.testing.assert_close(both.scores["previous"], mean, atol=1e-6, rtol=1e-5)


def test_induction_on_repeated_tokens_is_the_mass_on_the_place_after_the_last_occurrence():
    model = language_model(layers=1)
    tokens = gh.repeated_random_tokens(VOCABULARY, period=7, begin=0, times=2)
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(tokens)
    P = seen["blocks.0.attention"].weights.dense()[0].double()
    scores = gh.head_roles(seen, tokens).scores
    again = torch.arange(8, 15)
    torch.testing.assert_close(scores["induction"][0], P[:, again, again - 6].mean(-1))
    torch.testing.assert_close(scores["duplicate"][0], P[:, again, again - 7].mean(-1))


def handmade(scores, thresholds=THRESHOLDS):
    rows = {role: torch.tensor([[scores.get(role, 0.0)]]).double() for role in ROLES}
    none = {role: torch.zeros(1, 1).double() for role in ROLES}
    return gh.HeadRoles(("layer",), rows, none, thresholds)


@pytest.mark.parametrize(
    ("scores", "role"),
    [
        (dict.fromkeys(ROLES, 1.0), "broad"),
        ({"broad": 0.89, "induction": 0.5, "duplicate": 1.0, "previous": 1.0}, "induction"),
        ({"duplicate": 0.5, "previous": 1.0, "first": 1.0, "local": 1.0}, "duplicate"),
        ({"previous": 0.6, "first": 0.7, "local": 0.9}, "previous"),
        ({"first": 0.5, "local": 1.0}, "first"),
        ({"local": 0.5}, "local"),
        ({**dict.fromkeys(ROLES, 0.49), "broad": 0.89}, None),
        (dict.fromkeys(ROLES, math.nan), None),
    ],
)
def test_of_several_roles_a_head_has_the_first(scores, role):
    assert handmade(scores).roles == ((role,),)


def test_thresholds_can_be_others():
    seen, tokens = attending(random_weights(), gh.causal()), torch.arange(LENGTH)
    assert gh.head_roles(seen, tokens).roles == ((None,) * HEADS,)
    roles = gh.head_roles(seen, tokens, thresholds={"local": -1.0})
    assert roles.roles == (("local",) * HEADS,)
    assert roles.thresholds["local"] == -1.0
    assert roles.thresholds["broad"] == 0.9


def test_the_best_head_need_not_have_the_role():
    seen, tokens = attending(random_weights(), gh.causal()), torch.arange(LENGTH) % 5
    roles = gh.head_roles(seen, tokens)
    assert roles.best("induction") == ("", int(roles.scores["induction"][0].argmax()))
    assert roles.heads("induction") == []


class Alike(nn.Module):
    """An attention with some heads that look everywhere alike."""

    def __init__(self, heads):
        super().__init__()
        self.heads, self.attention = heads, gh.Attention(mask=gh.causal())

    def forward(self, tokens):
        x = torch.zeros(len(tokens), self.heads, tokens.shape[1], 2)
        self.attention(x, x, x)
        return tokens


def test_layers_may_have_unlike_many_heads():
    roles = gh.head_roles(nn.Sequential(Alike(1), Alike(3)), torch.arange(7))
    assert roles.scores["first"].isnan().tolist() == [[False, True, True], [False] * 3]
    assert roles.roles[0][1:] == (None, None)


def test_a_table_for_pandas():
    frame = gh.head_roles(language_model(), text()).to_frame()
    assert frame.index.names == ["layer", "head"]
    assert list(frame.columns) == [*ROLES, "role"]
    assert len(frame) == 2 * HEADS
    roles = gh.head_roles(language_model(), text())
    assert frame.loc[("blocks.1.attention", 2), "local"] == float(roles.scores["local"][1, 2])


def test_what_is_printed_names_every_head_and_the_best_of_each_role():
    scores = {role: torch.zeros(2, 12).double() for role in ROLES}
    scores["first"][1, 3], scores["induction"][0, 11] = 0.75, 0.9
    scores["duplicate"][:] = math.nan
    even = {role: torch.zeros(2, 12).double() for role in ROLES}
    even["induction"][0, 11] = 0.02
    roles = gh.HeadRoles(("h.0.attn", "h.1.attn"), scores, even, THRESHOLDS)
    told = repr(roles)
    assert told.startswith("The roles of the heads: 2 layers of 12 heads\n")
    assert "role and score of each head of h.*.attn; · none" in told
    assert all(f"head {head}" in told for head in range(12))
    assert told.count("first 0.75") == told.count("induction 0.90") == 1
    lines = {line.split()[0]: line.split() for line in told.splitlines() if line}
    assert lines["induction"] == ["induction", "1", "0.900", "0.510", "h.0.attn,", "head", "11"]
    assert lines["duplicate"] == ["duplicate", "0", "–", "–", "no", "query", "counts"]
    assert max(map(len, told.splitlines())) <= 80
    assert "<table" in roles._repr_html_()


def test_repeated_tokens_are_distinct_within_a_period_and_the_same_in_the_next():
    state = torch.random.get_rng_state()
    others = {"begin": 3, "times": 3, "avoid": (0, 1)}
    tokens = gh.repeated_random_tokens(31, period=11, rows=5, seed=7, **others)
    assert torch.random.get_rng_state().equal(state)
    assert tokens.shape == (5, 1 + 3 * 11)
    assert tokens.dtype == torch.int64
    assert (tokens[:, 0] == 3).all()
    first, second, third = tokens[:, 1:].split(11, 1)
    assert first.equal(second)
    assert first.equal(third)
    assert all(len(set(row)) == 11 for row in first.tolist())
    assert not set(first.flatten().tolist()) & {0, 1, 3}
    assert len({tuple(row) for row in first.tolist()}) == 5
    assert tokens.equal(gh.repeated_random_tokens(31, 11, 5, 7, **others))
    assert not tokens.equal(gh.repeated_random_tokens(31, 11, 5, 8, **others))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"period": 9, "avoid": (0, 1)}, "draws 9 distinct tokens, but there are 8 to draw from"),
        ({"period": 10, "begin": 0}, "draws 10 distinct tokens, but there are 9 to draw from"),
        ({"period": 0}, r"\(period\) must be a whole number of at least 1, got 0"),
        ({"period": 3, "rows": 0}, r"\(rows\) must be a whole number of at least 1, got 0"),
        ({"period": 3, "times": 1}, r"\(times\) must be a whole number of at least 2, got 1"),
        ({"period": 3, "seed": -1}, r"\(seed\) must be a whole number of at least 0, got -1"),
        ({"period": 3, "begin": -1}, r"\(begin\) must be a whole number of at least 0, got -1"),
        ({"period": 3, "rows": 10**12}, "must draw at most 268435456 numbers, got 12"),
        ({"period": 3, "times": 10**12}, "must draw at most 268435456 numbers, got 30"),
        ({"period": 3, "avoid": (-1,)}, r"\(avoid\) must be a whole number of at least 0, got"),
    ],
)
def test_tokens_that_cannot_be_drawn_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        gh.repeated_random_tokens(10, **arguments)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="needs a model or the result of a watch, got str"):
        gh.head_roles("model", text())  # type: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("tokens", "kind", "sentence"),
    [
        (
            [1, 2],
            TypeError,
            r"tokens must be a tensor of whole numbers, \[batch, length\], got l",
        ),
        (torch.ones(1, 5), TypeError, "got torch.float32"),
        (torch.ones(1, 1, 5).long(), ValueError, r"or a batch of them, .*got \[1, 1, 5\]"),
        (torch.ones(1, 0).long(), ValueError, r"got \[1, 0\]"),
    ],
)
def test_what_are_no_tokens_is_refused(tokens, kind, sentence):
    with pytest.raises(kind, match=sentence):
        gh.head_roles(language_model(), tokens)


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        ({"near": -1}, ValueError, "near must be a whole number of at least 0, got -1"),
        ({"thresholds": 0.5}, TypeError, r"thresholds must be a dict such as .* got 0\.5"),
        (
            {"thresholds": {"sink": 0.5}},
            ValueError,
            "a role must be one of previous, .*, got 'sink'",
        ),
        ({"thresholds": {"first": "x"}}, TypeError, r"thresholds\['first'\] must be a number"),
    ],
)
def test_options_that_do_not_fit_are_refused(asked, kind, sentence):
    with pytest.raises(kind, match=sentence):
        gh.head_roles(language_model(), text(), **asked)


def test_weights_that_were_not_kept_are_refused():
    model = language_model()
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(text())
    with pytest.raises(ValueError, match=r"'blocks\.0\.attention' were not kept. Watch with keep="):
        gh.head_roles(seen, text())


@pytest.mark.parametrize(
    ("tokens", "shape"), [(text()[:1], r"\[1, 17\]"), (text()[:, :16], r"\[2, 16\]")]
)
def test_tokens_of_another_text_are_refused(tokens, shape):
    model = language_model()
    with gh.watch(model, keep="weights") as seen:
        model(text())
    with pytest.raises(ValueError, match=rf"got {shape}, while .* has 2 × 17 queries on 17 keys"):
        gh.head_roles(seen, tokens)


def test_an_attention_that_crosses_to_another_text_is_refused():
    rule, x = gh.Attention(), torch.randn(1, 1, 7, 3)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x[..., :5, :], x[..., :5, :])
    with pytest.raises(ValueError, match=r"the attention has 1 × 7 queries on 5 keys\. Give the"):
        gh.head_roles(seen, torch.arange(7))


@pytest.mark.parametrize("keys", [7, 9])
def test_one_that_crosses_to_a_text_as_long_or_longer_is_refused_too(keys):
    model = gh.MultiHeadAttention(6, 2)
    with gh.watch(model, keep="weights") as seen:
        model(torch.randn(1, 7, 6), torch.randn(1, keys, 6))
    with pytest.raises(ValueError, match="of a text to itself, but the attention crosses to ano"):
        gh.head_roles(seen, torch.arange(7))


def test_a_model_whose_layers_share_an_attention_is_refused():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = gh.MultiHeadAttention(6, 2)

        def forward(self, tokens):
            return self.layer(self.layer(nn.functional.one_hot(tokens, 6).float()))

    with pytest.raises(
        ValueError, match=r"each attention once, but 'layer' ran 2 times\. Watch the model"
    ):
        gh.head_roles(Shared(), torch.arange(5))


def test_what_has_seen_nothing_has_no_roles():
    with pytest.raises(
        ValueError,
        match=r"needs a watch that observed attention, but this one observed none\. Run the",
    ):
        gh.head_roles(gh.Seen({}), torch.arange(7))


def test_a_role_that_nobody_has_a_score_of_has_no_best_head():
    roles = gh.head_roles(attending(random_weights(), gh.causal()), torch.arange(LENGTH))
    with pytest.raises(ValueError, match="no head has a score of 'induction', as no query"):
        roles.best("induction")
    with pytest.raises(ValueError, match="a role must be one of previous, .*, got 'sink'"):
        roles.heads("sink")
