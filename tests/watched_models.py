"""Small models of transformers of random weights, what they take, where their attention is."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import Tensor, nn

try:
    TRANSFORMERS = Version(version("transformers"))
except PackageNotFoundError:
    TRANSFORMERS = Version("0")
VOCABULARY = 61
# Of a width that leaves attention neither flat nor one-hot, so that a mistake shows.
_RANGE = {"initializer_range": 0.3}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def built(kind: Any, config: Any, attention: str) -> nn.Module:
    """A model of random weights that are the same each time, evaluated."""
    torch.manual_seed(7)
    config._attn_implementation = attention
    try:
        model = kind(config).eval()
    except ValueError as error:
        if "does not support an attention implementation" not in str(error):
            raise
        pytest.skip(f"transformers {TRANSFORMERS}: {error}")
    for name, parameter in model.named_parameters():
        # These begin with zeros.
        if name.endswith(("bias", "sinks")):
            nn.init.normal_(parameter, 0.0, 0.3)
    assert model.config._attn_implementation == attention
    return model


@contextmanager
def skipped_where_transformers_fails(*errors: type[Exception]) -> Iterator[None]:
    """Skip a test of what an unwatched model of this version of transformers cannot do."""
    try:
        yield
    except errors as error:
        pytest.skip(f"transformers {TRANSFORMERS} fails by itself: {error}")


def settings(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a config, with rotary positions as this version takes them."""
    rope = values.get("rope_parameters")
    if TRANSFORMERS.major > 4 or rope is None:
        return values
    if any(isinstance(one, dict) for one in rope.values()):
        pytest.skip("transformers 4 has no rope_parameters for each type of layer")
    values = {name: value for name, value in values.items() if name != "rope_parameters"}
    apart = ("rope_theta", "partial_rotary_factor")
    values |= {name: rope[name] for name in apart if name in rope}
    scaling = {name: value for name, value in rope.items() if name not in apart}
    if scaling == {"rope_type": "default"}:
        return values
    if scaling["rope_type"] == "linear":
        # OLMo 2 takes no other name.
        scaling["type"] = scaling.pop("rope_type")
    return values | {"rope_scaling": scaling}


def sizes_of_a_decoder(**changes: Any) -> dict[str, Any]:
    """What the configurations of most decoders take."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 30,
        "intermediate_size": 29,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 10,
        "max_position_embeddings": 64,
    }
    return sizes | _RANGE | TOKENS | changes


def sizes_of_a_translator(**changes: Any) -> dict[str, Any]:
    """What the configurations of most encoders with decoders take."""
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 30,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 29,
        "decoder_ffn_dim": 29,
        "max_position_embeddings": 64,
        "init_std": 0.4,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
    }
    return sizes | TOKENS | changes


def sizes_of_a_listener(**changes: Any) -> dict[str, Any]:
    """What the configurations of translators of sound take."""
    sizes = {"num_mel_bins": 3, "max_source_positions": 11, "max_target_positions": 64}
    sizes |= {"suppress_tokens": None, "begin_suppress_tokens": None}
    return sizes_of_a_translator(**sizes | changes)


def sizes_of_t5(**changes: Any) -> dict[str, Any]:
    """What the configurations of T5 and its kin take."""
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 21,
        "d_kv": 7,
        "d_ff": 29,
        "num_layers": 2,
        "num_heads": 3,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 11,
        "initializer_factor": 1.5,
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    return sizes | changes


def llama(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return built(LlamaForCausalLM, LlamaConfig(**sizes_of_a_decoder(**changes)), attention)


def mistral(attention: str = "sdpa", **changes: Any) -> nn.Module:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(**sizes_of_a_decoder(**{"sliding_window": 5} | changes))
    return built(MistralForCausalLM, config, attention)


def gemma2(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    asked = {"sliding_window": 5, "attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 7}
    config = Gemma2Config(**sizes_of_a_decoder(**asked | changes))
    return built(Gemma2ForCausalLM, config, attention)


def gpt_oss(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import GptOssConfig, GptOssForCausalLM

    asked = {"sliding_window": 5, "num_local_experts": 3, "num_experts_per_tok": 2}
    # The product of its experts takes rows of whole 16 bytes alone.
    asked |= {"hidden_size": 28, "intermediate_size": 20}
    # Its rotary positions are made for texts that are very much longer.
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    config = GptOssConfig(**sizes_of_a_decoder(**asked | rope | changes))
    return built(GptOssForCausalLM, config, attention)


def gpt2(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCABULARY, "n_embd": 35, "n_layer": 2, "n_head": 5, "n_positions": 64}
    return built(GPT2LMHeadModel, GPT2Config(**sizes | _RANGE | TOKENS | changes), attention)


def bert(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 35,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "intermediate_size": 29,
        "max_position_embeddings": 64,
    }
    return built(BertModel, BertConfig(**sizes | {"initializer_range": 0.6} | changes), attention)


def t5(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    if not T5ForConditionalGeneration._supports_sdpa:
        pytest.skip(f"T5 of transformers {TRANSFORMERS} attends by code of its own")
    return built(T5ForConditionalGeneration, T5Config(**sizes_of_t5(**changes)), attention)


def bart(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"d_model": 35, "decoder_attention_heads": 5, "init_std": 0.6}
    config = BartConfig(**sizes_of_a_translator(**sizes | changes))
    return built(BartForConditionalGeneration, config, attention)


def whisper(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(**sizes_of_a_listener(**changes))
    return built(WhisperForConditionalGeneration, config, attention)


def vit(attention: str = "eager", **changes: Any) -> nn.Module:
    from transformers import ViTConfig, ViTModel

    sizes = {
        "hidden_size": 35,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "intermediate_size": 29,
        "image_size": 12,
        "patch_size": 3,
    }
    return built(ViTModel, ViTConfig(**sizes | {"initializer_range": 0.6} | changes), attention)


class Alone(nn.Module):
    """An attention that calls a function of transformers as it likes, and has no cache in sight.

    Args:
        name: Of the function.
        otherwise: What is called in eager mode.
        named: What else it is given.
    """

    is_causal = True

    def __init__(self, name: str, otherwise: Any = None, /, **named: Any) -> None:
        super().__init__()
        self.name, self.otherwise, self.named = name, otherwise, named

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        if hasattr(ALL_ATTENTION_FUNCTIONS, "get_interface"):
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.name, self.otherwise)
        elif self.name == "eager":
            attend = self.otherwise
        else:
            # So do the models of transformers 4.
            attend = ALL_ATTENTION_FUNCTIONS[self.name]
        return attend(self, query, key, value=value, attention_mask=mask, **self.named)[0]


def tokens(batch: int, length: int, seed: int = 3) -> Tensor:
    """Words that are no padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCABULARY, (batch, length), generator=generator)


