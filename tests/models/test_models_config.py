"""A config is plain words and numbers, all of them checked, that JSON gives back as they were."""

import dataclasses
import json
import math

import numpy as np
import pytest
from torch import nn

import glasshead as gh
from glasshead.models.layer_factory import LayerFactory
from glasshead.tasks.run_settings import assigned

NAMES = ["feed_forward", "positions", "d_hidden"]
CONFIGS = [gh.LanguageModelConfig, gh.TranslatorConfig, gh.ClassifierConfig]
every_config = pytest.mark.parametrize("kind", CONFIGS)


@every_config
class TestEveryConfig:
    def test_comes_back_from_json(self, kind):
        more = {"num_kv_heads": 2, "d_hidden": 31, "positions": "rotary", "dropout": 0.25}
        for config in (kind(vocab_size=11), kind(vocab_size=11, bias=False, **more)):
            told = json.loads(json.dumps(config.to_json()))
            assert kind.from_json(told) == config
            assert set(told) == {field.name for field in dataclasses.fields(kind)}

    def test_what_json_does_not_tell_is_as_usual(self, kind):
        assert kind.from_json({"vocab_size": 11, "d_model": 12}) == kind(vocab_size=11, d_model=12)

    def test_is_frozen(self, kind):
        config = kind(vocab_size=11)
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.d_model = 12
        assert hash(config) == hash(kind(vocab_size=11))

    def test_numbers_of_numpy_are_kept_as_numbers(self, kind):
        config = kind(vocab_size=np.int64(11), dropout=np.float64(0.25), d_hidden=np.int32(31))
        assert config == kind(vocab_size=11, dropout=0.25, d_hidden=31)
        assert kind.from_json(json.loads(json.dumps(config.to_json()))) == config

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ({"d_model": 10}, "num_heads must divide d_model=10, got 4"),
            ({"num_kv_heads": 3}, "num_kv_heads must divide num_heads=4.*got 3"),
            ({"d_model": 12, "positions": "rotary"}, "heads of an even width, got 3. "),
            ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, got 0"),
            ({"context_length": -1}, "context_length must be .* at least 1, got -1"),
            ({"num_layers": 0}, "num_layers must be .* at least 1, got 0"),
            ({"d_hidden": 0}, "d_hidden must be .* at least 1, got 0"),
            ({"dropout": 1.0}, r"dropout must be at least 0 and less than 1, got 1\.0"),
            ({"dropout": -0.1}, r"dropout must be at least .*, got -0\.1"),
            ({"dropout": math.nan}, "dropout must be a finite number, got nan"),
            ({"attention_dropout": math.inf}, "attention_dropout must be a finite number"),
            ({"positions": "rotery"}, "positions must be 'learned', .*, got 'rotery'"),
            ({"norm": "batch"}, "norm must be 'layer' or 'rms', got 'batch'"),
            ({"order": None}, "order must be 'pre', 'post', .*, got None"),
            ({"feed_forward": "silu"}, "feed_forward must be .*, got 'silu'"),
            ({"norm_eps": 0.0}, r"norm_eps must be .*, got 0\.0"),
            ({"norm_eps": math.nan}, "norm_eps must be .*, got nan"),
            ({"query_key_norm": "all"}, "query_key_norm must be 'none', 'head' or 'joined'"),
            ({"softcap": 0.0}, r"softcap must be a number above 0, got 0\.0"),
            ({"score_scale": -1.0}, r"score_scale must be a number above 0, got -1\.0"),
            (
                {"rotary_dim": 2},
                "rotary_dim needs positions='rotary', got '(learned|sinusoidal)'",
            ),
            (
                {"rotary_dim": 34, "positions": "rotary"},
                "rotary_dim must be an even number up to the width of a head, 32, got 34",
            ),
        ],
        ids=str,
    )
    def test_values_that_cannot_be(self, kind, values, sentence):
        with pytest.raises(ValueError, match=sentence):
            kind(**{"vocab_size": 11, **values})
        with pytest.raises(ValueError, match=sentence):
            kind.from_json({"vocab_size": 11, **values})

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ({"d_model": True}, "d_model must be a whole number of at least 1, got True"),
            ({"d_model": "128"}, "d_model must be a whole number of at least 1, got str '128'"),
            ({"d_model": 128.0}, r"d_model must be a whole number of at least 1, got 128\.0"),
            ({"num_layers": None}, "num_layers must be a whole number.*, got NoneType None"),
            ({"num_kv_heads": "2"}, "num_kv_heads must be a whole number.*, got str '2'"),
            ({"dropout": "0.1"}, r"dropout must be a number, got str '0\.1'"),
            ({"dropout": True}, "dropout must be a number, got True"),
            ({"bias": 1}, "bias must be true or false, got 1"),
            ({"bias": "false"}, "bias must be true or false, got 'false'"),
            ({"qkv_bias": 0}, "qkv_bias must be true or false, got 0"),
            ({"norm_eps": "1e-6"}, "norm_eps must be a number, got str '1e-6'"),
        ],
        ids=str,
    )
    def test_values_of_another_type(self, kind, values, sentence):
        with pytest.raises(TypeError, match=sentence):
            kind(**{"vocab_size": 11, **values})

    def test_names_that_are_not_there(self, kind):
        with pytest.raises(
            ValueError, match=f"{kind.__name__} must have vocab_size, which is missing"
        ):
            kind.from_json({})
        with pytest.raises(ValueError, match=r"has no 'd_modle'\. Did you mean 'd_model'\?"):
            kind.from_json({"vocab_size": 11, "d_modle": 12})
        with pytest.raises(ValueError, match="has no 'zzz'. Use one of vocab_size, context_length"):
            kind.from_json({"vocab_size": 11, "zzz": 12})

    @pytest.mark.parametrize(
        ("values", "got"), [([], "list"), (None, "null"), ("vocab_size", "str"), (11, "int")]
    )
    def test_json_that_is_no_object(self, kind, values, got):
        with pytest.raises(TypeError, match=f"must be an object of names and values, got {got}."):
            kind.from_json(values)


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        (gh.LanguageModelConfig, {"tied": 0}, "tied must be true or false, got 0"),
        (gh.TranslatorConfig, {"num_decoder_layers": "3"}, "num_decoder_layers must be a whole"),
        (gh.ClassifierConfig, {"num_answers": 2.0}, "num_answers must be a whole number"),
    ],
)
def test_the_own_values_of_a_config_are_checked_too(kind, values, sentence):
    with pytest.raises(TypeError, match=sentence):
        kind(vocab_size=11, **values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"embedding_dropout": 1.0}, r"embedding_dropout must be at least .*, got 1\.0"),
        ({"word_dropout": -0.5}, r"word_dropout must be at least .*, got -0\.5"),
        ({"initial": "zeros"}, "initial must be 'normal' or 'torch', got 'zeros'"),
    ],
)
def test_the_own_values_of_a_classifier_that_cannot_be(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        gh.ClassifierConfig(vocab_size=11, **values)


NEAR = {"layers": (0, 2), "neighbours": 4}


class TestLocalLayers:
    @pytest.mark.parametrize("kind", [gh.LanguageModelConfig, gh.EncoderConfig])
    def test_come_back_from_json(self, kind):
        near = gh.LocalLayers(**NEAR, rotary_base=500)
        config = kind(vocab_size=11, positions="rotary", local=near)
        told = json.loads(json.dumps(config.to_json()))
        assert told["local"] == {"layers": [0, 2], "neighbours": 4, "rotary_base": 500.0}
        assert kind.from_json(told) == config
        assert hash(kind.from_json(told)) == hash(config)

    def test_of_a_causal_model_see_nothing_later(self):
        config = gh.LanguageModelConfig(vocab_size=11, local=NEAR, window=7)
        pictures = [config.mask(layer).picture(queries=9, keys=9) for layer in range(3)]
        near = (gh.causal() & gh.window(before=4)).picture(queries=9, keys=9)
        far = (gh.causal() & gh.window(before=6)).picture(queries=9, keys=9)
        assert pictures == [near, far, near]

    def test_of_an_encoder_see_both_sides(self):
        config = gh.EncoderConfig(vocab_size=11, local=NEAR)
        expected = gh.window(before=4, after=4).picture(queries=11, keys=11)
        assert config.mask(0).picture(queries=11, keys=11) == expected
        assert config.mask(1) is None

    def test_share_rotary_angles_unless_they_have_a_base(self):
        sizes = {"vocab_size": 11, "d_model": 12, "num_heads": 3, "positions": "rotary"}
        for base, different in ((None, False), (500.0, True)):
            config = gh.LanguageModelConfig(**sizes, local={**NEAR, "rotary_base": base})
            near, far, also = (
                block.attention.rotary for block in gh.LanguageModel(config).blocks[:3]
            )
            assert near is also
            assert (near is not far) is different
            assert near.base == (base or far.base)

    @pytest.mark.parametrize(
        ("local", "sentence"),
        [
            ({**NEAR, "layers": []}, r"must be a list of numbers such as \[0, 2\], got \[\]"),
            ({**NEAR, "layers": [4]}, "local.layers must be numbers from 0 to 3, .* got 4"),
            ({**NEAR, "layers": [-1]}, "local.layers must be a whole number of at least 0, got"),
            ({**NEAR, "neighbours": -1}, "local.neighbours must be a whole number of at least 0"),
            (
                {**NEAR, "rotary_base": 0.0},
                r"local.rotary_base must be a number above 0, got 0\.0",
            ),
            (
                {**NEAR, "rotary_base": 5.0},
                "local.rotary_base needs positions='rotary', got 'l",
            ),
            (
                {**NEAR, "every": 2},
                "an object of layers, neighbours and perhaps rotary_base, got",
            ),
            ({"layers": [0]}, "an object of layers, neighbours and perhaps rotary_base, got"),
            (3, "an object of layers, neighbours and perhaps rotary_base, got 3"),
        ],
    )
    def test_that_cannot_be(self, local, sentence):
        with pytest.raises(ValueError, match=sentence):
            gh.LanguageModelConfig(vocab_size=11, local=local)


@pytest.mark.parametrize("values", [{"order": "parallel"}, {"local": NEAR}])
def test_a_translator_has_neither_parallel_nor_local_layers(values):
    with pytest.raises(ValueError, match="a translator needs order='pre' or 'post'"):
        gh.TranslatorConfig(vocab_size=11, **values)


def test_an_encoder_may_leave_out_its_first_norm():
    sizes = {"vocab_size": 11, "d_model": 12, "num_heads": 3, "num_layers": 2}
    model = gh.Encoder(gh.EncoderConfig(**sizes, first_norm=False))
    first, second = (block.around_attention.norm for block in model.blocks)
    assert isinstance(first, nn.Identity)
    assert isinstance(second, nn.LayerNorm)


def test_the_pooling_is_one_of_three():
    with pytest.raises(ValueError, match="pooling must be 'mean', 'max' or 'both', got 'sum'"):
        gh.ClassifierConfig(vocab_size=11, pooling="sum")


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({}, 4 * 128),
        ({"feed_forward": "swiglu"}, 341),
        ({"feed_forward": "geglu"}, 341),
        ({"feed_forward": "swiglu", "d_hidden": 31}, 31),
        ({"d_hidden": 31}, 31),
    ],
)
def test_the_width_of_the_feed_forward(values, hidden):
    assert gh.LanguageModelConfig(vocab_size=11, **values).hidden == hidden


