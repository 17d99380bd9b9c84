"""Models of other libraries as ours: the same logits, or one sentence."""

import json
import pickle
import struct

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import glasshead as gh
import systems
from glasshead.models.pretrained import is_llama2c, load_llama2c
from models.saved_models import assert_same_logits, changed, random, saved, tokens
from watched_models import settings

TINY_LLAMA = {
    "vocab_size": 31,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMAS = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True},
    "one_key_head": {"num_key_value_heads": 1},
    "wide_heads": {"head_dim": 10},
    "biases": {"attention_bias": True},
    "all_biases": {"attention_bias": True, "mlp_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}},
    "llama3": {"head_dim": 8, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
    "yarn": {"head_dim": 16, "rope_parameters": {**YARN, "rope_theta": 1e4}},
}
TINY_GPT2 = {"vocab_size": 31, "n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 64}
GPT2S = {
    "plain": {},
    "inner": {"n_inner": 20, "activation_function": "gelu"},
    "relu_untied": {"activation_function": "relu", "tie_word_embeddings": False},
    "eps": {"layer_norm_epsilon": 1e-2},
}
TINY_BERT = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
}
BERTS = {
    "plain": {},
    "gelu_new": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "one_segment": {"type_vocab_size": 1},
    "untied": {"tie_word_embeddings": False},
}


class TestTheSameLogits:
    @pytest.mark.parametrize("name", LLAMAS)
    def test_llama(self, tmp_path, name):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**settings({**TINY_LLAMA, **LLAMAS[name]})))
        assert_same_logits(model, saved(model, tmp_path))

    @pytest.mark.parametrize("window", [5, None])
    def test_mistral_with_its_window(self, tmp_path, window):
        config = hf.MistralConfig(**TINY_LLAMA, sliding_window=window)
        model = hf.MistralForCausalLM(config)
        ours = assert_same_logits(model, saved(model, tmp_path))
        assert ours.config.window == window

    @pytest.mark.parametrize("window", [None, 5])
    def test_qwen2(self, tmp_path, window):
        sliding = {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}
        config = hf.Qwen2Config(**TINY_LLAMA, **(sliding if window else {}))
        model = hf.Qwen2ForCausalLM(config)
        assert_same_logits(model, saved(model, tmp_path))

    def test_qwen2_with_a_window_in_its_last_layer(self, tmp_path):
        sliding = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**TINY_LLAMA, **sliding))
        ours = assert_same_logits(model, saved(model, tmp_path))
        assert ours.config.local == gh.LocalLayers(layers=(1,), neighbours=4)

    @pytest.mark.parametrize("name", GPT2S)
    def test_gpt2(self, tmp_path, name):
        model = hf.GPT2LMHeadModel(hf.GPT2Config(**{**TINY_GPT2, **GPT2S[name]}))
        assert_same_logits(model, saved(model, tmp_path))

    @pytest.mark.parametrize("name", BERTS)
    def test_bert_tells_masked_words(self, tmp_path, name):
        model = hf.BertForMaskedLM(hf.BertConfig(**{**TINY_BERT, **BERTS[name]}))
        assert_same_logits(model, saved(model, tmp_path))

    def test_bert_alone_is_an_encoder(self, tmp_path):
        model = hf.BertModel(hf.BertConfig(**TINY_BERT))
        assert isinstance(assert_same_logits(model, saved(model, tmp_path)), gh.Encoder)

    def test_bert_with_padding_and_segments(self, tmp_path):
        model = hf.BertForMaskedLM(hf.BertConfig(**TINY_BERT))
        ours = gh.load_pretrained(saved(model, tmp_path))
        lengths, segments = torch.tensor([11, 7]), torch.arange(11).ge(5).long().expand(2, 11)
        real = torch.arange(11) < lengths[:, None]
        with torch.no_grad():
            expected = model(tokens(11), attention_mask=real.long(), token_type_ids=segments).logits
            found = ours(tokens(11), lengths, segments=segments)
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)

    def test_bert_of_pretraining_leaves_its_other_head(self, tmp_path):
        model = hf.BertForPreTraining(hf.BertConfig(**TINY_BERT))
        ours = gh.load_pretrained(saved(model, tmp_path))
        with torch.no_grad():
            expected = model(tokens()).prediction_logits
            torch.testing.assert_close(ours(tokens()), expected, atol=1e-5, rtol=1e-5)


