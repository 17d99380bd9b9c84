"""Loading: build our models from a Hugging Face folder or a file of llama2.c."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glasshead.drawing.printable import printable
from glasshead.files import read_object
from glasshead.models.encoder import Encoder, MaskedLanguageModel
from glasshead.models.language_model import LanguageModel
from glasshead.models.pretrained import bert, gpt2, llama
from glasshead.models.pretrained.folder import (
    ANEW,
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
class Family:
    """The conversion of one family of models.

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


_GPT2 = Family(gpt2.config, LanguageModel, gpt2.sources, gpt2.ignored)
_LLAMA = Family(llama.config, LanguageModel, llama.sources, llama.ignored)
_BERT = Family(bert.config, MaskedLanguageModel, bert.sources, bert.ignored)
_BERT_ENCODER = Family(bert.config, Encoder, bert.sources_of_encoder, bert.ignored_by_encoder)
FAMILIES = {
    "GPT2LMHeadModel": _GPT2,
    "GPT2Model": _GPT2,
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _LLAMA,
    "BertModel": _BERT_ENCODER,
    "BertForMaskedLM": _BERT,
    "BertForPreTraining": _BERT,
}
# Architectures by model type, where config.json names none.
_OF_TYPES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "bert": "BertModel",
}

_TYPES = {architecture: kind for kind, architecture in _OF_TYPES.items()}


def load_pretrained(path: str | Path, *, dtype: torch.dtype = torch.float32) -> Pretrained:
    """Load a published model as one of ours, ready to run.

    It takes a folder written by Hugging Face's `save_pretrained`, with `config.json` and
    `model.safetensors` or its shards, of a family in `FAMILIES`; or a file of llama2.c, or a folder
    that holds one. No code of the folder is run, and nothing is unpickled. The logits are those of
    `transformers`.

    Args:
        path: The folder, or the file.
        dtype: The dtype of the weights.

    Returns: a `LanguageModel`, a `MaskedLanguageModel`, or for a BertModel its `Encoder`; in
    evaluation mode.

    Errors: an OSError where a file is missing or cannot be read; a ValueError where the weights are
    pickled, the architecture or a value of its config is unsupported, or tensors are missing,
    unexpected or of another shape.

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
            f"dtype takes torch.float32, bfloat16, float16 or float64, and got {dtype!r}."
        )
    if place.exists() and not place.is_dir():
        return load_llama2c(place).to(dtype)
    if not place.is_dir():
        raise FileNotFoundError(f"there is no {printable(str(place))}: check its name.")
    file = llama2c_file(place)
    if file is not None:
        return load_llama2c(file).to(dtype)
    values = read_object(place / "config.json", ANEW)
    architecture = _architecture(values, place)
    values |= {"model_type": _TYPES.get(architecture, values.get("model_type"))}
    family = FAMILIES[architecture]
    stored = StoredTensors(place)
    check_layers(values, place / "config.json", len(stored))
    config = _config(family, values, place)
    model = built_on_meta(family.model, config, stored.shapes, place / "config.json")
    sources, ignored = family.sources(config, stored), family.ignored(config)
    fill(model, sources, stored, where=str(place), ignored=ignored, dtype=dtype)
    return model.eval()


def _architecture(values: Mapping[str, Any], folder: Path) -> str:
    named = values.get("architectures")
    kind = values.get("model_type")
    first = named[0] if isinstance(named, list) and named else _OF_TYPES.get(str(kind), kind)
    if not isinstance(first, str) or first not in FAMILIES:
        raise ValueError(
            f"{printable(str(folder))} has the architecture {printable(str(first))}, and glasshead "
            f"loads {', '.join(FAMILIES)}: watch the model of transformers itself, by "
            "gh.watch(model, …)."
        )
    return first


def _config(family: Family, values: Mapping[str, Any], folder: Path) -> Any:
    name = str(folder / "config.json")
    if values.get("quantization_config") is not None:
        raise ValueError(
            f"{printable(name)} tells of quantized weights: save the model without quantization."
        )
    try:
        return family.config(ConfigValues(values, name))
    except (TypeError, ValueError) as error:
        if printable(name) in str(error):
            raise
        reason = str(error).removesuffix(".")
        raise ValueError(f"{printable(name)} does not tell of a model ({reason}).") from error