def padding(batch: int, length: int, side: str) -> Tensor:
    """1 where a text of the batch has a word; the n-th of them lacks 2·n words at that side."""
    places = torch.arange(length).expand(batch, length)
    places = places if side == "left" else places.flip(-1)
    return (places >= 2 * torch.arange(batch)[:, None]).long()


def inputs(build: Any, side: str | None = None, batch: int = 3, length: int = 7) -> dict[str, Any]:
    """What a model takes; texts padded at a side, where it knows of padding."""
    if build is vit:
        return {"pixel_values": torch.rand(batch, 3, 12, 12)}
    given = {"input_ids": tokens(batch, length)}
    if side:
        given["attention_mask"] = padding(batch, length, side)
    if build in (t5, bart):
        source = {"input_ids": tokens(batch, 11, seed=5)}
        if side:
            source["attention_mask"] = padding(batch, 11, side)
        return source | {f"decoder_{name}": value for name, value in given.items()}
    if build is whisper:
        sound = torch.randn(batch, 3, 22)
        return {"input_features": sound, "decoder_input_ids": tokens(batch, length)}
    return given


# Other names since transformers 5.9.
_RENAMED = Version("5.9") <= TRANSFORMERS
_VIT = "layers.{}.attention" if _RENAMED else "encoder.layer.{}.attention.attention"
# Where the models keep their attention, by the name under which they return its weights.
NAMES = {
    llama: {"attentions": "model.layers.{}.self_attn"},
    mistral: {"attentions": "model.layers.{}.self_attn"},
    gemma2: {"attentions": "model.layers.{}.self_attn"},
    gpt_oss: {"attentions": "model.layers.{}.self_attn"},
    gpt2: {"attentions": "transformer.h.{}.attn"},
    bert: {"attentions": "encoder.layer.{}.attention.self"},
    vit: {"attentions": _VIT},
    t5: {
        "encoder_attentions": "encoder.block.{}.layer.0.SelfAttention",
        "decoder_attentions": "decoder.block.{}.layer.0.SelfAttention",
        "cross_attentions": "decoder.block.{}.layer.1.EncDecAttention",
    },
    bart: {
        "encoder_attentions": "model.encoder.layers.{}.self_attn",
        "decoder_attentions": "model.decoder.layers.{}.self_attn",
        "cross_attentions": "model.decoder.layers.{}.encoder_attn",
    },
}
NAMES[whisper] = NAMES[bart]
# All but these run under sdpa as well.
EAGER_ONLY = (gemma2, gpt_oss)
MODES = [
    (build, mode)
    for build in NAMES
    for mode in ("eager", "sdpa")
    if mode == "eager" or build not in EAGER_ONLY
]
DECODERS = (llama, mistral, gemma2, gpt_oss, gpt2)
