"""Every family of `load_pretrained`: logits, greedy generation, padding and half precision.

Of each there is a small model with random weights, its sizes unequal and its texts longer than its
windows.
"""

import json

import pytest
import torch
import transformers as hf

import glasshead as gh
from glasshead.models.fast_decode import FastDecodeStep
from glasshead.models.language_model import LanguageModelSteps
from models.saved_models import assert_same_logits, changed, random, saved, tokens
from watched_models import settings

# Token 1 pads in OPT and RoBERTa, where it takes no position.
SIZES = {"vocab_size": 31, "num_hidden_layers": 3, "max_position_embeddings": 67}
SPECIAL = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
GROUPED = {
    **SIZES,
    **SPECIAL,
    "hidden_size": 12,
    "intermediate_size": 19,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
NEOX = {
    **SIZES,
    "hidden_size": 24,
    "intermediate_size": 19,
    "num_attention_heads": 3,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
OPT = {**SIZES, **SPECIAL, "hidden_size": 12, "ffn_dim": 19, "num_attention_heads": 3}
QWEN3 = {**GROUPED, "head_dim": 10}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5}
GEMMA = {**GROUPED, "head_dim": 10, "sliding_window": 5, "query_pre_attn_scalar": 7}
ROPE = {"rope_type": "default", "rope_theta": 500.0}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 700.0}
BY_LAYER = {"full_attention": LINEAR, "sliding_attention": ROPE}

