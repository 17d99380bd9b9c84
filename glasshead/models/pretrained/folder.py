"""Hugging Face folders: read their config.json and their tensors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from glasshead.drawing.printable import printable
from glasshead.files import check_regular, read_object
from glasshead.models.saving import differences, quoted_list, shapes_of
from glasshead.recipe.validation import shown

# Names of the number of layers in configs.
_LAYERS = {"num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"}
# Our names of the activations of feed-forwards, by those of transformers.
FEED_FORWARDS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# By the activation of the gate.
GATED_FEED_FORWARDS = {"gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
# Larger than any valid number of a config.
_LARGEST = 2**40
# MPT builds a bias for each head and position that its config allows, whatever the text's length.
_BIASED, _LONGEST = "max_seq_len", 2**20


class ConfigValues:
    """The values of a `config.json`, checked on access: a ValueError names another value.

    Args:
        values: The parsed values.
        where: Name of the file, for errors.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, printable(where)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of `name`; null counts as missing."""
        value = self._values.get(name)
        return default if value is None else value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"{name} in {self.where} must be a whole number of at least 1, got {value!r}. Use "
                "the config.json that belongs to the weights."
            )
        if value > _LARGEST:
            raise _too_large(self.where, name, value)
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number as a float."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} in {self.where} must be a number, got {value!r}.")  # noqa: TRY004 - what the file has is a value
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(
                f"{name} in {self.where} must be a number of 64 bits, got a whole number of "
                f"{int(value).bit_length()} bits."
            ) from error

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{name} in {self.where} must be true or false, got {value!r}.")  # noqa: TRY004 - what the file has is a value
        return value

    def choice(self, name: str, default: str, known: Mapping[str, str]) -> str:
        """Map one of some known names to ours."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in known:
            raise ValueError(
                f"{name} in {self.where} must be {' or '.join(known)}, got {value!r}. Load the "
                "model with transformers and use gh.watch(model, …)."
            )
        return known[value]

    def sizes(self) -> dict[str, Any]:
        """Return the fields of our config for sizes, which most families name alike."""
        return {
            "vocab_size": self.whole("vocab_size"),
            "d_model": self.whole("hidden_size"),
            "num_heads": self.whole("num_attention_heads"),
            "num_layers": self.whole("num_hidden_layers"),
            "d_hidden": self.whole("intermediate_size"),
        }

    def only(self, name: str, value: Any) -> None:
        """Check that a value is the only supported one."""
        if (given := self.get(name, value)) != value:
            raise ValueError(
                f"{name} in {self.where} must be {value!r}, got {given!r}. Load the model with "
                "transformers and use gh.watch(model, …)."
            )


def check_layers(values: Mapping[str, Any], file: Path, tensors: int) -> None:
    """Raise a ValueError if a config has more layers than there are tensors.

    Building millions of layers would take hours.
    """
    for name, value in _numbers(values):
        if name in _LAYERS and value > tensors:
            raise ValueError(
                f"{printable(str(file))} states {shown(value)} layers, but the weights are "
                f"{tensors} tensors. Use the config.json of the same model."
            )


def check_numbers(values: Mapping[str, Any], file: Path, tensors: int) -> None:
    """Check as `check_layers` does, and raise a ValueError for 0 layers or excessive numbers."""
    check_layers(values, file, tensors)
    for name, value in _numbers(values):
        if name in _LAYERS:
            ConfigValues({name: value}, str(file)).whole(name)
        if abs(value) > _LARGEST or (name == _BIASED and value > _LONGEST):
            raise _too_large(printable(str(file)), name, value)


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a config, nested ones included."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def _too_large(where: str, name: str, value: int) -> ValueError:
    return ValueError(
        f"{printable(name)}={shown(value)} in {where} needs more memory than any machine has. Use "
        "the config.json that belongs to the weights."
    )


