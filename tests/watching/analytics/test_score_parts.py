"""Parts of scores: against sums worked out by hand, the model's own scores, and other texts."""

import gc
import warnings
from weakref import ref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching import BudgetError, UnseenError

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]])


def language_model(dtype=torch.float32, **changes):
    torch.manual_seed(7)
    sizes = {"vocab_size": 11, "d_model": 30, "num_heads": 5, "num_layers": 3}
    model = gh.LanguageModel(gh.LanguageModelConfig(**sizes | changes)).eval().to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return model


def seen_of(model, tokens=TOKENS, **asked):
    with torch.no_grad(), gh.watch(model, keep="parts", **asked) as seen:
        model(tokens)
    return seen


class Attending(nn.Module):
    """One head, whose queries and keys are its input, and whose values are twice that."""

    def forward(self, x):
        heads = x.unsqueeze(1)
        return F.scaled_dot_product_attention(heads, heads, 2 * heads, scale=1.0).squeeze(1)


class Added(nn.Module):
    """Two attentions after an embedding and a vector that is added to all tokens.

    Args:
        between: Changes the residual stream between both.
    """

    def __init__(self, between=None):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        self.shift = nn.Parameter(torch.tensor([3.0, 1.0]))
        self.first, self.second = Attending(), Attending()
        self.between = between or (lambda x: x)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.shift
        x = self.between(x + self.first(x))
        return x + self.second(x)


def test_a_score_is_worked_out_by_hand():
    seen = seen_of(Added(), torch.tensor([[0, 1]]))
    parts = gh.score_parts(seen, "first", head=0, query=1, key=0)
    # The query is (0, 2) + (3, 1), the key is (1, 0) + (3, 1).
    assert parts.names == ["embedding", "shift"]
    assert parts.pairs.tolist() == [[0.0, 2.0], [3.0, 10.0]]
    assert parts.of_query.tolist() == [2.0, 13.0]
    assert parts.of_key.tolist() == [3.0, 12.0]
    assert float(parts.score) == float(parts.sum()) == 15.0


def test_what_a_head_wrote_is_split_by_the_tokens_it_looked_at():
    seen = seen_of(Added(), torch.tensor([[0, 1]]))
    parts = gh.score_parts(seen, "second", head=0, query=0, key=1)
    assert parts.names == ["embedding", "shift", "first head 0"]
    # The head at 1 looked at (4, 1) and (3, 3) by the scores 15 and 18, that at 0 by 17 and 15.
    weights = torch.tensor([15.0, 18.0]).softmax(0)
    query = torch.tensor([4.0, 1.0]) + 2 * _mixed([17.0, 15.0])
    sources = 2 * weights * torch.tensor([[4.0, 1.0], [3.0, 3.0]]).mv(query)
    torch.testing.assert_close(parts.sources("first head 0"), sources)
    torch.testing.assert_close(parts.sources("first head 0").sum(), parts.of_key[2])


def _mixed(scores):
    return torch.tensor(scores).softmax(0) @ torch.tensor([[4.0, 1.0], [3.0, 3.0]])


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 1},
        {"order": "post"},
        {"order": "sandwich", "norm": "rms"},
        {"query_key_norm": "joined"},
    ],
)
def test_parts_sum_to_the_score(dtype, limit, changes):
    seen = seen_of(language_model(dtype, **changes))
    for name in seen:
        parts = gh.score_parts(seen, name, head=3, query=5, key=2, batch=1)
        size = parts.pairs.abs().sum()
        assert abs(parts.pairs.sum() - parts.score) <= limit * size
        assert abs(parts.of_query.sum() - parts.score) <= limit * size
        torch.testing.assert_close(parts.pairs.sum(0), parts.of_key)
        torch.testing.assert_close(parts.pairs.sum(1), parts.of_query)


def test_the_score_is_that_of_the_weights():
    seen = seen_of(language_model())
    parts = gh.score_parts(seen, "blocks.2.attention", head=4, query=6)
    weights = seen["blocks.2.attention"].weights[0, 4, 6]
    torch.testing.assert_close(parts.score.softmax(0), weights)


def test_queries_may_be_several():
    seen = seen_of(language_model())
    several = gh.score_parts(seen, "blocks.1.attention", head=2, query=[-1, 3], batch=1)
    assert several.queries == (6, 3)
    for place, query in enumerate((6, 3)):
        one = gh.score_parts(seen, "blocks.1.attention", head=2, query=query, batch=1)
        torch.testing.assert_close(several.of_key[place], one.of_key)
        torch.testing.assert_close(several.of_query[place], one.of_query)
        torch.testing.assert_close(several.contrast(1)[place], one.contrast(1))


def test_a_row_of_a_batch_has_the_parts_of_its_text_alone():
    model = language_model()
    both, alone = seen_of(model), seen_of(model, TOKENS[1:])
    of_both = gh.score_parts(both, "blocks.2.attention", head=1, query=4, key=3, batch=1)
    of_one = gh.score_parts(alone, "blocks.2.attention", head=1, query=4, key=3)
    torch.testing.assert_close(of_both.pairs, of_one.pairs)
    assert of_both.names == of_one.names