def test_every_word_makes_its_part():
    def parts(**values):
        return LayerFactory(
            gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, **values)
        )

    assert isinstance(parts(positions="learned").positions(), gh.Learned)
    assert isinstance(parts(positions="sinusoidal").positions(), gh.Sinusoidal)
    for positions in ("rotary", "alibi", "none"):
        assert parts(positions=positions).positions() is None
    rotary = parts(positions="rotary")
    assert rotary.attention().rotary is rotary.attention().rotary is not None
    assert rotary.attention(crosses=True).rotary is None
    assert isinstance(parts(positions="alibi").attention().attention.bias, gh.ALiBi)
    assert parts(positions="alibi").attention(crosses=True).attention.bias is None
    assert parts(attention_dropout=0.25).attention().attention.dropout == 0.25
    assert parts(norm="rms").norm(5).weight.shape == (5,)
    assert parts(bias=False).norm(5).bias is None
    assert parts(order="post").last_norm()(3) == 3
    for order in ("sandwich", "res_post", "parallel"):
        assert isinstance(parts(order=order).last_norm(), nn.LayerNorm)
    assert parts(score_scale=0.3).attention().attention.score.scale(4) == 0.3
    assert parts(softcap=7.0).attention().attention.softcap == 7.0
    assert parts(feed_forward="geglu").feed_forward().activation is nn.functional.gelu


