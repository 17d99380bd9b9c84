"""What heads write: against the sum by hand, the projection's own weights, and `ablate`."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.watching import UnseenError

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]])


def language_model():
    torch.manual_seed(7)
    config = gh.LanguageModelConfig(vocab_size=11, d_model=20, num_heads=5, num_layers=3)
    return gh.LanguageModel(config).eval()


class Own(nn.Module):
    """Attention with two heads of one dimension each, whose values are its input."""

    def __init__(self, before=None):
        super().__init__()
        self.before = nn.Identity() if before is None else before
        self.output = nn.Linear(2, 2)

    def forward(self, x):
        heads = x.unflatten(-1, (2, 1)).transpose(1, 2)
        made = nn.functional.scaled_dot_product_attention(0 * heads, heads, heads)
        return self.output(self.before(made.transpose(1, 2).flatten(2)))


def by_hand(before=None):
    layer = Own(before)
    with torch.no_grad():
        layer.output.weight.copy_(torch.tensor([[3.0, 0.0], [4.0, -5.0]]))
        layer.output.bias.copy_(torch.tensor([0.0, 2.0]))
    return layer


def test_a_token_is_worked_out_by_hand():
    layer = by_hand()
    # Heads 2 and 1 write 2·(3, 4) and 1·(0, −5); with the bias (0, 2) the output is (6, 5).
    with gh.head_writes(layer) as writes:
        output = layer(torch.tensor([[[2.0, 1.0]]]))
    assert output.flatten().tolist() == [6.0, 5.0]
    (call,) = writes[""]
    assert call.norm.flatten().tolist() == [10.0, 5.0]
    torch.testing.assert_close(call.share.flatten(), torch.tensor([76 / 61, -25 / 61]))
    torch.testing.assert_close(call.bias_share.flatten(), torch.tensor([10 / 61]))
    torch.testing.assert_close(call.output_norm.flatten(), torch.tensor([61.0]).sqrt())


def test_an_output_of_0_has_shares_of_0():
    layer = by_hand()
    nn.init.zeros_(layer.output.bias)
    with gh.head_writes(layer) as writes:
        layer(torch.zeros(1, 3, 2))
    assert not writes[""][0].share.any()
    assert not writes[""][0].norm.any()


def test_writes_are_products_of_the_context_and_the_projection():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="context") as seen:
        expected = model(TOKENS)
    with torch.no_grad(), gh.head_writes(model) as writes:
        assert torch.equal(model(TOKENS), expected)
    assert list(writes) == list(seen)
    for name, (call,) in writes.items():
        output, context = model.get_submodule(name).output, seen[name].context
        W = output.weight.unflatten(1, (5, 4))
        parts = torch.stack([context[:, head] @ W[:, head].T for head in range(5)], 1)
        total = parts.sum(1) + output.bias
        torch.testing.assert_close(call.norm, parts.norm(dim=-1))
        shares = (parts * total[:, None]).sum(-1) / (total * total).sum(-1)[:, None]
        torch.testing.assert_close(call.share, shares)
        torch.testing.assert_close(call.share.sum(1) + call.bias_share, torch.ones(2, 7))


def encoder():
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(15, 3, 17, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def gpt2():
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(3)
    config = GPT2Config(vocab_size=11, n_embd=15, n_layer=2, n_head=3, bos_token_id=1)
    return GPT2Model(config).eval()


def bert():
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    small = {"hidden_size": 15, "num_attention_heads": 3, "intermediate_size": 17}
    return BertModel(BertConfig(vocab_size=11, num_hidden_layers=2, **small)).eval()


def llama():
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(3)
    small = {"hidden_size": 18, "num_attention_heads": 3, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=11, num_hidden_layers=2, intermediate_size=17, **small)
    return LlamaModel(config).eval()


def run(model):
    width = 15
    given = torch.randn(2, 7, width, generator=torch.Generator().manual_seed(5))
    return model(given if isinstance(model, nn.TransformerEncoder) else TOKENS)


@pytest.mark.parametrize(
    ("build", "projection"),
    [
        (language_model, "blocks.0.attention.output"),
        (gpt2, "h.0.attn.c_proj"),
        (bert, "encoder.layer.0.attention.output.dense"),
        (llama, "layers.0.self_attn.o_proj"),
        (encoder, "layers.0.self_attn"),
    ],
)
def test_what_a_head_writes_is_what_goes_without_it(build, projection):
    model = build()
    made = []

    def note(_, __, output):
        made.append(output[0] if isinstance(output, tuple) else output)

    def projected():
        made.clear()
        hook = model.get_submodule(projection).register_forward_hook(note)
        run(model)
        hook.remove()
        return made[0]

    with torch.no_grad():
        with gh.head_writes(model) as writes:
            run(model)
        name = next(iter(writes))
        whole = projected()
        for head in range(writes[name][0].norm.shape[1]):
            with gh.ablate(model, {name: [head]}):
                rest = projected()
            norm = (whole - rest).norm(dim=-1)
            torch.testing.assert_close(writes[name][0].norm[:, head], norm, atol=1e-6, rtol=1e-4)


def test_layers_that_share_an_attention_have_a_call_each():
    from transformers import AlbertConfig, AlbertModel

    small = {"hidden_size": 15, "num_attention_heads": 3, "intermediate_size": 17}
    config = AlbertConfig(vocab_size=11, embedding_size=7, num_hidden_layers=3, **small)
    model = AlbertModel(config).eval()
    with torch.no_grad(), gh.head_writes(model) as writes:
        model(TOKENS)
    ((name, calls),) = writes.items()
    assert (name in dict(model.named_modules()), len(calls)) == (True, 3)
    assert not torch.equal(calls[0].norm, calls[1].norm)


class Adapted(nn.Module):
    """A projection with a low-rank adapter beside it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.low = base, nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.base(x) + self.low(x)