@pytest.mark.parametrize("side", ["key", "query"])
def test_sources_sum_to_the_part_of_the_head(side):
    seen = seen_of(language_model())
    parts = gh.score_parts(seen, "blocks.2.attention", head=1, query=5, key=3)
    own = parts.of_key if side == "key" else parts.of_query
    for place, one in enumerate(parts.components):
        if one.head is not None:
            sources = parts.sources(one, side=side)
            torch.testing.assert_close(sources.sum(), own[place])
            assert not sources[(3 if side == "key" else 5) + 1 :].any()


def test_a_contrast_is_what_a_softmax_depends_on():
    seen = seen_of(language_model())
    parts = gh.score_parts(seen, "blocks.1.attention", head=0, query=4)
    # The keys after the query are hidden.
    expected = parts.score[2] - parts.score[[0, 1, 3, 4]].mean()
    for side in ("key", "query"):
        torch.testing.assert_close(parts.contrast(2, side=side).sum(), expected)


def test_a_key_whose_weight_is_too_small_is_one_of_the_others():
    # e^-144 is 0 in float32, and the model multiplies no key by 0.
    seen = seen_of(Added(between=lambda x: 12 * x), torch.tensor([[0, 1, 0]]))
    parts = gh.score_parts(seen, "second", head=0, query=0)
    weights = seen["second"].weights[0, 0, 0]
    assert (weights == 0).any()
    assert parts.visible.all()
    expected = parts.score[1] - parts.score[[0, 2]].mean()
    torch.testing.assert_close(parts.contrast(1).sum(), expected, rtol=1e-5, atol=1e-2)


def test_a_bias_of_queries_has_no_part_in_a_contrast():
    seen = seen_of(language_model())
    parts = gh.score_parts(seen, "blocks.1.attention", head=0, query=4)
    place = parts.names.index("blocks.1.attention.projections.stacks.0.bias")
    # That of keys adds the same to each score.
    assert abs(parts.contrast(2)[place]) < 1e-5 < abs(parts.of_key[2, place])


def test_a_table_has_a_row_for_each_pair():
    pytest.importorskip("pandas")
    seen = seen_of(language_model())
    one = gh.score_parts(seen, "blocks.1.attention", head=0, query=4, key=2)
    table = one.to_frame()
    known = table.loc[("blocks.0.attention head 3", "embedding.tokens"), "score"]
    names = one.names
    pair = names.index("blocks.0.attention head 3"), names.index("embedding.tokens")
    assert known == pytest.approx(float(one.pairs[pair]))
    every = gh.score_parts(seen, "blocks.1.attention", head=0, query=4).to_frame()
    assert every.loc[(4, 2), "of_key"].sum() == pytest.approx(float(one.score), rel=1e-4)
    assert repr(one).startswith("ScoreParts of 'blocks.1.attention', head 0, query 4, key 2: ")


def test_the_largest_pairs_come_first():
    seen = seen_of(language_model())
    parts = gh.score_parts(seen, "blocks.1.attention", head=0, query=4, key=2)
    top = parts.top(3)
    assert [abs(value) for *_, value in top] == parts.pairs.abs().flatten().topk(3).values.tolist()
    a, b, value = top[0]
    assert float(parts.pairs[parts.components.index(a), parts.components.index(b)]) == value


def test_a_stream_that_is_overwritten_in_place_is_followed():
    def doubled(x):
        x += x
        return x.sub_(torch.ones(2))

    seen = seen_of(Added(doubled), torch.tensor([[0, 1]]))
    parts = gh.score_parts(seen, "second", head=0, query=0, key=1)
    # The query is twice the stream before it, minus 1.
    query, shift = torch.tensor([-1.0, -1.0]), torch.tensor([3.0, 1.0])
    query += 2 * (torch.tensor([4.0, 1.0]) + 2 * _mixed([17.0, 15.0]))
    assert parts.of_key[parts.names.index("shift")] == pytest.approx(float(2 * shift @ query))
    torch.testing.assert_close(parts.pairs.sum(), parts.score)


def test_what_is_written_behind_the_operators_is_refused():
    def written(x):
        x.numpy()[...] += 1
        return x

    seen = seen_of(Added(written), torch.tensor([[0, 1]]))
    with pytest.raises(UnseenError, match="must sum to it, but differ by .* after 'first head 0'"):
        gh.score_parts(seen, "second", head=0, query=0, key=1)


def test_a_stream_through_a_function_is_refused():
    seen = seen_of(Added(torch.tanh), torch.tensor([[0, 1]]))
    with pytest.raises(UnseenError, match=r"the parts of 'second' are not known, as an operator"):
        gh.score_parts(seen, "second", head=0, query=0, key=1)