class TestFolders:
    def test_shards(self, tmp_path):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA))
        saved(model, tmp_path, max_shard_size="4KB")
        assert len(list(tmp_path.glob("*.safetensors"))) > 1
        assert_same_logits(model, tmp_path)

    def test_a_whole_file_is_taken_before_shards(self, tmp_path):
        saved(hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)), tmp_path, max_shard_size="4KB")
        shards = {file: file.read_bytes() for file in tmp_path.glob("model-*")}
        index = tmp_path / "model.safetensors.index.json"
        told = index.read_text()
        model = random(hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)), seed=1)
        model.save_pretrained(tmp_path)
        # Saving takes away what was there.
        index.write_text(told)
        for file, content in shards.items():
            file.write_bytes(content)
        assert_same_logits(model, tmp_path)

    def test_names_without_their_prefix_and_buffers_of_old_files(self, tmp_path):
        model = hf.GPT2LMHeadModel(hf.GPT2Config(**TINY_GPT2))
        file = saved(model, tmp_path) / "model.safetensors"
        bare = {name.removeprefix("transformer."): x for name, x in load_file(file).items()}
        save_file(bare | {"h.0.attn.bias": torch.ones(1, 1, 64, 64)}, file)
        assert_same_logits(model, tmp_path)

    def test_norms_as_the_first_bert_names_them(self, tmp_path):
        model = hf.BertForMaskedLM(hf.BertConfig(**TINY_BERT))
        file = saved(model, tmp_path) / "model.safetensors"
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): x
            for name, x in load_file(file).items()
        }
        save_file(renamed, file)
        assert_same_logits(model, tmp_path)

    def test_a_bias_of_an_untied_bert_that_has_one_name(self, tmp_path):
        model = hf.BertForMaskedLM(hf.BertConfig(**TINY_BERT, tie_word_embeddings=False))
        file = saved(model, tmp_path) / "model.safetensors"
        tensors = load_file(file)
        # Transformers 4 saves it under both names.
        bias = tensors.pop("cls.predictions.decoder.bias", None)
        tensors["cls.predictions.bias"] = tensors["cls.predictions.bias"] if bias is None else bias
        save_file(tensors, file)
        assert_same_logits(model, tmp_path)

    def test_rope_as_older_configs_tell_it(self, tmp_path):
        rope = {**LLAMA3, "rope_theta": 5e5}
        told = settings({**TINY_LLAMA, "rope_parameters": rope})
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**told))
        file = saved(model, tmp_path) / "config.json"
        values = json.loads(file.read_text())
        values.pop("rope_parameters", None)
        values["rope_theta"] = rope.pop("rope_theta")
        values["rope_scaling"] = rope
        file.write_text(json.dumps(values))
        assert_same_logits(model, tmp_path)

    @pytest.mark.parametrize(("before", "window"), [(0, 5), (2, None), (None, None)])
    def test_windows_as_older_configs_of_qwen2_tell_them(self, tmp_path, before, window):
        first = {} if before is None else {"max_window_layers": before}
        config = hf.Qwen2Config(**TINY_LLAMA, use_sliding_window=True, sliding_window=5, **first)
        model = hf.Qwen2ForCausalLM(config)
        file = saved(model, tmp_path) / "config.json"
        values = json.loads(file.read_text())
        del values["layer_types"]
        if before is None:
            del values["max_window_layers"]
        file.write_text(json.dumps(values))
        assert assert_same_logits(model, tmp_path).config.window == window

    def test_a_window_that_a_config_of_qwen2_leaves_out(self, tmp_path):
        config = hf.Qwen2Config(**TINY_LLAMA, use_sliding_window=True, max_window_layers=0)
        file = saved(hf.Qwen2ForCausalLM(config), tmp_path) / "config.json"
        values = json.loads(file.read_text())
        del values["sliding_window"]
        file.write_text(json.dumps(values))
        assert gh.load_pretrained(tmp_path).config.window == config.sliding_window

    def test_null_in_rope_is_nothing(self, tmp_path):
        rope = {**YARN, "rope_theta": 1e4}
        told = settings({**TINY_LLAMA, "rope_parameters": rope})
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**told))
        name = "rope_parameters" if "rope_parameters" in told else "rope_scaling"
        changed(saved(model, tmp_path), **{name: {**told[name], "beta_fast": None}})
        assert_same_logits(model, tmp_path)

    def test_half_precision_becomes_what_is_asked(self, tmp_path):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)).to(torch.bfloat16)
        saved(model, tmp_path)
        assert gh.load_pretrained(tmp_path).embedding.tokens.weight.dtype == torch.float32
        half = gh.load_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {x.dtype for x in half.parameters()} == {torch.bfloat16}

    def test_numbers_that_a_dtype_does_not_hold(self, tmp_path):
        file = saved(hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)), tmp_path)
        file /= "model.safetensors"
        save_file(load_file(file) | {"model.norm.weight": torch.full((12,), 1e6)}, file)
        with pytest.raises(
            ValueError, match="got torch.float16, which does not hold model.norm.weight"
        ):
            gh.load_pretrained(tmp_path, dtype=torch.float16)

    def test_the_architecture_tells_the_type_that_is_missing(self, tmp_path):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA))
        config = saved(model, tmp_path) / "config.json"
        values = json.loads(config.read_text()) | {"sliding_window": 5}
        del values["model_type"]
        config.write_text(json.dumps(values))
        assert_same_logits(model, tmp_path)

    def test_what_is_loaded_learns(self, tmp_path):
        saved(hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)), tmp_path)
        model = gh.load_pretrained(tmp_path).train()
        model(tokens()).square().mean().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.fixture
