"""Longformer and the encoder of LED: weights of a band are seen at the keys that they belong to."""

import math

import pytest
import torch

import glasshead as gh
import watched_models as models
from watching.torch.explicit import STATISTICS, check, nothing_is_open

pytest.importorskip("transformers")

VOCABULARY, HEADS, WIDTH = 53, 3, 15
# Windows of 4 and 6 tokens, 2 and 3 on either side, take texts of a multiple of both.
WINDOWS, LENGTH = [4, 6], 12
LONGFORMER = "encoder.layer.{}.attention.self"
LED = "encoder.layers.{}.self_attn.longformer_self_attn"
NAMES = {"longformer": LONGFORMER, "led": LED}


def longformer(**changes):
    from transformers import LongformerConfig, LongformerModel

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    sizes |= {"intermediate_size": 7, "vocab_size": VOCABULARY, "attention_window": WINDOWS}
    return LongformerModel(LongformerConfig(**sizes | changes, max_position_embeddings=512))


def led(**changes):
    from transformers import LEDConfig, LEDModel

    sizes = {"vocab_size": VOCABULARY, "d_model": WIDTH, "attention_window": WINDOWS}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": 17}
        sizes[f"max_{side}_position_embeddings"] = 32
    return LEDModel(LEDConfig(**sizes | changes))


BUILD = {"longformer": longformer, "led": led}


def built(name, dtype=torch.float32, **changes):
    """A model whose weights attend sharply."""
    torch.manual_seed(5)
    model = BUILD[name](**changes).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.4)
    return model


def given_to(name, *, on_all=(), padded=False, length=LENGTH):
    """Two texts, the second of which may be padded; global tokens by text and place."""
    torch.manual_seed(3)
    tokens = torch.randint(3, VOCABULARY, (2, length))
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if padded:
        given["attention_mask"][1, 7:] = 0
    if on_all:
        given["global_attention_mask"] = torch.zeros_like(tokens)
        for place in on_all:
            given["global_attention_mask"][place] = 1
    return given | ({"decoder_input_ids": tokens[:, :5]} if name == "led" else {})


# The first text has two global tokens, the second one.
SOME = ((0, 0), (0, 7), (1, 3))


def weights_of(name, model, given, layer):
    """The weights by what the model returns, key by key: `[batch, heads, tokens, tokens]`."""
    returned = model(**given, output_attentions=True)
    prefix = "encoder_" if name == "led" else ""
    band = returned[f"{prefix}attentions"][layer]
    on_all = given.get("global_attention_mask", torch.zeros_like(given["input_ids"]))
    places = [text.nonzero().flatten().tolist() for text in on_all]
    count = max(map(len, places))
    *_, length, size = band.shape
    width = (size - count) // 2
    assert width == WINDOWS[layer] // 2
    dense = torch.zeros(*band.shape[:-1], length, dtype=band.dtype)
    for text, own in enumerate(places):
        for query in range(length):
            for place in range(2 * width + 1):
                key = query - width + place
                if 0 <= key < length and key not in own:
                    dense[text, :, query, key] = band[text, :, query, count + place]
            for number, key in enumerate(own):
                dense[text, :, query, key] = band[text, :, query, number]
        for number, query in enumerate(own):
            of_global = returned[f"{prefix}global_attentions"]
            dense[text, :, query] = of_global[layer][text, :, :length, number]
    return dense


