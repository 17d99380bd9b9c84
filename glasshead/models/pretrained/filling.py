"""Filling: a model of ours with the tensors of another library, told name by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.drawing.printable import printable


@dataclass(frozen=True)
class Source:
    """Where one of our tensors comes from.

    Attributes:
        names: Of theirs.
        make: What makes ours of these.
    """

    names: tuple[str, ...]
    make: Callable[..., Tensor]


def same(name: str) -> Source:
    """A tensor as it is."""
    return Source((name,), lambda tensor: tensor)


def turned(name: str) -> Source:
    """A matrix whose rows are our columns."""
    return Source((name,), lambda tensor: tensor.T)


def stacked(*names: str) -> Source:
    """Several tensors, one below the other."""
    return Source(names, lambda *tensors: torch.cat(tensors))


def fill(
    model: nn.Module,
    sources: Mapping[str, Source],
    stored: Mapping[str, Tensor],
    *,
    where: str,
    ignored: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Give a model on the meta device its tensors.

    Args:
        model: Ours, whose tensors take no memory yet.
        sources: For each of its names, where that tensor comes from.
        stored: Theirs.
        where: What holds them, for errors.
        ignored: Patterns of those that are of no use here, such as buffers.
        dtype: What ours become.

    Errors: a ValueError that names the tensors that are missing, surplus, of another shape or not
    finite.
    """
    wanted = {name for source in sources.values() for name in source.names}
    missing = sorted(wanted - set(stored))
    surplus = sorted(
        name
        for name in set(stored) - wanted
        if not any(fnmatchcase(name, pattern) for pattern in ignored)
    )
    if missing or surplus:
        parts = (("lacks", missing), ("has besides", surplus))
        told = " and ".join(f"{word} {_listed(names)}" for word, names in parts if names)
        raise ValueError(
            f"{printable(where)} does not fit its config: it {told}: take the weights and the "
            "config.json of one model."
        )
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    made: dict[str, Any] = {}
    for name, source in sources.items():
        made[name] = tensor = _made(source, stored, shapes[name], where).to(dtype)
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"{printable(where)} takes a dtype that holds its numbers, and {dtype} does not "
                f"hold {_listed(source.names)}: take torch.float32."
            )
    model.load_state_dict(made, assign=True)


def _made(source: Source, stored: Mapping[str, Tensor], shape: torch.Size, where: str) -> Tensor:
    theirs = [stored[name] for name in source.names]
    for name, tensor in zip(source.names, theirs, strict=True):
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            raise ValueError(
                f"{printable(where)} takes weights as floating-point numbers, and "
                f"{printable(name)} has {tensor.dtype}: save the model without quantization."
            )
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"{printable(where)} takes finite weights, and {printable(name)} has NaN or "
                "infinity: take the file anew."
            )
    try:
        tensor = source.make(*theirs)
    except (RuntimeError, IndexError):
        tensor = None
    if tensor is None or tensor.shape != shape:
        got = " and ".join(str(list(tensor.shape)) for tensor in theirs)
        raise ValueError(
            f"{printable(where)} does not fit its config: {_listed(source.names)} is {got}, and "
            f"{list(shape)} has to come of it: take the weights and the config.json of one model."
        )
    return tensor.contiguous()


def _listed(names: Iterable[str]) -> str:
    names = [printable(name) for name in names]
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
