"""Parts of logits: against sums worked out by hand, the model's own logits, and ablation."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching import UnseenError

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]])


def language_model(**changes):
    torch.manual_seed(7)
    sizes = {"vocab_size": 11, "d_model": 30, "num_heads": 5, "num_layers": 3}
    model = gh.LanguageModel(gh.LanguageModelConfig(**sizes | changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return model


def seen_of(model, tokens=TOKENS):
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        logits = model(tokens)
    return seen, logits


class OneHead(nn.Module):
    """One head that weighs all tokens alike, and logits (3, -1)·x + 1 and x₂."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        self.output = nn.Linear(2, 2)
        self.output.weight.data = torch.tensor([[3.0, -1.0], [0.0, 1.0]])
        self.output.bias.data = torch.tensor([1.0, 0.0])

    def forward(self, tokens):
        x = self.embedding(tokens)
        heads = x.unsqueeze(1)
        x = x + F.scaled_dot_product_attention(0 * heads, heads, 4 * heads).squeeze(1)
        return self.output(x)


def test_a_logit_is_worked_out_by_hand():
    seen, logits = seen_of(OneHead(), torch.tensor([[0, 1]]))
    # The embedding is (0, 2), the head writes (2, 4): half of (4, 0) and half of (0, 8).
    parts = gh.logit_parts(seen, token=0)
    assert parts.names == ["embedding", "head 0", "output.bias"]
    assert parts.parts.tolist() == [-2.0, 2.0, 1.0]
    assert parts.lens.tolist() == [-2.0, 0.0, 1.0]
    assert float(parts.logit) == float(logits[0, 1, 0]) == 1.0
    assert parts.sources("head 0").tolist() == [6.0, -4.0]
    assert gh.logit_parts(seen, token=0, against=1).parts.tolist() == [-4.0, -2.0, 1.0]


def test_parts_sum_to_the_logit():
    seen, logits = seen_of(language_model())
    for query, batch in ((6, 0), (2, 1)):
        parts = gh.logit_parts(seen, token=7, against=2, query=query, batch=batch)
        difference = logits[batch, query, 7] - logits[batch, query, 2]
        torch.testing.assert_close(parts.sum(), difference, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(parts.lens[-1], difference, rtol=1e-4, atol=1e-4)


def test_the_most_likely_token_is_the_default():
    seen, logits = seen_of(language_model())
    assert gh.logit_parts(seen, query=3).token == int(logits[0, 3].argmax())
    assert gh.logit_parts(seen).query == 6


def test_an_untied_projection_and_a_softcap():
    seen, logits = seen_of(language_model(tied=False, logit_softcap=3.0))
    with pytest.raises(UnseenError, match="as a linear function of its residual stream"):
        gh.logit_parts(seen)
    seen, logits = seen_of(language_model(tied=False))
    torch.testing.assert_close(
        gh.logit_parts(seen, token=4).sum(), logits[0, -1, 4], rtol=1e-4, atol=1e-4
    )


def test_sources_sum_to_the_part_of_the_head():
    seen, _ = seen_of(language_model(num_kv_heads=1))
    parts = gh.logit_parts(seen, token=7, query=4)
    for one, part in zip(parts.components, parts.parts, strict=True):
        if one.head is not None:
            torch.testing.assert_close(parts.sources(one).sum(), part, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"there is no component 'nothing'; see names\."):
        parts.sources("nothing")
    with pytest.raises(ValueError, match=r"sources needs a head, got 'embedding\.tokens'\."):
        parts.sources("embedding.tokens")


def test_the_part_of_a_head_is_what_its_ablation_removes():
    # Without a last norm and later layers the logits are linear in the heads of the last layer.
    model = language_model(feed_forward="none")
    model.norm = nn.Identity()
    seen, logits = seen_of(model)
    with torch.no_grad(), gh.ablate(model, {"blocks.2.attention": [3]}):
        without = model(TOKENS)
    parts = gh.logit_parts(seen, token=7, query=4)
    place = parts.names.index("blocks.2.attention head 3")
    removed = (logits - without)[0, 4, 7]
    torch.testing.assert_close(parts.parts[place], removed, rtol=1e-4, atol=1e-4)


def test_a_table_has_a_row_for_each_component():
    pytest.importorskip("pandas")
    parts = gh.logit_parts(seen_of(language_model())[0], token=7)
    table = parts.to_frame()
    assert list(table.index) == parts.names
    assert table["lens"].iloc[-1] == pytest.approx(table["part"].sum(), rel=1e-4)
    assert repr(parts).startswith("LogitParts of token 7 at 6: ")
    largest = parts.top(1)[0][1]
    assert abs(largest) == float(parts.parts.abs().max())


def test_a_watch_without_parts_is_named():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(TOKENS)
    with pytest.raises(ValueError, match=r"Watch with keep='parts'\."):
        gh.logit_parts(seen)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": 11}, r"token must be in -11\.\.10, got 11\."),
        ({"against": "a"}, r"against must be a whole number, got 'a'\."),
        ({"query": 7}, r"query must be in -7\.\.6, got 7\."),
    ],
)
def test_arguments_that_do_not_fit(given, message):
    seen, _ = seen_of(language_model())
    with pytest.raises((TypeError, ValueError), match=message):
        gh.logit_parts(seen, **given)


