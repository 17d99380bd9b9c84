"""Path patching: the scores change by the parts of a component, and by nothing else."""

import pytest
import torch
from torch import nn

import glasshead as gh

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]])
OTHER = torch.tensor([[2, 7, 1, 8, 2, 8, 1], [1, 6, 1, 8, 0, 3, 3]])
NAME, COMPONENT = "blocks.2.attention", "blocks.1.attention head 3"


def language_model(**changes):
    torch.manual_seed(7)
    sizes = {"vocab_size": 11, "d_model": 30, "num_heads": 5, "num_layers": 3}
    model = gh.LanguageModel(gh.LanguageModelConfig(**sizes | changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return model


def seen_of(model, tokens=TOKENS):
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(tokens)
    return seen


def patched_weights(model, patch, name=NAME, tokens=TOKENS):
    with (
        torch.no_grad(),
        gh.intervene(model, {name: patch}),
        gh.watch(model, keep="weights") as seen,
    ):
        model(tokens)
    return seen[name].weights


def part_of(seen, side, query=5, head=4, batch=1):
    parts = gh.score_parts(seen, NAME, head=head, query=query, batch=batch)
    own = parts.of_key if side == "key" else parts.of_query
    return parts.score, own[:, parts.names.index(COMPONENT)]


@pytest.mark.parametrize("side", ["key", "query"])
def test_scores_lose_the_part(side):
    model = language_model()
    seen = seen_of(model)
    weights = patched_weights(model, gh.PatchPart(seen, COMPONENT, side=side))
    score, part = part_of(seen, side)
    expected = (score - part)[:6].softmax(0)
    torch.testing.assert_close(weights[1, 4, 5, :6], expected, rtol=1e-4, atol=1e-5)


def test_queries_and_keys_lose_it_together():
    model = language_model()
    seen = seen_of(model)
    weights = patched_weights(model, gh.PatchPart(seen, COMPONENT))
    score, of_key = part_of(seen, "key")
    _, of_query = part_of(seen, "query")
    both = [
        gh.score_parts(seen, NAME, head=4, query=5, key=key, batch=1).pairs[place, place]
        for key in range(6)
        for place in [gh.score_parts(seen, NAME, head=4, query=5, batch=1).names.index(COMPONENT)]
    ]
    left = (score - of_key - of_query)[:6] + torch.stack(both)
    torch.testing.assert_close(weights[1, 4, 5, :6], left.softmax(0), rtol=1e-4, atol=1e-5)


def test_the_part_of_another_text_takes_its_place():
    model = language_model()
    seen, other = seen_of(model), seen_of(model, OTHER)
    same = patched_weights(model, gh.PatchPart(seen, COMPONENT, instead=seen))
    before = seen[NAME].weights
    torch.testing.assert_close(same.dense(), before.dense(), rtol=1e-4, atol=1e-5)
    # The text of row 0 of the other run is that of row 1 of this one.
    weights = patched_weights(model, gh.PatchPart(other, COMPONENT, instead=seen), tokens=OTHER)
    assert not torch.allclose(weights.dense(), other[NAME].weights.dense())


def test_only_the_heads_that_are_named_change():
    model = language_model()
    seen = seen_of(model)
    for side in ("key", "query"):
        patch = gh.PatchPart(seen, COMPONENT, side=side, heads=[2])
        changed, before = patched_weights(model, patch).dense(), seen[NAME].weights.dense()
        others = [0, 1, 3, 4]
        torch.testing.assert_close(changed[:, others], before[:, others])
        assert not torch.allclose(changed[:, 2], before[:, 2])


def test_heads_that_share_keys_change_together():
    model = language_model(num_kv_heads=1)
    seen = seen_of(model)
    patch = gh.PatchPart(seen, COMPONENT, side="key", heads=[2])
    weights = patched_weights(model, patch)
    score, part = part_of(seen, "key", head=0)
    expected = (score - part)[:6].softmax(0)
    torch.testing.assert_close(weights[1, 0, 5, :6], expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_transformers_is_patched():
    models = pytest.importorskip("watched_models")
    pytest.importorskip("transformers")
    model = models.llama("sdpa")
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(input_ids=TOKENS)
    name = "model.layers.1.self_attn"
    parts = gh.score_parts(seen, name, head=4, query=5, batch=1)
    place = parts.names.index("model.layers.0.mlp")
    patch = gh.PatchPart(seen, "model.layers.0.mlp", side="key")
    with (
        torch.no_grad(),
        gh.intervene(model, {name: patch}),
        gh.watch(model, keep="weights") as now,
    ):
        model(input_ids=TOKENS)
    expected = (parts.score - parts.of_key[:, place])[:6].softmax(0)
    torch.testing.assert_close(now[name].weights[1, 4, 5, :6], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"side": "value"}, r"side must be 'key', 'query' or 'both', got 'value'\."),
        ({"component": "nothing"}, r"there is no component 'nothing'; see names\."),
        ({"tokens": TOKENS[:, :5]}, r"PatchPart needs a run of the same shape, but the query of"),
    ],
)
def test_what_does_not_fit(given, message):
    model = language_model()
    seen = seen_of(model)
    tokens = given.pop("tokens", TOKENS)
    component = given.pop("component", COMPONENT)
    with pytest.raises(ValueError, match=message):
        patched_weights(model, gh.PatchPart(seen, component, **given), tokens=tokens)


def test_attention_without_queries_or_keys_of_its_own_is_named():
    layer = nn.MultiheadAttention(6, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 6)
    with torch.no_grad(), gh.watch(layer, keep="weights") as seen:
        layer(x, x, x, need_weights=True)
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match="PatchPart needs attention whose queries and keys are"),
        gh.intervene(layer, {"": gh.PatchPart(seen, "input", side="key")}),
    ):
        layer(x, x, x, need_weights=True)