def test_a_projection_with_an_adapter_counts_as_a_whole():
    layer, plain = by_hand(), by_hand()
    layer.output = Adapted(layer.output)
    with torch.no_grad():
        plain.output.weight += layer.output.low.weight
    x = torch.rand(2, 5, 2)
    with gh.head_writes(layer) as writes:
        layer(x)
    with gh.head_writes(plain) as expected:
        plain(x)
    torch.testing.assert_close(writes[""][0].norm, expected[""][0].norm)
    torch.testing.assert_close(writes[""][0].share, expected[""][0].share)


def test_a_norm_before_the_projection_is_linear_at_its_scale():
    layer = by_hand(nn.RMSNorm(2, elementwise_affine=False))
    with gh.head_writes(layer) as writes:
        # Of equal tokens, heads give 3 and 1; their root mean square is √5.
        layer(torch.tensor([[[3.0, 1.0]] * 3]))
    (call,) = writes[""]
    torch.testing.assert_close(call.norm[0], torch.tensor([[15.0] * 3, [5.0] * 3]) / 5**0.5)
    torch.testing.assert_close(call.share.sum(-2) + call.bias_share, torch.ones(1, 3))


class Squared(nn.Module):
    """A projection that is none."""

    def forward(self, x):
        return x * x


def test_heads_that_go_elsewhere_are_refused():
    layer = by_hand(Squared())
    with (
        pytest.raises(UnseenError, match="feed only a linear projection, but the heads of ''"),
        gh.head_writes(layer),
    ):
        layer(torch.rand(1, 5, 2))


class Parallel(nn.Module):
    """A block whose attention and feed-forward read the same, and are added first."""

    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = by_hand(), nn.Linear(2, 2)

    def forward(self, x):
        return x + (self.attention(x) + torch.relu(self.feed_forward(x)))


def test_what_another_module_adds_is_not_written_by_heads():
    block, x = Parallel(), torch.rand(2, 5, 2)
    with torch.no_grad(), gh.head_writes(block) as writes:
        block(x)
    with torch.no_grad(), gh.head_writes(block.attention) as alone:
        block.attention(x)
    torch.testing.assert_close(writes["attention"][0].share, alone[""][0].share)
    torch.testing.assert_close(writes["attention"][0].output_norm, alone[""][0].output_norm)


def test_a_text_that_is_read_token_by_token_has_a_call_each():
    model = language_model()
    with torch.no_grad(), gh.head_writes(model) as whole:
        model(TOKENS[:1])
    cache = model.new_cache()
    with torch.no_grad(), gh.head_writes(model) as writes:
        model(TOKENS[:1, :5], cache=cache)
        for at in (5, 6):
            model(TOKENS[:1, at : at + 1], cache=cache)
    for name, calls in writes.items():
        norm = torch.cat([call.norm for call in calls], -1)
        torch.testing.assert_close(norm, whole[name][0].norm, atol=1e-5, rtol=1e-4)


def test_what_is_no_model_or_compiled_is_refused():
    with pytest.raises(TypeError, match="needs a model, got int"), gh.head_writes(3):  # type: ignore[arg-type]
        pass
    with (
        pytest.raises(ValueError, match=r"from before torch.compile"),
        gh.head_writes(torch.compile(by_hand(), backend="eager")),  # type: ignore[arg-type]
    ):
        pass
    with pytest.raises(UnseenError, match=r"watch"), gh.head_writes(by_hand()):
        pass


def test_layers_are_chosen_by_pattern_and_hooks_are_gone():
    model = language_model()
    with torch.no_grad(), gh.head_writes(model, layers="blocks.1*") as writes:
        model(TOKENS)
    assert list(writes) == ["blocks.1.attention"]
    assert not any(module._forward_hooks for module in model.modules())