def llama(tmp_path):
    return saved(hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)), tmp_path)


class TestRefusals:
    def test_no_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"there is no .*nowhere\. Check its name"):
            gh.load_pretrained(tmp_path / "nowhere")

    def test_no_config(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no .*config.json"):
            gh.load_pretrained(tmp_path)

    @pytest.mark.parametrize("text", ["{", "[1]", "\0"])
    def test_a_config_that_is_none(self, llama, text):
        (llama / "config.json").write_text(text)
        with pytest.raises(ValueError, match="config.json (is broken JSON|must hold)"):
            gh.load_pretrained(llama)

    def test_no_weights(self, llama):
        (llama / "model.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match="has no weights: there is no model.safetens"):
            gh.load_pretrained(llama)

    def test_pickled_weights_are_never_read(self, llama):
        (llama / "model.safetensors").unlink()

        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("unpickled",))

        (llama / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(ValueError, match="pytorch_model.bin alone, which is pickled"):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize("suffix", [".pth", ".pt", ".ckpt", ".pkl"])
    def test_a_pickled_file_is_named_as_one(self, llama, suffix):
        (llama / f"model{suffix}").write_bytes(pickle.dumps({}))
        with pytest.raises(ValueError, match=f"model{suffix} has pickled weights, which may run"):
            gh.load_pretrained(llama / f"model{suffix}")

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("name", ["model.pth", "pytorch_model.bin"])
    def test_the_advice_on_pickled_weights_is_enough(self, tmp_path, name, zipped):
        first = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)).eval()
        torch.save(first.state_dict(), tmp_path / name, _use_new_zipfile_serialization=zipped)
        with pytest.raises(
            ValueError, match=rf"{name} has pickled weights.*\. Load it with PyT"
        ) as said:
            gh.load_pretrained(tmp_path / name)
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA)).eval()
        model.load_state_dict(torch.load(tmp_path / name, weights_only=True))
        assert "save that with save_pretrained(FOLDER)" in str(said.value)
        model.save_pretrained(tmp_path / "FOLDER")
        tokens = torch.tensor([[3, 1, 4, 1, 5]])
        ours = gh.load_pretrained(tmp_path / "FOLDER")(tokens)
        torch.testing.assert_close(ours, first(tokens).logits, rtol=1e-4, atol=1e-5)
        assert "use gh.watch(model)" in str(said.value)
        with gh.watch(model, [gh.Entropy()]) as seen:
            model(tokens)
        assert len(seen) == model.config.num_hidden_layers

    def test_a_file_of_weights_leads_to_its_folder(self, llama):
        with pytest.raises(
            ValueError, match=r"weights without the config of their model\. Name the"
        ):
            gh.load_pretrained(llama / "model.safetensors")
        assert gh.load_pretrained(llama).config.num_layers

    def test_an_unknown_architecture(self, llama):
        changed(llama, architectures=["MambaForCausalLM"])
        with pytest.raises(ValueError, match="MambaForCausalLM, but glasshead has LlamaForCausalL"):
            gh.load_pretrained(llama)
        changed(llama, model_type="mamba")
        with pytest.raises(
            ValueError, match="but glasshead loads models of the types gpt2, opt, g"
        ):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            (
                {"num_local_experts": 8},
                r"needs mixtures of experts \(its config has num_local_experts\)",
            ),
            (
                {"vision_config": {"depth": 3}},
                r"needs an encoder of images \(its config has vision_config\)",
            ),
            (
                {"state_size": 16},
                r"needs state-space layers \(its config has state_size\), but glasshead",
            ),
        ],
    )
    def test_an_unknown_architecture_tells_the_part_that_is_missing(self, llama, values, sentence):
        changed(llama, architectures=["OtherForCausalLM"], model_type="other", **values)
        with pytest.raises(ValueError, match=rf"OtherForCausalLM, which {sentence}.*gh\.watch\("):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize("value", [None, [], [3], "LlamaForCausalLM"])
    def test_architectures_that_name_none_leave_the_type(self, llama, value):
        changed(llama, architectures=value)
        if value == [3]:
            with pytest.raises(ValueError, match="architecture 3"):
                gh.load_pretrained(llama)
        else:
            assert isinstance(gh.load_pretrained(llama), gh.LanguageModel)

    def test_missing_and_surplus_tensors_are_named(self, llama):
        file = llama / "model.safetensors"
        tensors = load_file(file)
        tensors["model.layers.1.mlp.extra.weight"] = tensors.pop("model.norm.weight")
        save_file(tensors, file)
        with pytest.raises(ValueError, match="lacks model.norm.weight and has besides .*extra"):
            gh.load_pretrained(llama)

    def test_a_surplus_tensor_of_a_shard_is_named(self, tmp_path):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**TINY_LLAMA))
        saved(model, tmp_path, max_shard_size="4KB")
        file = min(tmp_path.glob("*.safetensors"))
        save_file(load_file(file) | {"extra.weight": torch.ones(2)}, file)
        with pytest.raises(ValueError, match=r"it has besides extra.weight\. Use"):
            gh.load_pretrained(tmp_path)

    def test_another_shape_is_named(self, llama):
        file = llama / "model.safetensors"
        save_file(load_file(file) | {"model.norm.weight": torch.ones(13)}, file)
        with pytest.raises(
            ValueError, match=r"model.norm.weight must give \[12\], got \[13\]\. Use"
        ):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize(
        ("tensor", "sentence"),
        [
            (torch.full((12,), torch.nan), "must be finite, got NaN"),
            (
                torch.ones(12, dtype=torch.int8),
                "got torch.int8 for model.norm.weight",
            ),
        ],
    )
    def test_weights_that_are_none(self, llama, tensor, sentence):
        file = llama / "model.safetensors"
        save_file(load_file(file) | {"model.norm.weight": tensor}, file)
        with pytest.raises(ValueError, match=sentence):
            gh.load_pretrained(llama)

    def test_a_broken_file(self, llama):
        (llama / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}{}{}{}")
        with pytest.raises(ValueError, match="cannot be read as safetensors"):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ({"hidden_act": "gelu"}, "hidden_act in .* must be 'silu', got 'gelu'"),
            ({"num_hidden_layers": 0}, "must be a whole number of at least 1, got 0. Use"),
            ({"hidden_size": "12"}, "hidden_size in .* must be a whole number"),
            ({"rms_norm_eps": "small"}, "must be a number, got 'small'"),
            ({"rms_norm_eps": 10**400}, "must be a number of 64 bits, got a whole nu"),
            ({"num_hidden_layers": 10**9}, "states 1000000000 layers, but the weights are 21"),
            (
                {"hidden_size": 2**59, "vocab_size": 2**59},
                "config.json needs more memory than any machine",
            ),
            ({"attention_bias": 1}, "must be true or false, got 1"),
            ({"num_key_value_heads": 5}, "num_kv_heads must divide"),
            ({"rope_parameters": [1]}, "rope_parameters in .* must be an object"),
            (
                {"rope_parameters": {"rope_type": "dynamic"}},
                "rope_type in .* must be default .*, got 'dynamic'",
            ),
            ({"rope_parameters": {"rope_type": "linear", "factor": -1}}, "factor"),
            ({"rope_parameters": {"rope_type": "linear"}}, "rotary_scaling must have factor"),
            ({"quantization_config": {"bits": 4}}, "quantized weights"),
            ({"num_hidden_layers": 3}, "lacks model.layers.2"),
        ],
    )
    def test_configs_of_what_there_is_none_of(self, llama, values, sentence):
        changed(llama, **values)
        with pytest.raises(ValueError, match=sentence):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize(
        ("segments", "given", "sentence"),
        [
            (None, [[0, 0]], "needs a model with segments, got one without. Omit it"),
            (2, [[0, 2]], "segments must be ids from 0 to 1, got 2"),
            (2, [[0]], r"a number for each token, \[1, 2\], got \[1, 1\]"),
        ],
    )
    def test_segments_that_do_not_fit(self, segments, given, sentence):
        config = gh.EncoderConfig(vocab_size=11, d_model=12, num_heads=3, segments=segments)
        with pytest.raises(ValueError, match=sentence):
            gh.Encoder(config)(torch.tensor([[3, 1]]), segments=torch.tensor(given))

    @pytest.mark.parametrize(
        ("index", "error", "sentence"),
        [
            ({}, ValueError, "must have a weight_map, got none. Get"),
            ({"weight_map": {"a": "../a.safetensors"}}, ValueError, "must name files next to it"),
            ({"weight_map": {"a": "b.safetensors"}}, FileNotFoundError, "names b.safetensors"),
            ({"weight_map": {"a": "c.safetensors"}}, ValueError, "lacks a, which the index"),
        ],
    )
    def test_an_index_that_does_not_fit(self, llama, index, error, sentence):
        (llama / "model.safetensors").rename(llama / "c.safetensors")
        (llama / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(error, match=sentence):
            gh.load_pretrained(llama)

    def test_several_files_without_an_index(self, llama):
        (llama / "model.safetensors").rename(llama / "a.safetensors")
        save_file({"x": torch.ones(1)}, llama / "b.safetensors")
        with pytest.raises(ValueError, match="2 files of weights, but no model.safetensors.index"):
            gh.load_pretrained(llama)

    @pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, "float32", None])
    def test_a_dtype_that_is_none(self, llama, dtype):
        with pytest.raises(TypeError, match="dtype must be torch.float32, bfloat16"):
            gh.load_pretrained(llama, dtype=dtype)