def seen_of(model, given, statistics=STATISTICS, **asked):
    """What a watch sees of a run that gives, bit for bit, what it gives when nobody watches."""
    alone = model(**given)[0]
    with gh.watch(model, statistics, **asked) as seen:
        watched = model(**given)[0]
    assert torch.equal(alone, watched)
    assert nothing_is_open()
    return seen


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("on_all", [(), SOME], ids=["band", "global"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_seen_is_what_the_model_returns(name, on_all, padded, mode):
    model, given = built(name), given_to(name, on_all=on_all, padded=padded)
    with mode():
        seen = seen_of(model, given, layers="encoder.*")
        assert list(seen) == [NAMES[name].format(layer) for layer in range(2)]
        for layer, watched in enumerate(seen.values()):
            call = watched[-1]
            expected = weights_of(name, model, given, layer).detach()
            check(call, expected)
            beside = " next to global tokens" if on_all else ""
            assert call.by_hand == (
                f"queries · keys, a band of {WINDOWS[layer] + 1} keys{beside}, softmax, · values"
            )
            assert (call.position, call.crossing, call.keys) == (0, False, LENGTH)
            if padded:
                assert call.real.equal(given["attention_mask"].bool())
            else:
                assert call.real is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(name, dtype):
    model, given = built(name, dtype), given_to(name, on_all=SOME, padded=True)
    with torch.no_grad():
        seen = seen_of(model, given, layers="encoder.*")
        expected = weights_of(name, model, given, 0)
    tolerance = 1e-5 if dtype == torch.float64 else 1e-2
    check(seen[NAMES[name].format(0)], expected.double(), tolerance=tolerance)


@pytest.mark.parametrize("on_all", [(), SOME], ids=["band", "global"])
def test_tokens_that_fill_up_the_last_window_are_padding(on_all):
    model, given = built("longformer"), given_to("longformer", on_all=on_all, length=11)
    with torch.no_grad():
        seen = seen_of(model, given)
        expected = weights_of("longformer", model, given, 1)
    call = seen[LONGFORMER.format(1)][-1]
    assert call.shape == (2, HEADS, LENGTH)
    assert call.real.equal((torch.arange(LENGTH) < 11).expand(2, -1))
    torch.testing.assert_close(call.received[..., :11], expected.sum(-2), rtol=1e-5, atol=1e-5)
    assert call.received[..., 11:].eq(0).all()
    assert call.top.keys[..., 11, :].eq(-1).all()


def test_statistics_of_a_long_text():
    """Longer than what an engine computes at once."""
    statistics = {
        "far": gh.DistanceHistogram([0, 3, math.inf]),
        "best": gh.ArgMax(),
        "received": gh.Received(),
        "largest": gh.MaxScore(),
    }
    model, given = built("longformer"), given_to("longformer", on_all=((1, 5),), length=444)
    with torch.no_grad():
        seen = seen_of(model, given, statistics)
        expected = weights_of("longformer", model, given, 0)
    call = seen[LONGFORMER.format(0)][-1]
    assert call.far[0, :, 1].eq(0).all()
    assert call.far[1, :, 1].gt(0).all()
    assert call.best.equal(expected.argmax(-1))
    torch.testing.assert_close(call.received, expected.sum(-2), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
@pytest.mark.parametrize("reentrant", [None, True, False])
def test_gradients_are_those_of_a_run_alone(reentrant):
    model, given = built("longformer"), given_to("longformer", on_all=SOME)
    model.train(reentrant is not None)
    if reentrant is not None:
        kind = {"use_reentrant": reentrant}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kind)

    def gradients():
        torch.manual_seed(7)
        model.zero_grad()
        model(**given)[0].square().sum().backward()
        return [one.grad.clone() for one in model.parameters() if one.grad is not None]

    alone = gradients()
    with gh.watch(model, [gh.Entropy()]) as seen:
        watched = gradients()
    assert all(map(torch.equal, alone, watched))
    assert [len(watched) for watched in seen.values()] == [1, 1]


def test_a_dropout_is_told_and_statistics_are_of_the_softmax():
    dropped = {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.0}
    model, given = built("longformer", **dropped), given_to("longformer", on_all=SOME)
    with torch.no_grad():
        expected = weights_of("longformer", model, given, 0)
        model.train()
        torch.manual_seed(11)
        alone = model(**given)[0]
        torch.manual_seed(11)
        with gh.watch(model, STATISTICS) as seen:
            assert model(**given)[0].equal(alone)
    check(seen[LONGFORMER.format(0)], expected)
    assert seen[LONGFORMER.format(0)].by_hand.endswith("softmax, a dropout, · values")


class TestWhatIsKept:
    def seen(self, **asked):
        model, given = built("longformer"), given_to("longformer", on_all=SOME, padded=True)
        with torch.no_grad():
            expected = weights_of("longformer", model, given, 1)
            seen = seen_of(model, given, (), **asked)
        return seen[LONGFORMER.format(1)], expected

    @pytest.mark.parametrize("heads", [None, [2, 0]])
    def test_the_weights(self, heads):
        watched, expected = self.seen(keep="weights", heads=heads)
        torch.testing.assert_close(watched.weights.dense(), expected, rtol=1e-5, atol=1e-5)
        row = watched.weights[1, 2, 3]
        torch.testing.assert_close(row, expected[1, 2, 3], rtol=1e-5, atol=1e-5)

    def test_their_budget_is_that_of_the_band(self):
        # Of each of 2 · 3 · 12 queries 3 numbers, its vector and its key's, band and columns;
        # of each of 2 global tokens a row.
        numbers = 2 * HEADS * (LENGTH * (3 + 2 + 2) + 2 * LENGTH)
        least = 4 * sum(numbers + 2 * HEADS * LENGTH * (size + 1) for size in WINDOWS)
        self.seen(keep="weights", budget=least + 1000)
        with pytest.warns(UserWarning, match="keep='weights' may use at most budget="):
            watched, _ = self.seen(keep="weights", budget=least - 1)
        assert not watched[0].has_weights

    def test_the_context_is_the_output_by_heads(self):
        model, given = built("longformer"), given_to("longformer", on_all=SOME)
        outputs = []
        module = model.get_submodule(LONGFORMER.format(0))
        handle = module.register_forward_hook(lambda *call: outputs.append(call[2][0]))
        with torch.no_grad(), gh.watch(model, keep="context") as seen:
            model(**given)
        handle.remove()
        context = seen[LONGFORMER.format(0)].context
        assert context.transpose(1, 2).flatten(2).equal(outputs[0])

    @pytest.mark.parametrize(
        ("keep", "sentence"),
        [
            (
                "trace",
                "keep='trace' needs attention whose queries, .* but the heads of 'encoder",
            ),
            ("gradients", "keep='gradients' needs attention whose output .* 'encoder.layer.0"),
        ],
    )
    def test_steps_and_gradients_are_refused(self, keep, sentence):
        model, given = built("longformer"), given_to("longformer")
        with pytest.raises(ValueError, match=sentence), gh.watch(model, keep=keep):
            model(**given)
        assert nothing_is_open()


class TestWhatIsRefused:
    def refused(self, model, given, kind=RuntimeError, changes=None):
        with pytest.raises(kind) as told, torch.no_grad(), gh.watch(model, [gh.Entropy()]):  # noqa: SIM117
            with gh.intervene(model, changes or {}):
                model(**given)
        assert nothing_is_open()
        return str(told.value)

    @pytest.mark.parametrize(
        "method",
        ["_sliding_chunks_matmul_attn_probs_value", "_compute_global_attn_output_from_hidden"],
    )
    def test_another_output(self, monkeypatch, method):
        model, given = built("longformer"), given_to("longformer", on_all=SOME)
        kind = type(model.get_submodule(LONGFORMER.format(0)))
        original = getattr(kind, method)

        def doubled(*inputs, **named):
            made = original(*inputs, **named)
            return (made[0] * 2, *made[1:]) if isinstance(made, tuple) else made * 2

        monkeypatch.setattr(kind, method, doubled)
        told = self.refused(model, given)
        assert "'encoder.layer.0.attention.self' gave another output. Omit it with" in told

    def test_one_more_softmax(self, monkeypatch):
        model, given = built("longformer"), given_to("longformer")
        kind = type(model.get_submodule(LONGFORMER.format(0)))
        original = kind._sliding_chunks_matmul_attn_probs_value

        def again(module, weights, *inputs):
            return original(module, weights.softmax(-1), *inputs)

        monkeypatch.setattr(kind, "_sliding_chunks_matmul_attn_probs_value", again)
        told = self.refused(model, given)
        assert "LongformerSelfAttention at 'encoder.layer.0.attention.self' lays its band" in told
        assert told.endswith(
            "differently from what is known of transformers. Omit it with layers=."
        )

    def test_interventions(self):
        model, given = built("longformer"), given_to("longformer")
        changes = {LONGFORMER.format(1): [gh.ZeroAblation(heads=[0])]}
        told = self.refused(model, given, ValueError, changes)
        assert told == (
            "intervene changes attention whose weights are a matrix, but LongformerSelfAttention "
            "has the weights of a band. Omit it."
        )


def test_layers_that_are_not_named_are_left_alone():
    model, given = built("longformer"), given_to("longformer")
    with torch.no_grad():
        assert list(seen_of(model, given, layers="encoder.layer.1")) == [LONGFORMER.format(1)]


def test_led_is_seen_as_a_whole():
    model, given = built("led"), given_to("led", padded=True)
    with torch.no_grad():
        seen = seen_of(model, given)
        with models.skipped_where_transformers_fails(IndexError):
            returned = model(**given, output_attentions=True)
    assert len(seen) == 6
    for layer in range(2):
        own = seen[f"decoder.layers.{layer}.self_attn"][-1]
        other = seen[f"decoder.layers.{layer}.encoder_attn"][-1]
        check(own, returned.decoder_attentions[layer])
        check(other, returned.cross_attentions[layer])
        assert (own.crossing, other.crossing) == (False, True)
