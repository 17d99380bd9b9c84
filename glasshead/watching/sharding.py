"""Shards: which heads or queries of an attention this rank computes, of those of all ranks."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import distributed, nn

from glasshead.recipe.problem import Problem
from glasshead.watching.foreign import attribute

_MATRIX = 2


class ShardError(RuntimeError):
    """An attention of which a rank computes a part that is not known; the message is a clause."""


@dataclass(frozen=True, eq=False)
class Shard:
    """The part of an attention that this rank computes.

    Attributes:
        axis: "heads", as in tensor parallel, or "queries", as in context parallel.
        first: Number of its first head or query among all.
        total: Number of heads or queries of all ranks together.
        group: The process group of these ranks.
        requested: The heads that were requested of all ranks together; None: all.
    """

    axis: str
    first: int
    total: int
    group: Any = field(repr=False)
    requested: tuple[int, ...] | None = None


# Whether there are ranks that may share an attention; PyTorch may be built without any.
has_ranks: Callable[[], bool] = getattr(distributed, "is_initialized", bool)


def head_shard(modules: Sequence[nn.Module], problem: Problem) -> Shard | None:
    """Return which heads this rank computes in tensor parallel; None if it computes all.

    They follow from the weights that project from the heads, or else to them, as `DTensor`: these
    are the heads of this rank if its part of such a weight has their width, and all heads if the
    whole weight has.

    Args:
        modules: The modules in progress from that of the attention outwards, innermost first.
        problem: The attention as it ran on this rank.

    Errors: a `ShardError` if weights are sharded and neither fits.
    """
    if not has_ranks():
        return None
    module = next((one for one in modules if next(one.parameters(), None) is not None), None)
    heads = problem.query.shape[-3]
    weights = [] if module is None else [*_sharded_weights(module)]
    if module is None or not weights:
        return _of_plain_weights(modules, heads)
    outgoing, incoming = _widths(problem)
    for dim, widths in (1, outgoing), (0, incoming):
        own = [one for one in weights if one.dim == dim]
        whole = [one for one in own if one.whole in widths]
        parts = [one for one in own if one.part in widths and one not in whole]
        if parts and not whole and not _plain_projections(module, outgoing | incoming):
            axes = {one.axis: one.mesh for one in parts}
            if len(axes) == 1:
                ((axis, mesh),) = axes.items()
                return _shard(mesh, axis, heads)
        if whole and not parts:
            return None
        if whole or parts:
            break
    raise ShardError


def is_tensor_parallel(model: nn.Module) -> bool:
    """Return whether ranks share a model so that each has to be given the same text."""
    if (attribute(model, "_tp_size") or 1) > 1:
        return True
    # FSDP shards rows alone.
    return has_ranks() and any(one.dim == 1 for one in _sharded_weights(model))


class _ShardedWeight(NamedTuple):
    """A matrix that is sharded along an axis of a device mesh.

    Attributes:
        mesh, axis: The mesh and its axis.
        dim: Which side of the matrix: 0 for what it gives, 1 for what it takes.
        part: The length of that side on each rank; 0 if ranks differ.
        whole: That of all ranks together.
    """

    mesh: Any
    axis: int
    dim: int
    part: int
    whole: int


def _sharded_weights(module: nn.Module) -> Iterator[_ShardedWeight]:
    """Yield the matrices of a module that are sharded over ranks."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as Sharded

    for parameter in module.parameters():
        if not isinstance(parameter, DTensor) or parameter.ndim != _MATRIX:
            continue
        mesh = parameter.device_mesh
        for axis, placement in enumerate(parameter.placements):
            if isinstance(placement, Sharded) and mesh.size(axis) > 1:
                part, whole = (x.shape[placement.dim] for x in (parameter.to_local(), parameter))
                part = part if part * mesh.size(axis) == whole else 0
                yield _ShardedWeight(mesh, axis, placement.dim, part, whole)


def _widths(problem: Problem) -> tuple[set[int], set[int]]:
    """Return the widths of what a projection takes from the heads, and of what gives it to them.

    These are queries, or queries, keys and values together.
    """
    heads, width = problem.query.shape[-3], problem.query.shape[-1]
    key_heads, value_width = problem.key.shape[-3], problem.value.shape[-1]
    packed = heads * width + key_heads * (width + value_width)
    return {heads * value_width}, {heads * width, packed}


def _plain_projections(module: nn.Module, widths: set[int]) -> bool:
    """Return whether a matrix that is not sharded may be a projection of these heads."""
    from torch.distributed.tensor import DTensor

    matrices = (one for one in module.parameters() if one.ndim == _MATRIX)
    return any(widths & {*one.shape} for one in matrices if not isinstance(one, DTensor))


def _of_plain_weights(modules: Sequence[nn.Module], heads: int) -> Shard | None:
    """Return the heads of a model of transformers before it sharded its weights as `DTensor`.

    Errors: a `ShardError` if its config has another number of heads.
    """
    model = next((one for one in modules if (attribute(one, "_tp_size") or 1) > 1), None)
    mesh = attribute(model, "_device_mesh")
    if model is None or mesh is None:
        return None
    ranks = attribute(model, "_tp_size", 1)
    counts = (attribute(attribute(one, "config"), "num_attention_heads", 0) for one in modules)
    total = next(filter(None, counts), 0)
    if total == heads:
        return None
    if total != heads * ranks:
        raise ShardError
    names = mesh.mesh_dim_names or ()
    return _shard(mesh, names.index("tp") if "tp" in names else mesh.ndim - 1, heads)


def _shard(mesh: Any, axis: int, heads: int) -> Shard:
    """Return the heads of this rank along an axis of a device mesh, which all has equally many."""
    rank, ranks = mesh.get_local_rank(axis), mesh.size(axis)
    return Shard("heads", rank * heads, ranks * heads, mesh.get_group(axis))