def llama2c(file, *, tied=True, weights=None):
    """A file of llama2.c, whose model is of the width 12."""
    width, hidden, layers, heads, kv_heads, vocabulary, length = 12, 20, 2, 3, 1, 31, 17
    of_keys = width // heads * kv_heads
    block = 2 * width**2 + 2 * of_keys * width + 2 * width + 3 * hidden * width
    count = vocabulary * width + layers * block + width + length * (width // heads)
    count += 0 if tied else vocabulary * width
    if weights is None:
        weights = 0.3 * torch.randn(count, generator=torch.Generator().manual_seed(2))
    head = (width, hidden, layers, heads, kv_heads, vocabulary if tied else -vocabulary, length)
    file.write_bytes(struct.pack("<7i", *head) + weights.numpy().tobytes())
    return file


class TestLlama2c:
    def test_numbers_of_neighbours_turn_as_in_its_code(self, tmp_path):
        """The first layer's scores, computed as `run.c` does: neighbours turn."""
        model = load_llama2c(llama2c(tmp_path / "model.bin"))
        flat = torch.from_file(str(tmp_path / "model.bin"), size=2000)[7:]
        embedding, at = flat[: 31 * 12].view(31, 12), 31 * 12
        norm, at = flat[at : at + 12], at + 24
        query, at = flat[at : at + 144].view(12, 12), at + 288
        key = flat[at : at + 48].view(4, 12)
        text = [3, 1, 4, 1, 5]
        x = embedding[text]
        x = norm * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        q, k = (x @ query.T).view(5, 3, 4), (x @ key.T).view(5, 1, 4)
        angles = torch.arange(5)[:, None, None] * torch.tensor([1.0, 1e-2])
        turn = torch.polar(torch.ones_like(angles), angles)
        q, k = (
            torch.view_as_real(torch.view_as_complex(h.unflatten(-1, (2, 2))) * turn).flatten(-2)
            for h in (q, k)
        )
        expected = torch.einsum("ihd,jd->hij", q, k[:, 0]) / 2
        with gh.watch(model, [gh.MaxScore()], keep="weights") as seen:
            model(torch.tensor([text]))
        weights = seen["blocks.0.attention"].weights[0]
        hidden = ~torch.ones(5, 5, dtype=torch.bool).tril()
        expected = expected.masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(weights, expected, atol=1e-6, rtol=1e-5)

    def test_an_output_of_its_own(self, tmp_path):
        model = gh.load_pretrained(llama2c(tmp_path / "model.bin", tied=False))
        assert model.output is not None
        size = (tmp_path / "model.bin").stat().st_size // 4
        flat = torch.from_file(str(tmp_path / "model.bin"), size=size)
        assert model.output.weight.equal(flat[-31 * 12 :].view(31, 12))

    def test_its_folder_is_loaded_as_the_file_in_it(self, tmp_path):
        file = llama2c(tmp_path / "model.bin")
        (tmp_path / "tok512.bin").write_bytes(b"a tokenizer is no model")
        weights = gh.load_pretrained(file).state_dict()
        found = gh.load_pretrained(tmp_path, dtype=torch.float64).state_dict()
        assert found.keys() == weights.keys()
        assert all(found[name].equal(weights[name].double()) for name in weights)
        llama2c(tmp_path / "other.bin")
        with pytest.raises(
            ValueError, match=r"has several models, such as model.bin and other.bin\. Name"
        ):
            gh.load_pretrained(tmp_path)

    def test_it_is_known_by_its_length(self, tmp_path):
        file = llama2c(tmp_path / "model.bin")
        assert is_llama2c(file)
        file.write_bytes(file.read_bytes()[:-4])
        assert not is_llama2c(file)
        with pytest.raises(ValueError, match="must have .* bytes that its header states"):
            load_llama2c(file)

    def test_a_pipe_is_none_and_is_not_waited_for(self, tmp_path):
        systems.make_pipe(tmp_path / "pipe.bin")
        assert not is_llama2c(tmp_path / "pipe.bin")

    @pytest.mark.parametrize("data", [b"", b"seven", b"\0" * 100, b"\xff" * 64])
    def test_another_file(self, tmp_path, data):
        file = tmp_path / "model.bin"
        file.write_bytes(data)
        with pytest.raises(ValueError, match="llama2.c"):
            gh.load_pretrained(file)

    def test_weights_that_are_no_numbers(self, tmp_path):
        file = llama2c(tmp_path / "model.bin")
        file.write_bytes(file.read_bytes()[:-4] + struct.pack("<f", float("nan")))
        with pytest.raises(ValueError, match="must be finite"):
            load_llama2c(file)