DECODERS = {
    "qwen3": ("Qwen3", QWEN3),
    "qwen3 biases": ("Qwen3", {**QWEN3, "attention_bias": True, "tie_word_embeddings": True}),
    "qwen3 window": ("Qwen3", {**QWEN3, **WINDOWS, "max_window_layers": 0}),
    "qwen3 local": ("Qwen3", {**QWEN3, **WINDOWS, "max_window_layers": 1}),
    "phi3": ("Phi3", GROUPED),
    "phi3 window": ("Phi3", {**GROUPED, "sliding_window": 5, "tie_word_embeddings": True}),
    "phi3 partial": (
        "Phi3",
        {
            **GROUPED,
            "hidden_size": 24,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.75},
        },
    ),
    "olmo2": ("Olmo2", GROUPED),
    "olmo2 biases": ("Olmo2", {**GROUPED, "attention_bias": True, "rope_parameters": LINEAR}),
    "gemma2": ("Gemma2", {**GEMMA, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
    "gemma2 no caps": (
        "Gemma2",
        {**GEMMA, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma2 exact gelu": (
        "Gemma2",
        {**GEMMA, "hidden_activation": "gelu", "tie_word_embeddings": False},
    ),
    "gemma3": ("Gemma3", {**GEMMA, "sliding_window_pattern": 2}),
    "gemma3 scaled": ("Gemma3", {**GEMMA, "rope_parameters": BY_LAYER, "layer_types": None}),
    "gemma3 biases": (
        "Gemma3",
        {**GEMMA, "attention_bias": True, "layer_types": ["full_attention"] * 3},
    ),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox whole": ("GPTNeoX", {**NEOX, "rotary_pct": 1.0, "rotary_emb_base": 500}),
    "gpt_neox sequential": (
        "GPTNeoX",
        {
            **NEOX,
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
            "hidden_act": "gelu_new",
        },
    ),
    "opt": ("OPT", OPT),
    "opt post": ("OPT", {**OPT, "do_layer_norm_before": False, "tie_word_embeddings": False}),
    "opt gelu": ("OPT", {**OPT, "activation_function": "gelu"}),
}
ENCODER = {**SIZES, "hidden_size": 12, "intermediate_size": 19, "num_attention_heads": 3}
DISTIL = {
    "vocab_size": 31,
    "dim": 12,
    "n_heads": 3,
    "n_layers": 3,
    "hidden_dim": 19,
    "max_position_embeddings": 67,
}
MODERN = {**ENCODER, **SPECIAL, "num_hidden_layers": 5, "local_attention": 11}
MODERN |= {"cls_token_id": 2, "sep_token_id": 2}
ENCODERS = {
    "bert": ("Bert", ENCODER),
    "roberta": ("Roberta", ENCODER),
    "roberta untied": ("Roberta", {**ENCODER, "tie_word_embeddings": False, "type_vocab_size": 1}),
    "distilbert": ("DistilBert", DISTIL),
    "distilbert relu": (
        "DistilBert",
        {**DISTIL, "activation": "relu", "tie_word_embeddings": False},
    ),
    "modernbert": ("ModernBert", MODERN),
    "modernbert biases": (
        "ModernBert",
        {**MODERN, "attention_bias": True, "tie_word_embeddings": False},
    ),
    "modernbert scaled": ("ModernBert", {**MODERN, "rope_parameters": BY_LAYER}),
}


def built(name, head="ForCausalLM"):
    kind, values = (DECODERS | ENCODERS)[name]
    config = getattr(hf, "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config")
    # Older versions compute Gemma 2 without its softcap, unless they are told to be eager.
    return getattr(hf, f"{kind}{head}")(config(**settings(values), attn_implementation="eager"))


def text(length=37):
    return tokens(length).clamp(min=2)


def half_and_whole(name, head):
    """A model in half precision, and one in single precision with the same weights.

    The second is built again, as the first has halved its rotary frequencies, too.
    """
    half, whole = random(built(name, head)).bfloat16(), built(name, head).eval()
    whole.load_state_dict(half.state_dict())
    return half, whole


def logits(model, *given, **more):
    with torch.no_grad():
        found = model(*given, **more)
    return found.logits if "logits" in found else found.last_hidden_state


@pytest.mark.parametrize("name", DECODERS)
class TestDecoders:
    def test_the_same_logits(self, tmp_path, name):
        model = built(name)
        ours = assert_same_logits(model, saved(model, tmp_path))
        assert gh.LanguageModelConfig.from_json(ours.config.to_json()) == ours.config

    def test_the_same_tokens_and_logits_of_each_step(self, tmp_path, name):
        model = built(name)
        ours, prompts = gh.load_pretrained(saved(model, tmp_path)), text(11)
        how = {"do_sample": False, "pad_token_id": 1, "eos_token_id": None}
        expected = model.generate(
            prompts, max_new_tokens=29, output_logits=True, return_dict_in_generate=True, **how
        )
        written = gh.generate(ours.steps(), prompts, gh.Greedy(), max_tokens=29)
        assert written.tokens == expected.sequences[:, 11:].tolist()
        steps, fed = ours.steps(), [prompts, *expected.sequences[:, 11:].split(1, 1)]
        for one, theirs in zip(fed, expected.logits, strict=False):
            torch.testing.assert_close(steps.next(one), theirs, atol=1e-5, rtol=1e-5)

    def test_texts_padded_at_the_left(self, tmp_path, name):
        model = built(name)
        ours, padding = gh.load_pretrained(saved(model, tmp_path)), torch.tensor([0, 7])
        real = torch.arange(37) >= padding[:, None]
        expected = logits(model, text(), attention_mask=real.long())
        with torch.no_grad():
            found = ours(text(), padding=padding)
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)

    def test_a_token_alone_is_computed_as_by_the_modules(self, tmp_path, name):
        ours = gh.load_pretrained(saved(built(name), tmp_path))
        # PyTorch's kernel has no softcap.
        assert (FastDecodeStep.prepared(ours) is None) == (ours.config.softcap is not None)
        fast, plain = LanguageModelSteps(ours), LanguageModelSteps(ours)
        plain._single = None
        for part in text(29).split([11, *[1] * 18], 1):
            assert fast.next(part).equal(plain.next(part))

    def test_a_checkpoint_of_half_precision(self, tmp_path, name):
        half, whole = half_and_whole(name, "ForCausalLM")
        half.save_pretrained(tmp_path)
        ours = gh.load_pretrained(tmp_path)
        expected = logits(whole, text())
        with torch.no_grad():
            torch.testing.assert_close(ours(text()), expected, atol=1e-5, rtol=1e-5)
            found = gh.load_pretrained(tmp_path, dtype=torch.bfloat16)(text())
        assert found.dtype == torch.bfloat16
        assert (found - expected).abs().mean() < 0.03 * expected.abs().max()


@pytest.mark.parametrize("name", ENCODERS)
class TestEncoders:
    def test_the_same_logits(self, tmp_path, name):
        model = built(name, "ForMaskedLM")
        ours = gh.load_pretrained(saved(model, tmp_path))
        with torch.no_grad():
            found = ours(text())
        torch.testing.assert_close(found, logits(model, text()), atol=1e-5, rtol=1e-5)
        assert gh.EncoderConfig.from_json(ours.config.to_json()) == ours.config

    def test_without_its_head_it_is_an_encoder(self, tmp_path, name):
        model = built(name, "Model")
        ours = gh.load_pretrained(saved(model, tmp_path))
        assert isinstance(ours, gh.Encoder)
        with torch.no_grad():
            found = ours(text())
        torch.testing.assert_close(found, logits(model, text()), atol=1e-5, rtol=1e-5)

    def test_an_encoder_of_a_model_with_a_head(self, tmp_path, name):
        model = built(name, "ForMaskedLM")
        kind = DECODERS.get(name, ENCODERS.get(name))[0]
        changed(saved(model, tmp_path), architectures=[f"{kind}Model"])
        with torch.no_grad():
            found = gh.load_pretrained(tmp_path)(text())
        expected = logits(model.base_model, text())
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    def test_a_padded_batch(self, tmp_path, name):
        model = built(name, "ForMaskedLM")
        ours, padded = gh.load_pretrained(saved(model, tmp_path)), text().clone()
        lengths = torch.tensor([37, 23])
        real = torch.arange(37) < lengths[:, None]
        padded[~real] = 1
        with torch.no_grad():
            found = ours(padded, lengths)
        expected = logits(model, padded, attention_mask=real.long())
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)

    def test_a_checkpoint_of_half_precision(self, tmp_path, name):
        half, whole = half_and_whole(name, "ForMaskedLM")
        half.save_pretrained(tmp_path)
        with torch.no_grad():
            found = gh.load_pretrained(tmp_path)(text())
        expected = logits(whole, text())
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def without(folder, *names, **values):
    """Take values out of a config, and put others in."""
    file = folder / "config.json"
    kept = {k: v for k, v in json.loads(file.read_text()).items() if k not in names}
    file.write_text(json.dumps(kept | values))


