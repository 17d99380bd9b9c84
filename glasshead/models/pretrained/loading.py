"""Loading: build our models from a Hugging Face folder or a file of llama2.c."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glasshead.drawing.printable import printable
from glasshead.files import open_regular, read_object
from glasshead.models.encoder import Encoder, MaskedLanguageModel
from glasshead.models.language_model import LanguageModel
from glasshead.models.pretrained.decoders import GPT2, OPT, DecoderFamily, Gemma, GPTNeoX, Llama
from glasshead.models.pretrained.encoders import (
    BERT,
    DistilBERT,
    EncoderFamily,
    ModernBERT,
    RoBERTa,
)
from glasshead.models.pretrained.folder import (
    AGAIN,
    PICKLED,
    ConfigValues,
    StoredTensors,
    TensorSource,
    check_layers,
    fill,
)
from glasshead.models.pretrained.llama2c import llama2c_file, load_llama2c
from glasshead.models.saving import built_on_meta

Pretrained = LanguageModel | Encoder | MaskedLanguageModel


@dataclass(frozen=True)
class Architecture:
    """One architecture of Hugging Face, and its conversion.

    Attributes:
        config: Converts a config.json.
        model: The class of the model that a config builds.
        sources: Returns the source of each of our tensors, given the stored names.
        ignored: Returns patterns of stored tensors that are not used.
    """

    config: Callable[[ConfigValues], Any]
    model: type[Pretrained]
    sources: Callable[[Any, Iterable[str]], Mapping[str, TensorSource]]
    ignored: Callable[[Any], tuple[str, ...]]


def _decoder(family: DecoderFamily) -> Architecture:
    return Architecture(family.config, LanguageModel, family.sources, family.ignored)


def _masked(family: EncoderFamily) -> Architecture:
    return Architecture(family.config, MaskedLanguageModel, family.sources, family.ignored)


def _encoder(family: EncoderFamily) -> Architecture:
    return Architecture(
        family.config, Encoder, family.sources_of_encoder, family.ignored_by_encoder
    )


# The architectures of each model type; the first is that of a config.json that names none.
_OF_TYPES = {
    "gpt2": dict.fromkeys(("GPT2LMHeadModel", "GPT2Model"), _decoder(GPT2())),
    "opt": {"OPTForCausalLM": _decoder(OPT())},
    "gpt_neox": {"GPTNeoXForCausalLM": _decoder(GPTNeoX())},
    "llama": dict.fromkeys(("LlamaForCausalLM", "LlamaModel"), _decoder(Llama())),
    "mistral": {"MistralForCausalLM": _decoder(Llama())},
    "qwen2": {"Qwen2ForCausalLM": _decoder(Llama())},
    "qwen3": {"Qwen3ForCausalLM": _decoder(Llama())},
    "phi3": {"Phi3ForCausalLM": _decoder(Llama())},
    "olmo2": {"Olmo2ForCausalLM": _decoder(Llama())},
    "gemma2": {"Gemma2ForCausalLM": _decoder(Gemma())},
    "gemma3_text": {"Gemma3ForCausalLM": _decoder(Gemma())},
    "bert": {
        "BertModel": _encoder(BERT()),
        "BertForMaskedLM": _masked(BERT()),
        "BertForPreTraining": _masked(BERT()),
    },
    "roberta": {"RobertaModel": _encoder(RoBERTa()), "RobertaForMaskedLM": _masked(RoBERTa())},
    "distilbert": {
        "DistilBertModel": _encoder(DistilBERT()),
        "DistilBertForMaskedLM": _masked(DistilBERT()),
    },
    "modernbert": {
        "ModernBertModel": _encoder(ModernBERT()),
        "ModernBertForMaskedLM": _masked(ModernBERT()),
    },
}
FAMILIES = {name: family for named in _OF_TYPES.values() for name, family in named.items()}
_TYPES = {name: kind for kind, named in _OF_TYPES.items() for name in named}
# Parts of transformers that none of our models has, by the config fields that name them.
_ABSENT = {
    "num_local_experts": "mixtures of experts",
    "num_experts": "mixtures of experts",
    "n_routed_experts": "mixtures of experts",
    "kv_lora_rank": "latent keys and values",
    "state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "linear_num_value_heads": "linear attention",
    "vision_config": "an encoder of images",
    "audio_config": "an encoder of sound",
}


# How files of torch.save begin: zipped, or in its older way.
_PICKLES = (b"PK\x03\x04", b"\x80\x02\x8a\n")


def _is_pickled(file: Path) -> bool:
    if file.suffix != ".bin":
        return file.suffix in PICKLED
    # Those of llama2.c have the same ending.
    with open_regular(file) as opened:
        return opened.read(4) in _PICKLES


def load_pretrained(path: str | Path, *, dtype: torch.dtype = torch.float32) -> Pretrained:
    """Load a published model as one of ours, ready to run.

    It takes a folder written by Hugging Face's `save_pretrained`, with `config.json` and
    `model.safetensors` or its shards, of an architecture in `FAMILIES`: GPT-2, OPT, GPT-NeoX,
    Llama, Mistral, Qwen2, Qwen3, Phi-3, OLMo 2, Gemma 2, Gemma 3, BERT, RoBERTa, DistilBERT or
    ModernBERT; or a file of llama2.c, or a folder that holds one. No code of the folder is run, and
    nothing is unpickled. The logits equal the logits of `transformers`.

    Args:
        path: The folder, or the file.
        dtype: The dtype of the weights.

    Returns: a `LanguageModel`, a `MaskedLanguageModel`, or for a model such as BertModel its
    `Encoder`; in evaluation mode.

    Errors: an OSError if a file is missing or cannot be read; a ValueError if the weights are
    pickled, the architecture or a value of its config is unsupported, the message names it, or if
    tensors are missing, unexpected or of another shape. `gh.watch` observes a model of any
    architecture in `transformers` itself.

    >>> import tempfile
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import glasshead as gh
    >>> folder = tempfile.mkdtemp()
    >>> config = LlamaConfig(vocab_size=11, hidden_size=12, intermediate_size=20,
    ...     num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=4)
    >>> LlamaForCausalLM(config).save_pretrained(folder)
    >>> model = gh.load_pretrained(folder)
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 11])
    """
    place = Path(path)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(
            f"dtype must be torch.float32, bfloat16, float16 or float64, got {dtype!r}."
        )
    if place.exists() and not place.is_dir():
        if _is_pickled(place):
            raise ValueError(
                f"{printable(str(place))} has pickled weights, which may run code. Load it with "
                "PyTorch into its own model, and save that with save_pretrained(FOLDER) or use "
                "gh.watch(model)."
            )
        if place.suffix == ".safetensors":
            raise ValueError(
                f"{printable(str(place))} has weights without the config of their model. Name the "
                "folder that has its config.json."
            )
        return load_llama2c(place).to(dtype)
    if not place.is_dir():
        raise FileNotFoundError(f"there is no {printable(str(place))}. Check its name.")
    file = llama2c_file(place)
    if file is not None:
        return load_llama2c(file).to(dtype)
    values = read_object(place / "config.json", AGAIN)
    architecture = _architecture(values, place)
    values |= {"model_type": _TYPES[architecture]}
    family = FAMILIES[architecture]
    stored = StoredTensors(place)
    check_layers(values, place / "config.json", len(stored))
    config = _config(family, values, place)
    model = built_on_meta(family.model, config, stored.shapes, place / "config.json")
    sources, ignored = family.sources(config, stored), family.ignored(config)
    fill(model, sources, stored, where=str(place), ignored=ignored, dtype=dtype)
    return model.eval()


def _architecture(values: Mapping[str, Any], folder: Path) -> str:
    """Return the architecture that a config.json names, or that of its model type.

    Errors: a ValueError for one that is not among ours, which tells what is missing.
    """
    named, kind = values.get("architectures"), values.get("model_type")
    of_type = _OF_TYPES.get(kind, {}) if isinstance(kind, str) else {}
    first = named[0] if isinstance(named, list) and named else next(iter(of_type), kind)
    if isinstance(first, str) and first in FAMILIES:
        return first
    absent = {name: part for name, part in _ABSENT.items() if values.get(name)}
    if absent:
        name, part = next(iter(absent.items()))
        missing = f"which needs {part} (its config has {name}), but glasshead has none"
    elif of_type:
        missing = f"but glasshead has {' and '.join(of_type)} of {kind}"
    else:
        missing = f"but glasshead loads models of the types {', '.join(_OF_TYPES)}"
    raise ValueError(
        f"{printable(str(folder))} has the architecture {printable(str(first))}, {missing}. Load "
        "the model with transformers and use gh.watch(model, …)."
    )


def _config(family: Architecture, values: Mapping[str, Any], folder: Path) -> Any:
    name = str(folder / "config.json")
    if values.get("quantization_config") is not None:
        raise ValueError(
            f"{printable(name)} states quantized weights. Save the model without quantization."
        )
    try:
        return family.config(ConfigValues(values, name))
    except (TypeError, ValueError) as error:
        if printable(name) in str(error):
            raise
        reason = str(error).removesuffix(".")
        raise ValueError(f"{printable(name)} does not describe a model ({reason}).") from error