AGAIN = "get it again"
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of `model.safetensors`, or of the shards of its index.

    Args:
        folder: The folder.

    Errors: an OSError if there are no weights, or a shard is missing; a ValueError if the
    weights are pickled, or a file is invalid.
    """

    def __init__(self, folder: Path) -> None:
        self._places = _places(folder)

    @property
    def shapes(self) -> dict[str, Sequence[int]]:
        """Shape of each tensor, without reading its values.

        Errors: a ValueError if a file cannot be read.
        """
        files = {file: _shapes(file) for file in dict.fromkeys(self._places.values())}
        places = self._places.items()
        return {name: files[file][name] for name, file in places if name in files[file]}

    def __getitem__(self, name: str) -> Tensor:
        file = self._places[name]
        try:
            check_regular(file)
            with safe_open(file, framework="pt") as opened:
                # A copy, as a memory-mapped tensor changes with the file.
                return opened.get_tensor(name).clone()
        except (SafetensorError, OSError) as error:
            raise _unreadable(file, error) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _places(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor; a whole file precedes an index, as in transformers."""
    whole = folder / _WHOLE
    if not whole.is_file():
        if (folder / _INDEX).is_file():
            return _indexed(folder)
        whole = _single_file(folder)
    return dict.fromkeys(_shapes(whole), whole)


def _indexed(folder: Path) -> dict[str, Path]:
    index = folder / _INDEX
    shards = read_object(index, AGAIN).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ValueError(
            f"{printable(str(index))} must have a weight_map, got none. Get the file again."
        )
    known: dict[str, set[str]] = {}
    for name, shard in shards.items():
        # A shard must be in the folder of its index.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ValueError(f"{printable(str(index))} must name files next to it, got {shard!r}.")
        if shard not in known:
            if not (folder / shard).is_file():
                raise FileNotFoundError(
                    f"{printable(str(index))} names {printable(shard)}, which does not exist. Put "
                    "it into the folder."
                )
            known[shard] = set(_shapes(folder / shard))
        if name not in known[shard]:
            raise ValueError(
                f"{printable(str(folder / shard))} lacks {printable(name)}, which the index "
                "lists. Use the files of one model."
            )
    # Tensors that the index does not name are reported as unexpected.
    every = {name: folder / shard for shard, names in known.items() for name in names}
    return every | {name: folder / shard for name, shard in shards.items()}


def _single_file(folder: Path) -> Path:
    """Return the only safetensors file of a folder, by any name.

    Errors: an OSError or ValueError if there is none, or several.
    """
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return files[0]
    if files:
        raise ValueError(
            f"{printable(str(folder))} has {len(files)} files of weights, but no {_INDEX}. Put "
            "the index next to them."
        )
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise ValueError(
            f"{printable(str(folder))} has its weights in {printable(pickled[0])} alone, which is "
            "pickled and could run any code. Save them as safetensors with "
            "model.save_pretrained(folder)."
        )
    raise FileNotFoundError(
        f"{printable(str(folder))} has no weights: there is no {_WHOLE} in it. Check its name."
    )


def _shapes(file: Path) -> dict[str, Sequence[int]]:
    """Read the shape of each tensor of a file.

    Errors: a ValueError if it cannot be read.
    """
    try:
        return shapes_of(file)
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or error
    return ValueError(
        f"{printable(str(file))} cannot be read as safetensors ({reason}). Get it again."
    )


@dataclass(frozen=True)
class TensorSource:
    """The source of one of our tensors.

    Attributes:
        names: Names of stored tensors.
        make: Function that makes our tensor of these.
    """

    names: tuple[str, ...]
    make: Callable[..., Tensor]


def same(name: str) -> TensorSource:
    """Return the source that copies a tensor."""
    return TensorSource((name,), lambda tensor: tensor)


def transposed(name: str) -> TensorSource:
    """Return the source that transposes a matrix."""
    return TensorSource((name,), lambda tensor: tensor.T)


def below(name: str, rows: int) -> TensorSource:
    """Return the source that leaves out the first rows of a table."""
    return TensorSource((name,), lambda tensor: tensor[rows:])