class TestOlderConfigs:
    def test_of_gemma3(self, tmp_path):
        kind, values = DECODERS["gemma3"]
        values = settings({**values, "rope_parameters": BY_LAYER})
        model = getattr(hf, f"{kind}ForCausalLM")(hf.Gemma3TextConfig(**values))
        without(
            saved(model, tmp_path),
            "rope_parameters",
            "layer_types",
            rope_theta=700.0,
            rope_local_base_freq=500.0,
            rope_scaling={"rope_type": "linear", "factor": 3.0},
            sliding_window_pattern=2,
        )
        ours = assert_same_logits(model, tmp_path)
        near = gh.LocalLayers(layers=(0, 2), neighbours=4, rotary_base=500.0)
        assert ours.config.local == near

    def test_of_gemma2(self, tmp_path):
        model = hf.Gemma2ForCausalLM(hf.Gemma2Config(**GEMMA, attn_implementation="eager"))
        names = ("layer_types", "attn_logit_softcapping", "final_logit_softcapping")
        without(saved(model, tmp_path), *names)
        ours = assert_same_logits(model, tmp_path)
        assert (ours.config.softcap, ours.config.logit_softcap) == (50.0, 30.0)

    def test_of_gpt_neox(self, tmp_path):
        rope = {"rotary_pct": 0.5, "rotary_emb_base": 500}
        model = hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**NEOX, **rope))
        without(saved(model, tmp_path), "rope_parameters", **rope)
        assert assert_same_logits(model, tmp_path).config.rotary_dim == 4

    def test_of_modernbert(self, tmp_path):
        rope = {"full_attention": {**ROPE, "rope_theta": 700.0}, "sliding_attention": ROPE}
        layers = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
        values = settings({**MODERN, "rope_parameters": rope, "layer_types": layers})
        model = hf.ModernBertForMaskedLM(hf.ModernBertConfig(**values))
        without(
            saved(model, tmp_path),
            "rope_parameters",
            "layer_types",
            global_rope_theta=700.0,
            local_rope_theta=500.0,
            global_attn_every_n_layers=2,
        )
        assert assert_same_logits(model, tmp_path).config.local.layers == (1, 3)


