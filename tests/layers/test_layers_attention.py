"""Multi-head attention equals PyTorch's, every rung of the ladder, and its own steps."""

import copy
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead import ladder
from layers.torch_names import loud

BATCH, QUERIES, KEYS, HEADS, HEAD_DIM = 2, 5, 7, 3, 11
D_MODEL = HEADS * HEAD_DIM


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


INPUTS = {
    "self": ((QUERIES, D_MODEL),),
    "cross": ((QUERIES, D_MODEL), (KEYS, D_MODEL)),
    "three widths": ((QUERIES, D_MODEL), (KEYS, 13), (KEYS, 17)),
}


def repeated(layer, group):
    """The same layer, with a key and value head for each query head."""
    heads, dim = layer.num_heads, layer.head_dim
    whole = gh.MultiHeadAttention(layer.d_model, heads, head_dim=dim, rotary=layer.rotary).double()
    with torch.no_grad():
        for number, (to, of) in enumerate(
            zip(whole.projections.maps(), layer.projections.maps(), strict=True)
        ):
            for mine, theirs in zip(to, of, strict=True):
                rows = theirs.unflatten(0, (-1, dim))
                mine.copy_((rows.repeat_interleave(group, 0) if number else rows).flatten(0, 1))
    whole.output.load_state_dict(layer.output.state_dict())
    return whole


class TestEqualsPyTorchs:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("kind", INPUTS)
    @pytest.mark.parametrize("hidden", ["nothing", "padding", "later", "both"])
    def test_in_value_and_gradient(self, kind, hidden, bias):
        given = [randn(BATCH, *shape) for shape in INPUTS[kind]]
        query, key, value = (*given, *given[-1:] * (3 - len(given)))
        widths = {"kdim": key.shape[-1], "vdim": value.shape[-1]}
        module = loud(nn.MultiheadAttention(D_MODEL, HEADS, bias=bias, batch_first=True, **widths))
        layer = gh.MultiHeadAttention.from_module(module)
        keys, masks, theirs = key.shape[1], [], {}
        if hidden in ("padding", "both"):
            lengths = torch.tensor([keys, 3])
            masks.append(gh.padding(lengths))
            theirs["key_padding_mask"] = torch.arange(keys) >= lengths[:, None]
        if hidden in ("later", "both"):
            masks.append(gh.causal())
            later = torch.ones(QUERIES, keys).triu(1 + keys - QUERIES)
            theirs["attn_mask"] = later.bool()
        mask = None if not masks else masks[0] if len(masks) == 1 else masks[0] & masks[1]

        expected, weights = module(query, key, value, **theirs, average_attn_weights=False)
        found = layer(*given, mask=mask)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(layer.trace(*given, mask=mask).weights, weights)
        upstream = torch.randn_like(expected)
        stacks = layer.projections.stacks
        mine = [stack.weight for stack in stacks], [stack.bias for stack in stacks]
        apart = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
        theirs = [module.in_proj_weight, *apart], [module.in_proj_bias]
        torch.testing.assert_close(
            self.gradients(found, upstream, [*given, *layer.output.parameters()], *mine),
            self.gradients(expected, upstream, [*given, *module.out_proj.parameters()], *theirs),
        )

    @staticmethod
    def gradients(result, upstream, leaves, *stacked):
        """By each leaf, and by what is stacked in other parts, joined."""
        parts = [[x for x in parts if x is not None] for parts in stacked]
        found = list(torch.autograd.grad(result, leaves, upstream, retain_graph=True))
        for part in filter(None, parts):
            by_part = torch.autograd.grad(result, part, upstream, retain_graph=True)
            found.append(torch.cat([x.flatten() for x in by_part]))
        return found


class TestFromModule:
    def test_keeps_every_digit_and_takes_copies(self):
        module = loud(nn.MultiheadAttention(D_MODEL, HEADS))
        layer = gh.MultiHeadAttention.from_module(module)
        assert torch.equal(layer.projections.stacks[0].weight, module.in_proj_weight)
        assert torch.equal(layer.output.weight, module.out_proj.weight)
        before = layer.output.weight.clone()
        nn.init.zeros_(module.out_proj.weight)
        assert torch.equal(layer.output.weight, before)
        assert not layer.training
        assert gh.MultiHeadAttention.from_module(module.train()).training
        assert all(parameter.requires_grad for parameter in layer.parameters())

    def test_takes_the_dropout_of_the_weights(self):
        assert (
            gh.MultiHeadAttention.from_module(nn.MultiheadAttention(6, 2, 0.25)).attention.dropout
            == 0.25
        )

    @pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
    def test_refuses_keys_of_its_own(self, options):
        with pytest.raises(ValueError, match="without add_bias_kv and add_zero_attn"):
            gh.MultiHeadAttention.from_module(nn.MultiheadAttention(6, 2, **options))

    def test_refuses_another_module(self):
        with pytest.raises(
            TypeError, match="needs an nn.MultiheadAttention, a class of the ladder.*got Linear"
        ):
            gh.MultiHeadAttention.from_module(nn.Linear(3, 3))


