"""llama2.c: a Llama in one file, seven numbers and then every weight as float32.

Source: https://github.com/karpathy/llama2.c, `export.py`, version 0, and `run.c`.
"""

import struct
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from glasshead.drawing.printable import printable
from glasshead.files import read_regular
from glasshead.models.language_model import LanguageModel, LanguageModelConfig

_HEAD = struct.Struct("<7i")
_MOST = 2**24


def is_llama2c(file: Path) -> bool:
    """Return whether a file has the length given by its header.

    >>> is_llama2c(Path("no such file"))
    False
    """
    # Opening a pipe would block.
    if not file.is_file():
        return False
    try:
        config = _config(file)
    except (OSError, ValueError):
        return False
    return file.stat().st_size == _size(config)


def llama2c_file(place: Path) -> Path | None:
    """Return the llama2.c model file of a path, a file or a folder that holds one, or None.

    Errors: a ValueError if a folder holds several.

    >>> llama2c_file(Path("stories260K.bin")) is None
    True
    """
    if place.exists() and not place.is_dir():
        return place if place.suffix == ".bin" else None
    if not place.is_dir() or (place / "config.json").exists():
        return None
    found = [file for file in sorted(place.glob("*.bin")) if is_llama2c(file)]
    if len(found) > 1:
        raise ValueError(
            f"{printable(str(place))} has several models, such as {found[0].name} and "
            f"{found[1].name}. Name one."
        )
    return found[0] if found else None


def load_llama2c(path: str | Path) -> LanguageModel:
    """Load a model from a file of llama2.c.

    Its rotary embedding rotates adjacent numbers, ours numbers half a head apart: the rows of the
    projections are permuted accordingly, which changes no score.

    Errors: an OSError if the file cannot be read; a ValueError for any other file.
    """
    file = Path(path)
    config = _config(file)
    expected, size = _size(config), file.stat().st_size
    if size != expected:
        raise ValueError(
            f"{printable(str(file))} must have the {expected} bytes that its header states, got "
            f"{size}. Use the whole file, in llama2.c's first format."
        )
    flat = torch.from_file(str(file), size=size // 4, dtype=torch.float32)[_HEAD.size // 4 :]
    if not torch.isfinite(flat).all():
        raise ValueError(
            f"the weights in {printable(str(file))} must be finite, got NaN or infinity. Get the "
            "file again."
        )
    with torch.device("meta"):
        model = LanguageModel(config)
    model.load_state_dict(_weights(config, _parts(flat, config)), assign=True)
    return model.eval()


def _config(file: Path) -> LanguageModelConfig:
    """Read the config from the header."""
    name = printable(str(file))
    try:
        head = read_regular(file, count=_HEAD.size)
    except OSError as error:
        raise type(error)(
            f"{name} cannot be read ({error.strerror}). Name a .bin file of llama2.c."
        ) from error
    if len(head) < _HEAD.size:
        raise ValueError(
            f"{name} must begin with seven numbers, got {len(head)} bytes. Name a .bin file of "
            "llama2.c."
        )
    width, hidden, layers, heads, kv_heads, vocabulary, length = _HEAD.unpack(head)
    numbers = (width, hidden, layers, heads, kv_heads, abs(vocabulary), length)
    if not all(0 < number < _MOST for number in numbers) or width % heads or heads % kv_heads:
        raise ValueError(
            f"{name} is not a llama2.c model: it begins with the numbers {list(numbers)}. Name a "
            ".bin file of llama2.c."
        )
    return LanguageModelConfig(
        vocab_size=abs(vocabulary),
        context_length=length,
        d_model=width,
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_layers=layers,
        d_hidden=hidden,
        positions="rotary",
        norm="rms",
        norm_eps=1e-5,
        feed_forward="swiglu",
        bias=False,
        dropout=0.0,
        # A negative vocabulary size means an untied output matrix.
        tied=vocabulary > 0,
    )


def _shapes(config: LanguageModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of the file, in order."""
    layers, width, hidden = config.num_layers, config.d_model, config.hidden
    key_width = (config.num_kv_heads or config.num_heads) * config.width
    angles = (config.context_length, config.width // 2)
    return {
        "embedding": (config.vocab_size, width),
        "attention_norm": (layers, width),
        "query": (layers, width, width),
        "key": (layers, key_width, width),
        "value": (layers, key_width, width),
        "output": (layers, width, width),
        "feed_forward_norm": (layers, width),
        "gate": (layers, hidden, width),
        "down": (layers, width, hidden),
        "up": (layers, hidden, width),
        "norm": (width,),
        "cosines": angles,
        "sines": angles,
        **({} if config.tied else {"vocabulary": (config.vocab_size, width)}),
    }


def _size(config: LanguageModelConfig) -> int:
    """Return the size of the file in bytes."""
    return _HEAD.size + 4 * sum(prod(shape) for shape in _shapes(config).values())


def _parts(flat: Tensor, config: LanguageModelConfig) -> dict[str, Tensor]:
    shapes = _shapes(config)
    cut = flat.split([prod(shape) for shape in shapes.values()])
    return {
        name: part.view(shape).clone()
        for (name, shape), part in zip(shapes.items(), cut, strict=True)
    }


def _weights(config: LanguageModelConfig, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by our names."""
    weights = {"embedding.tokens.weight": parts["embedding"], "norm.weight": parts["norm"]}
    if not config.tied:
        weights["output.weight"] = parts["vocabulary"]
    query, key = (in_halves(parts[name], config.width) for name in ("query", "key"))
    for layer in range(config.num_layers):
        at = f"blocks.{layer}"
        projected = torch.cat([query[layer], key[layer], parts["value"][layer]])
        gated = torch.cat([parts["gate"][layer], parts["up"][layer]])
        weights |= {
            f"{at}.attention.projections.stacks.0.weight": projected,
            f"{at}.attention.output.weight": parts["output"][layer],
            f"{at}.feed_forward.hidden.stacks.0.weight": gated,
            f"{at}.feed_forward.output.weight": parts["down"][layer],
            f"{at}.around_attention.norm.weight": parts["attention_norm"][layer],
            f"{at}.around_feed_forward.norm.weight": parts["feed_forward_norm"][layer],
        }
    return weights


def in_halves(matrices: Tensor, head_dim: int) -> Tensor:
    """Permute rows from the layout of adjacent rotary pairs to that of pairs half a head apart.

    Args:
        matrices: `[layers, rows, width]`.
        head_dim: Number of rows of a head.

    >>> in_halves(torch.arange(8).view(1, 8, 1), head_dim=4).flatten().tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    pairs = matrices.unflatten(1, (-1, head_dim // 2, 2))
    return pairs.transpose(2, 3).flatten(1, 3)