REFUSED = [
    (
        "phi3",
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
        "must be default, got 'longrope'. Load the model",
    ),
    (
        "phi3",
        {"rope_scaling": {"type": "yarn"}, "rope_parameters": None},
        "rope_type in .* must be default, got 'yarn'",
    ),
    (
        "qwen3 local",
        {"layer_types": ["full_attention"]},
        "layer_types in .* must be a list of 3 names",
    ),
    ("qwen3 local", {"layer_types": ["chunked_attention"] * 3}, "got .'chunked_attention', "),
    (
        "gemma2",
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention in .* must be False, got True",
    ),
    ("gemma2", {"query_pre_attn_scalar": 0}, "must be above 0, got"),
    ("gemma2", {"final_logit_softcapping": -1.0}, "logit_softcap must be a number above 0, got"),
    (
        "gemma2",
        {"hidden_activation": "silu"},
        "hidden_activation in .* must be gelu or .*, got 'silu'",
    ),
    (
        "gemma3",
        {"rope_parameters": {**BY_LAYER, "sliding_attention": LINEAR}},
        "rope_type in .* must be default, got 'linear'",
    ),
    ("gemma3", {"rope_parameters": {"full_attention": 3}}, "must be an object, got"),
    (
        "olmo2",
        {"head_dim": 3},
        "does not describe a model .positions='rotary' needs heads of an ev",
    ),
    (
        "gpt_neox",
        {"rope_parameters": None, "partial_rotary_factor": None, "rotary_pct": 0.4},
        "rotary_dim must be an even number",
    ),
    ("opt", {"word_embed_proj_dim": 6}, "must be 12, got 6. Load"),
    ("opt", {"enable_bias": False}, "must be True, got False. Load the model"),
    ("roberta", {"pad_token_id": 0}, "must be 1, got 0. Load the model with"),
    ("roberta", {"max_position_embeddings": 2}, "be above 2, got 2. Use"),
    ("roberta", {"hidden_act": "relu"}, "must be 'gelu', got 'relu'. Load"),
    (
        "distilbert",
        {"activation": "silu"},
        "activation in .* must be gelu or gelu_new or .*, got 'silu'",
    ),
    ("modernbert", {"norm_bias": True}, "must be False, got True. Load the mo"),
    ("modernbert", {"decoder_bias": False}, "must be True, got False. Load"),
    (
        "modernbert",
        {"classifier_activation": "relu"},
        "classifier_activation in .* must be 'gelu', got 'relu'",
    ),
]


@pytest.mark.parametrize(("name", "values", "sentence"), REFUSED)
def test_values_that_none_of_our_parts_has(tmp_path, name, values, sentence):
    model = built(name, "ForCausalLM" if name in DECODERS else "ForMaskedLM")
    changed(saved(model, tmp_path), **values)
    with pytest.raises(ValueError, match=sentence):
        gh.load_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["olmo2", "gemma3", "gpt_neox", "modernbert"])
def test_what_is_loaded_learns_and_is_watched(tmp_path, name):
    decoder = name in DECODERS
    saved(built(name, "ForCausalLM" if decoder else "ForMaskedLM"), tmp_path)
    model = gh.load_pretrained(tmp_path)
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(text())
    assert len(seen.layers) == (3 if decoder else 5)
    model.train()(text()).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