class TestEqualsEveryRung:
    @pytest.mark.parametrize("qkv_bias", [False, True])
    @pytest.mark.parametrize(
        "build",
        [
            lambda bias: ladder.CausalAttention(5, HEAD_DIM, 13, 0.0, bias),
            lambda bias: ladder.MultiHeadAttentionWrapper(5, HEAD_DIM, 13, 0.0, HEADS, bias),
            lambda bias: ladder.MultiHeadAttention(5, D_MODEL, 13, 0.0, HEADS, bias),
        ],
        ids=["rung 4", "rung 5", "rung 6"],
    )
    def test_of_batches(self, build, qkv_bias):
        rung, x = loud(build(qkv_bias)), randn(BATCH, KEYS, 5)
        layer = gh.MultiHeadAttention.from_module(rung)
        torch.testing.assert_close(layer(x), rung(x))

    @pytest.mark.parametrize(
        "build",
        [
            lambda: ladder.SelfAttentionV1(5, HEAD_DIM),
            lambda: ladder.SelfAttentionV2(5, HEAD_DIM),
            lambda: ladder.SelfAttentionV2(5, HEAD_DIM, qkv_bias=True),
        ],
        ids=["rung 2", "rung 3", "rung 3 with biases"],
    )
    def test_of_one_sentence(self, build):
        rung, x = loud(build()), randn(KEYS, 5)
        layer = gh.MultiHeadAttention.from_module(rung)
        torch.testing.assert_close(layer(x[None])[0], rung(x))

    def test_rung_7_across_three_widths(self):
        rung = loud(ladder.EncoderMultiHeadAttention(D_MODEL, HEADS, 0.0, d_input=(5, 13, 17)))
        X_q, X_k, X_v = randn(BATCH, QUERIES, 5), randn(BATCH, KEYS, 13), randn(BATCH, KEYS, 17)
        layer = gh.MultiHeadAttention.from_module(rung)
        H, A = rung(X_q, X_k, X_v)
        torch.testing.assert_close(layer(X_q, X_k, X_v), H)
        torch.testing.assert_close(layer.trace(X_q, X_k, X_v).weights, A)
        torch.testing.assert_close(layer.weights(X_q, X_k).dense(), A)

    def test_rung_7_across_two_widths(self):
        rung = loud(ladder.EncoderMultiHeadAttention(D_MODEL, HEADS, 0.0, d_input=(5, 13, 13)))
        layer, X_q, X_k = gh.MultiHeadAttention.from_module(rung), randn(2, 5, 5), randn(2, 7, 13)
        torch.testing.assert_close(layer(X_q, X_k), rung(X_q, X_k, X_k)[0])

    def test_takes_the_dropout_of_the_rung(self):
        for rung in (
            ladder.CausalAttention(3, 2, 5, 0.25),
            ladder.MultiHeadAttentionWrapper(3, 2, 5, 0.25, 3),
            ladder.MultiHeadAttention(3, 6, 5, 0.25, 3),
            ladder.EncoderMultiHeadAttention(6, 3, 0.25),
        ):
            assert gh.MultiHeadAttention.from_module(rung).attention.dropout == 0.25