@pytest.mark.parametrize("gradients", [False, True])
def test_the_model_runs_as_it_does_unwatched(gradients):
    model = language_model().train()
    results = []
    for watched in (False, True):
        torch.manual_seed(3)
        model.zero_grad()
        with torch.set_grad_enabled(gradients):
            if watched:
                with gh.watch(model, keep="parts"):
                    logits = model(TOKENS)
            else:
                logits = model(TOKENS)
        if gradients:
            logits.square().sum().backward()
        results.append([logits, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(map(torch.equal, *results))


def test_parts_follow_what_dropout_left():
    model = language_model(dropout=0.3).train()
    torch.manual_seed(5)
    with gh.watch(model, keep="parts") as seen:
        model(TOKENS)
    parts = gh.score_parts(seen, "blocks.1.attention", head=0, query=4, key=2)
    torch.testing.assert_close(parts.pairs.sum(), parts.score, rtol=1e-4, atol=1e-4)


def test_the_last_of_several_texts_is_split():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TOKENS)
        model(TOKENS.flip(1))
    again = gh.score_parts(seen, "blocks.1.attention", head=0, query=4, key=2)
    alone = gh.score_parts(
        seen_of(model, TOKENS.flip(1)), "blocks.1.attention", head=0, query=4, key=2
    )
    torch.testing.assert_close(again.pairs, alone.pairs)


def test_a_spent_budget_ends_keeping_and_not_the_run():
    model = language_model()
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match="keep='parts' may use at most budget=10000 bytes"),
        gh.watch(model, keep="parts", budget=10_000) as seen,
    ):
        logits = model(TOKENS)
    with torch.no_grad():
        assert torch.equal(logits, model(TOKENS))
    with pytest.raises(BudgetError, match="Raise budget="):
        gh.score_parts(seen, "blocks.2.attention", head=0, query=4)


def test_what_no_part_needs_is_freed():
    model, made = language_model(feed_forward="swiglu"), []
    for block in model.blocks:
        block.feed_forward.output.register_forward_pre_hook(
            lambda _, given: made.append(ref(given[0]))
        )
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TOKENS)
        gc.collect()
        assert [one() for one in made] == [None, None, None]
    assert gh.score_parts(seen, "blocks.2.attention", head=0, query=4).names


@pytest.mark.parametrize(("tensors", "suffices"), [(18, False), (33, True)])
def test_the_budget_counts_what_is_kept(tensors, suffices):
    # Of each of three layers 6 tensors at least: queries, keys, values, the output of the heads and
    # of the feed-forward, and weights, which take copies of queries and keys.
    budget = tensors * TOKENS.numel() * 30 * 4
    model = language_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if not suffices else "error")
        with torch.no_grad(), gh.watch(model, keep="parts", budget=budget) as seen:
            model(TOKENS)
    assert (seen.missing is None) == suffices


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": 5}, r"head must be in -5\.\.4, got 5\."),
        ({"query": 7}, r"query must be in -7\.\.6, got 7\."),
        ({"key": -8}, r"key must be in -7\.\.6, got -8\."),
        ({"batch": 2}, r"batch must be in -2\.\.1, got 2\."),
        ({"query": []}, r"query must be a place or a list of places, got \[\]\."),
        ({"query": 1.0}, r"query must be a place or a list of places, got 1\.0\."),
    ],
)
def test_arguments_that_do_not_fit(changes, message):
    seen = seen_of(language_model())
    with pytest.raises((TypeError, ValueError), match=message):
        gh.score_parts(seen, "blocks.1.attention", **{"head": 0, "query": 1} | changes)


def test_what_was_not_kept_is_named():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(TOKENS)
    with pytest.raises(ValueError, match=r"Watch with keep='parts'\."):
        gh.score_parts(seen, "blocks.1.attention", head=0, query=1)
    cache = model.new_cache()
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TOKENS, cache=cache)
        model(TOKENS[:, :1], cache=cache)
    with pytest.raises(ValueError, match="needs a text that is read at once, but the last of"):
        gh.score_parts(seen, "blocks.1.attention", head=0, query=1)


def test_inference_mode_and_compiled_models_are_refused():
    model = language_model()
    with torch.inference_mode(), gh.watch(model, keep="parts") as seen:
        model(TOKENS)
    with pytest.raises(UnseenError, match=r"torch\.inference_mode\(\)\. Run it under"):
        gh.score_parts(seen, "blocks.1.attention", head=0, query=1)
    with (
        pytest.raises(ValueError, match="keep='parts' needs a model that is not compiled"),
        gh.watch(torch.compile(model, backend="eager"), keep="parts"),
    ):
        pass


def test_parts_of_a_model_that_was_deleted_are_those_of_the_run():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TOKENS)
    before = gh.score_parts(seen, "blocks.1.attention", head=0, query=1).of_key
    gone = ref(model)
    del model
    gc.collect()
    assert gone() is None
    after = gh.score_parts(seen, "blocks.1.attention", head=0, query=1).of_key
    assert torch.equal(before, after)