def stacked(*names: str) -> TensorSource:
    """Return the source that concatenates tensors along the first axis."""
    return TensorSource(names, lambda *tensors: torch.cat(tensors))


def prefix(names: Iterable[str], whole: str) -> str:
    """Return the prefix of stored names: `whole` of a model with its head, "" of one without.

    >>> prefix(["model.norm.weight", "lm_head.weight"], "model."), prefix(["norm.weight"], "model.")
    ('model.', '')
    """
    return whole if any(name.startswith(whole) for name in names) else ""


# The tensors of a module, by our names.
WEIGHT, BOTH = {"weight": "weight"}, {"weight": "weight", "bias": "bias"}


def of_blocks(
    count: int, at: str, modules: Iterable[tuple[str, Iterable[str], Mapping[str, str]]]
) -> dict[str, TensorSource]:
    """Return the source of each tensor of all blocks.

    Args:
        count: Number of blocks.
        at: What the names of stored blocks begin with, as "model.layers".
        modules: Each of our modules, the stored ones that are stacked in it, and the stored name of
            each of its tensors.

    >>> found = of_blocks(2, "layers", [("attention.output", ["self_attn.out_proj"], WEIGHT)])
    >>> found["blocks.1.attention.output.weight"].names
    ('layers.1.self_attn.out_proj.weight',)
    """
    return {
        f"blocks.{layer}.{ours}.{part}": stacked(*(f"{at}.{layer}.{one}.{own}" for one in stored))
        for layer in range(count)
        for ours, stored, parts in modules
        for part, own in parts.items()
    }


def fill(
    model: nn.Module,
    sources: Mapping[str, TensorSource],
    stored: Mapping[str, Tensor],
    *,
    where: str,
    ignored: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Load stored tensors into a model on the meta device.

    Args:
        model: Our model, on the meta device.
        sources: The source of each of its tensors.
        stored: The stored tensors.
        where: Name of the folder, for errors.
        ignored: Patterns of stored tensors that are not used, such as buffers.
        dtype: The dtype of our tensors.

    Errors: a ValueError that names tensors that are missing, unexpected, of another shape or not
    finite.
    """
    expected = {name for source in sources.values() for name in source.names}
    missing = sorted(expected - set(stored))
    surplus = sorted(
        name
        for name in set(stored) - expected
        if not any(fnmatchcase(name, pattern) for pattern in ignored)
    )
    if missing or surplus:
        raise ValueError(
            f"{printable(where)} does not fit its config: it {differences(missing, surplus)}. Use "
            "the config.json of the same model."
        )
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    made: dict[str, Any] = {}
    for name, source in sources.items():
        made[name] = tensor = _converted(source, stored, shapes[name], where).to(dtype)
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"the dtype of {printable(where)} must hold its numbers, got {dtype}, which does "
                f"not hold {quoted_list(source.names)}. Use torch.float32."
            )
    model.load_state_dict(made, assign=True)


def _converted(
    source: TensorSource, stored: Mapping[str, Tensor], shape: torch.Size, where: str
) -> Tensor:
    theirs = [stored[name] for name in source.names]
    for name, tensor in zip(source.names, theirs, strict=True):
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            raise ValueError(
                f"the weights in {printable(where)} must be floating-point numbers, got "
                f"{tensor.dtype} for {printable(name)}. Save the model without quantization."
            )
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"the weights in {printable(where)} must be finite, got NaN or infinity in "
                f"{printable(name)}. Get the file again."
            )
    try:
        tensor = source.make(*theirs)
    except (RuntimeError, IndexError):
        tensor = None
    if tensor is None or tensor.shape != shape:
        got = " and ".join(str(list(tensor.shape)) for tensor in theirs)
        raise ValueError(
            f"{printable(where)} does not fit its config: {quoted_list(source.names)} must give "
            f"{list(shape)}, got {got}. Use the config.json of the same model."
        )
    return tensor.contiguous()