class TestHeads:
    @pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
    @pytest.mark.parametrize("crosses", [False, True])
    def test_that_share_keys_equal_repeated_ones(self, num_kv_heads, crosses):
        layer = loud(gh.MultiHeadAttention(6 * 5, 6, num_kv_heads))
        x, others = randn(BATCH, QUERIES, 30), randn(BATCH, KEYS, 30)
        given = (x, others) if crosses else (x,)
        torch.testing.assert_close(layer(*given), repeated(layer, 6 // num_kv_heads)(*given))
        assert layer.heads(*given)[1].shape[1] == num_kv_heads

    @pytest.mark.parametrize("head_dim", [1, 5, 7])
    def test_of_another_width_by_hand(self, head_dim):
        d_model, heads = 7, 3
        layer, x = loud(gh.MultiHeadAttention(d_model, heads, head_dim=head_dim)), randn(2, 5, 7)
        contexts = []
        for head in range(heads):
            rows = slice(head * head_dim, (head + 1) * head_dim)
            q, k, v = (x @ weight[rows].T + bias[rows] for weight, bias in layer.projections.maps())
            contexts.append(torch.softmax(q @ k.mT / math.sqrt(head_dim), dim=-1) @ v)
        context = torch.cat(contexts, dim=-1)
        torch.testing.assert_close(layer(x), context @ layer.output.weight.T + layer.output.bias)
        assert layer.output.weight.shape == (d_model, heads * head_dim)

    @pytest.mark.parametrize(("kind", "products"), [("self", 1), ("cross", 2), ("three widths", 3)])
    def test_are_made_by_one_product_for_each_input(self, kind, products, monkeypatch):
        given, made = [randn(BATCH, *shape) for shape in INPUTS[kind]], []
        widths = tuple(x.shape[-1] for x in (*given, *given[-1:] * (3 - len(given))))
        layer = loud(gh.MultiHeadAttention(D_MODEL, HEADS, d_input=widths))

        def counted(*inputs):
            made.append(inputs)
            return nn.functional.linear(*inputs)

        monkeypatch.setattr(
            "glasshead.layers.multi_head_attention.F", SimpleNamespace(linear=counted)
        )
        layer.heads(*given)
        assert len(made) == products

    def test_of_a_rotary_are_turned_where_they_stand(self):
        rotary = gh.Rotary(HEAD_DIM + 1)
        layer = loud(gh.MultiHeadAttention(D_MODEL, HEADS, head_dim=HEAD_DIM + 1, rotary=rotary))
        x = randn(BATCH, QUERIES, D_MODEL)
        q, k, v = layer.heads(x)
        layer.rotary = None
        plain = layer.heads(x)
        torch.testing.assert_close((q, k, v), (rotary(plain[0]), rotary(plain[1]), plain[2]))


LAYERS = {
    "self": ({"attention": gh.Attention(mask=gh.causal())}, ((QUERIES, 12),)),
    "turned": (
        {"rotary": gh.Rotary(4), "num_kv_heads": 1, "attention": gh.Attention(softcap=2.0)},
        ((QUERIES, 12),),
    ),
    "cross": ({"d_input": (5, 13, 17)}, ((QUERIES, 5), (KEYS, 13), (KEYS, 17))),
}


class TestQueryKeyNorm:
    @pytest.mark.parametrize("joined", [False, True])
    @pytest.mark.parametrize("crosses", [False, True])
    def test_by_its_formula(self, joined, crosses):
        widths = [HEAD_DIM * (heads if joined else 1) for heads in (6, 2)]
        norm = gh.QueryKeyNorm(*map(nn.RMSNorm, widths), joined=joined)
        rotary = gh.Rotary(HEAD_DIM, 4)
        layer = loud(gh.MultiHeadAttention(13, 6, 2, HEAD_DIM, rotary=rotary, query_key_norm=norm))
        x, source = randn(BATCH, QUERIES, 13), randn(BATCH, KEYS if crosses else QUERIES, 13)
        source = source if crosses else x
        (W_q, b_q), (W_k, b_k), (W_v, b_v) = layer.projections.maps()
        heads = []
        for y, W, b, own in ((x, W_q, b_q, norm.query), (source, W_k, b_k, norm.key)):
            flat = y @ W.T + b  # [batch, length, heads · head_dim]
            groups = flat if joined else flat.unflatten(-1, (-1, HEAD_DIM))
            mean = groups.square().mean(-1, keepdim=True)
            eps = torch.finfo(torch.float64).eps
            groups = groups / (mean + eps).sqrt() * own.weight
            split = groups.reshape(*flat.shape[:2], -1, HEAD_DIM).transpose(1, 2)
            heads.append(rotary(split))
        v = (source @ W_v.T + b_v).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
        context = gh.Attention()(*heads, v).transpose(1, 2).flatten(2)
        given = (x, source) if crosses else (x,)
        torch.testing.assert_close(layer(*given), layer.output(context))
        found = layer.weights(*given)[:]
        torch.testing.assert_close(found, layer.trace(*given).weights)

    @pytest.mark.parametrize("joined", [False, True])
    def test_with_caches(self, joined):
        width = HEADS * HEAD_DIM if joined else HEAD_DIM
        norm = gh.QueryKeyNorm(nn.LayerNorm(width), nn.LayerNorm(width), joined=joined)
        options = {"query_key_norm": norm, "attention": gh.Attention(mask=gh.causal())}
        layer, x = loud(gh.MultiHeadAttention(D_MODEL, HEADS, **options)), randn(2, 7, D_MODEL)
        cache = gh.KeyValueCache()
        parts = [layer(part, cache=cache) for part in x.split([3, 1, 3], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), layer(x))
        layer.attention.mask = None
        cache, source = gh.KeyValueCache(), randn(2, 5, D_MODEL)
        parts = [layer(part, source, cache=cache) for part in x.split([3, 4], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), layer(x, source))


class TestSteps:
    @pytest.mark.parametrize("kind", LAYERS)
    def test_trace_observe_and_weights_agree_with_the_call(self, kind):
        options, shapes = LAYERS[kind]
        layer = loud(gh.MultiHeadAttention(12, 3, **options))
        given = [torch.randn(BATCH, *shape).double() for shape in shapes]
        keys = given[-1].shape[1]
        call = {"mask": gh.padding([keys, 3]), "bias": torch.randn(3, QUERIES, keys).double()}
        steps = layer.trace(*given, **call)
        assert steps.weights.shape == (BATCH, 3, QUERIES, keys)
        torch.testing.assert_close(
            layer(*given, **call), layer.output(steps.context.transpose(1, 2).flatten(2))
        )
        seen = layer.observe(*given, statistics=[gh.Entropy()], **call)
        torch.testing.assert_close(seen.context, steps.context)
        weights = steps.weights
        torch.testing.assert_close(seen.entropy, -torch.special.xlogy(weights, weights).sum(-1))
        torch.testing.assert_close(layer.weights(*given[:2], **call).dense(), weights)

    def test_a_call_adds_to_the_rule(self):
        layer, x = loud(gh.MultiHeadAttention(12, 3)), randn(BATCH, QUERIES, 12)
        both = copy.deepcopy(layer)
        both.attention = gh.Attention(mask=gh.causal(), bias=gh.ALiBi(3))
        torch.testing.assert_close(both(x), layer(x, mask=gh.causal(), bias=gh.ALiBi(3)))
        layer.attention = gh.Attention(mask=gh.causal())
        torch.testing.assert_close(layer(x, bias=gh.ALiBi(3)), both(x))


class TestErrors:
    @pytest.mark.parametrize(
        ("build", "sentence"),
        [
            (lambda: gh.MultiHeadAttention(12, 5), "num_heads.*divide d_model=12, got 5"),
            (lambda: gh.MultiHeadAttention(12, 6, 4), r"num_kv_heads.*divide num_heads=6.*got 4"),
            (lambda: gh.MultiHeadAttention(0, 1), r"d_model.*at least 1, got 0"),
            (lambda: gh.MultiHeadAttention(12, 0), r"num_heads.*at least 1, got 0"),
            (lambda: gh.MultiHeadAttention(12, 3, 0), r"num_kv_heads.*at least 1, got 0"),
            (lambda: gh.MultiHeadAttention(12, 3, head_dim=0), r"head_dim.*at least 1, got 0"),
            (
                lambda: gh.MultiHeadAttention(12, 3, d_input=(5, 7)),
                r"d_input.*\(5, 7\)",
            ),
            (lambda: gh.MultiHeadAttention(12, 3, d_input=(5, 0, 7)), "d_input.*at least 1.*got 0"),
        ],
    )
    def test_numbers_that_do_not_fit(self, build, sentence):
        with pytest.raises(ValueError, match=sentence):
            build()

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"d_model": 12.0}, r"d_model must be a whole number.*got 12\.0"),
            ({"num_heads": True}, "num_heads must be a whole number.*got True"),
            ({"num_kv_heads": "1"}, "num_kv_heads must be a whole number.*got str '1'"),
            ({"d_input": 5.0}, r"d_input must be a whole number.*got 5\.0"),
            ({"attention": "causal"}, "attention must be an instance of Attention, got str"),
            ({"rotary": 10_000}, "rotary must be an instance of Rotary, got int"),
        ],
    )
    def test_arguments_of_other_types(self, options, sentence):
        with pytest.raises(TypeError, match=sentence):
            gh.MultiHeadAttention(**{"d_model": 12, "num_heads": 3, **options})

    @pytest.mark.parametrize(
        ("name", "shapes"),
        [
            ("query", [(2, 5, 11), (2, 7, 13), (2, 7, 17)]),
            ("query", [(5, 5), (2, 7, 13), (2, 7, 17)]),
            ("key", [(2, 5, 5), (2, 7, 11), (2, 7, 17)]),
            ("key", [(2, 5, 5), (1, 2, 7, 13), (2, 7, 17)]),
            ("value", [(2, 5, 5), (2, 7, 13), (2, 7, 11)]),
        ],
    )
    def test_inputs_of_another_shape(self, name, shapes):
        layer = gh.MultiHeadAttention(12, 3, d_input=(5, 13, 17))
        width = {"query": 5, "key": 13, "value": 17}[name]
        with pytest.raises(ValueError, match=rf"{name} must be \[batch, length, {width}\], got \["):
            layer(*map(torch.ones, shapes))

    def test_inputs_of_another_type(self):
        layer = gh.MultiHeadAttention(6, 2)
        with pytest.raises(TypeError, match=r"query must be a tensor.*got torch.int64\. Embed the"):
            layer(torch.ones(2, 5, 6).long())
        with pytest.raises(TypeError, match="key must be a tensor.*got list"):
            layer(torch.ones(2, 5, 6), [1.0])

    def test_inputs_of_other_batches_or_lengths(self):
        layer = gh.MultiHeadAttention(6, 2)
        with pytest.raises(ValueError, match="must have the same batch axes"):
            layer(torch.ones(2, 5, 6), torch.ones(3, 7, 6))
        with pytest.raises(ValueError, match="each key must have one value, got 7 keys and 11"):
            layer(torch.ones(2, 5, 6), torch.ones(2, 7, 6), torch.ones(2, 11, 6))

    def test_numbers_of_numpy_are_numbers(self):
        layer = gh.MultiHeadAttention(np.int64(12), np.int32(6), np.int64(3))
        assert layer(torch.ones(2, 5, 12)).shape == (2, 5, 12)
        assert type(layer.num_kv_heads) is type(layer.d_model) is int