@pytest.mark.parametrize(
    ("bias", "qkv_bias", "of_qkv"),
    [
        (True, None, True),
        (True, False, False),
        (False, None, False),
        (False, True, True),
        (True, True, True),
    ],
)
@pytest.mark.parametrize("kind", CONFIGS)
def test_queries_keys_and_values_have_biases_of_their_own(kind, bias, qkv_bias, of_qkv):
    config = kind(vocab_size=11, d_model=12, num_heads=3, bias=bias, qkv_bias=qkv_bias)
    model = kind.__name__.removesuffix("Config")
    for name, module in getattr(gh, model)(config).named_modules():
        if isinstance(module, gh.MultiHeadAttention):
            assert [given is not None for _, given in module.projections.maps()] == [of_qkv] * 3
            assert (module.output.bias is not None) is bias
        elif name.endswith(("feed_forward.hidden", "feed_forward.output")):
            assert (module.bias is not None) is bias


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("given", [None, 1e-3])
def test_every_norm_has_its_eps(kind, norm, given):
    own = {} if kind is not gh.ClassifierConfig else {"embedding_norm": True}
    config = kind(vocab_size=11, d_model=12, num_heads=3, norm=norm, norm_eps=given, **own)
    model = getattr(gh, kind.__name__.removesuffix("Config"))(config)
    torchs = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[norm]
    norms = [module for module in model.modules() if isinstance(module, torchs)]
    assert len(norms) >= 2 * config.num_layers + 1
    assert {module.eps for module in norms} == {torchs(12).eps if given is None else given}


@pytest.mark.parametrize("kind", CONFIGS)
def test_none_as_a_command_line_says_it_is_the_word_where_there_is_one(kind):
    named = assigned({"model": {}}, {"model": NAMES}, [f"{name}=none" for name in NAMES])
    config = kind(vocab_size=11, **named["model"])
    assert (config.feed_forward, config.positions, config.d_hidden) == ("none", "none", None)
    model = getattr(gh, kind.__name__.removesuffix("Config"))(config)
    assert not [name for name, _ in model.named_parameters() if "feed_forward" in name]
