"""Check that the JSON files of a Hugging Face folder name no file, code or model outside it.

Transformers follows such names, with `local_files_only` too: it imports kernels and quantizers,
loads adapters and backbones, and opens other files than those that were checked.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from glasshead.drawing.printable import printable
from glasshead.files import read_object
from glasshead.models.pretrained.folder import AGAIN
from glasshead.tasks.data.files import shown

_READ = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
)
_SHOWN = 80
_ADAPTER = "adapter_config.json"
# Keys that need another library, another model or another file.
_REFUSED = {
    "quantization_config",
    "compression_config",
    "backbone",
    "use_pretrained_backbone",
    "use_timm_backbone",
    "transformers_weights",
    "configuration_files",
    "fast_tokenizer_files",
    "gguf_file",
    "_hf_peft_config_loaded",
}
# Files of tokenizers are found by the names that transformers gives them.
_FILE, _IGNORED_FILES = "_file", {"special_tokens_map_file"}
# What ships with transformers or PyTorch; others come from the hub.
_IMPLEMENTATION = "_implementation"
_OWN = {
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
    *("grouped_mm", "batched_mm", "linear_loop"),
    *("dynamic", "dynamic_full", "static", "sliding_window", "hybrid", "quantized", "offloaded"),
    *("offloaded_static", "offloaded_hybrid", "mamba"),
}


def hide_kernels() -> None:
    """Hide the package `kernels`, by which some models of transformers fetch code from the hub.

    Transformers looks for it once, when it is imported. A process that imported it before keeps it.
    """
    sys.modules.setdefault("kernels", cast("ModuleType", None))


def check_names(folder: Path) -> None:
    """Check the names in the JSON files of a folder of transformers.

    Errors: a ValueError for one that leads out of the folder, to code or to another library; as of
    `read_object` for a file that is broken.
    """
    if (folder / _ADAPTER).exists():
        raise ValueError(
            f"{shown(folder / _ADAPTER)} names a base model outside the folder. Merge the adapter "
            "into the model and save that."
        )
    for file in (folder / name for name in _READ):
        for key, value in _pairs(read_object(file, AGAIN)) if file.exists() else ():
            if _leads_out(key, value):
                raise ValueError(
                    f"{shown(file)} has {printable(f'{key}={value!r}'[:_SHOWN])}, which needs a "
                    "file, a library or a model outside the folder. Remove it from the file, or "
                    "save the model without it."
                )


def _leads_out(key: str, value: Any) -> bool:
    if value is None or value is False:
        return False
    if key.endswith(_IMPLEMENTATION):
        return any(name not in _OWN for name in _texts(value))
    if key.endswith(_FILE):
        return key not in _IGNORED_FILES
    return key in _REFUSED


def _texts(value: Any) -> Iterator[Any]:
    """Yield the names of an implementation, which is one, or one for each part of a model."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif value is not None:
        yield value if isinstance(value, str) else repr(value)


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a JSON value, nested ones included."""
    if isinstance(value, dict):
        yield from value.items()
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from _pairs(part)


def attention_of(config: Any, built: Any) -> str:
    """Return the attention that a model runs: one of PyTorch's own, whatever its config names.

    With `kernels` installed, transformers takes compiled code from the hub for other names, those
    of FlashAttention included.

    Args:
        config: The config of transformers.
        built: The class of the model.
    """
    named = getattr(config, "_attn_implementation", None)
    return "sdpa" if named != "eager" and getattr(built, "_supports_sdpa", False) else "eager"