SMALL_MOE = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "num_experts_per_tok": 2,
}
FIVE = {"num_experts": 5, "moe_intermediate_size": 12}
MIXTURES = {
    "Mixtral": {"num_local_experts": 5},
    "Qwen2Moe": FIVE | {"shared_expert_intermediate_size": 14, "decoder_sparse_step": 1},
    "Qwen3Moe": FIVE | {"head_dim": 6},
    "Olmoe": {"num_experts": 5, "eos_token_id": 2},
    "GptOss": {"num_local_experts": 5, "head_dim": 6},
}


def mixture(family):
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SMALL_MOE | MIXTURES[family])
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


TWO_TEXTS = torch.tensor([[3, 14, 15, 9, 2, 6, 5], [5, 3, 5, 8, 9, 7, 9]])


@pytest.mark.parametrize("family", MIXTURES)
def test_experts_add_up_to_their_part(family):
    model = mixture(family)
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TWO_TEXTS)
    name = "model.layers.1.mlp.experts"
    parts = gh.logit_parts(seen, 7, query=4, batch=1)
    shares = parts.experts(name)
    assert shares.shape == (5,)
    assert (shares != 0).sum() == 2
    whole = parts.parts[parts.names.index(name)]
    torch.testing.assert_close(shares.sum(), whole, atol=1e-5, rtol=1e-4)
    first = "model.layers.0.mlp.experts"
    scores = gh.score_parts(seen, list(seen)[-1], head=1, query=4, key=2, batch=1)
    for side, of_side in (("key", scores.of_key), ("query", scores.of_query)):
        whole = of_side[scores.names.index(first)]
        shares = scores.experts(first, side=side)
        torch.testing.assert_close(shares.sum(), whole, atol=1e-5, rtol=1e-4)


def test_the_part_of_an_expert_is_what_it_computes():
    model = mixture("Mixtral")
    experts, given = model.model.layers[1].mlp.experts, []
    hook = experts.register_forward_hook(lambda _, args, __: given.append(args))
    norm, before = model.model.norm, []
    second = norm.register_forward_pre_hook(lambda _, args: before.append(args[0]))
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TWO_TEXTS)
    hook.remove()
    second.remove()
    shares = gh.logit_parts(seen, 7, query=4, batch=1).experts("model.layers.1.mlp.experts")
    # The fifth token of the second text of seven tokens.
    hidden, index, weights = (one[7 + 4] for one in given[0])
    with torch.no_grad():
        scale = (before[0][1, 4].square().mean() + norm.variance_epsilon).rsqrt()
        row = model.lm_head.weight[7] * norm.weight * scale
        for expert, weight in zip(index.tolist(), weights.tolist(), strict=True):
            gate, up = (experts.gate_up_proj[expert] @ hidden).chunk(2)
            written = experts.down_proj[expert] @ (nn.functional.silu(gate) * up)
            share = weight * float(written @ row)
            assert float(shares[expert]) == pytest.approx(share, rel=1e-4)


def test_experts_need_a_mixture():
    model = mixture("Mixtral")
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(TWO_TEXTS)
    parts = gh.logit_parts(seen, 7)
    with pytest.raises(ValueError, match="needs a component of experts, got 'model.embed_tokens'"):
        parts.experts("model.embed_tokens")