def recipes():
    rule = gh.Attention(mask=gh.causal(), bias=gh.RelativeBias(6, buckets=4, max_distance=5))
    return {
        "plain": gh.MultiHeadAttention(12, 3),
        "learned rule": gh.MultiHeadAttention(12, 6, 2, attention=rule, bias=False),
        "turned": gh.MultiHeadAttention(12, 3, rotary=gh.Rotary(4)),
    }


@pytest.mark.parametrize("recipe", recipes())
class TestCitizen:
    def test_copies_pickles_and_loads(self, recipe):
        layer, x = recipes()[recipe], torch.randn(BATCH, QUERIES, 12)
        expected = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), expected)
        assert torch.equal(pickle.loads(pickle.dumps(layer))(x), expected)
        fresh = recipes()[recipe]
        assert not torch.equal(fresh(x), expected)
        fresh.load_state_dict(layer.state_dict())
        assert torch.equal(fresh(x), expected)

    def test_a_copy_learns_alone(self, recipe):
        layer, x = recipes()[recipe], torch.randn(BATCH, QUERIES, 12)
        twin, expected = copy.deepcopy(layer), layer(x)
        for parameter in twin.parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(layer(x), expected)
        assert not twin(x).any()

    def test_float64(self, recipe):
        layer, x = recipes()[recipe], torch.randn(BATCH, QUERIES, 12)
        found = layer(x)
        exact = layer.double()(x.double())
        assert exact.dtype == torch.float64
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)

    def test_autocast_runs_in_half_precision(self, recipe):
        layer, x = recipes()[recipe], torch.randn(BATCH, QUERIES, 12)
        expected = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            found = layer(x)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=3e-2, atol=3e-2)
        found.float().sum().backward()

    def test_learns_after_it_was_looked_at_in_inference_mode(self, recipe):
        layer, x = recipes()[recipe], torch.randn(BATCH, QUERIES, 12)
        with torch.inference_mode():
            expected = layer(x)
        found = layer(x)
        found.sum().backward()
        torch.testing.assert_close(found, expected)
        assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("call", [{}, {"key": torch.randn(BATCH, KEYS, 12)}], ids=["self", "cross"])
def test_dropout_acts_in_training_only(call):
    layer = gh.MultiHeadAttention(12, 3, attention=gh.Attention(dropout=0.5))
    x = torch.randn(BATCH, QUERIES, 12)
    assert not torch.equal(layer(x, **call), layer(x, **call))
    layer.eval()
    assert torch.equal(layer(x, **call), layer(x, **call))


def test_it_reads_as_what_it_is():
    assert "12, num_heads=6, num_kv_heads=3, head_dim=2" in repr(gh.MultiHeadAttention(12, 6, 3))
    assert "12, num_heads=6, head_dim=5" in repr(gh.MultiHeadAttention(12, 6, head_dim=5))
