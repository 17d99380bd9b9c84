"""Trees of dicts, lists and numbers, parted into JSON and named tensors, and joined again."""

from typing import Any

from torch import Tensor

from glasshead.attention.tensor_files import from_json, to_json


def pack(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """What JSON can say of a tree, and its tensors by the names that stand there for them.

    Errors: a TypeError for what is neither a number, a text, nor made of them.

    >>> import torch
    >>> told, tensors = pack({"step": 3, "weights": {0: torch.ones(2)}, "betas": (0.9, 0.95)})
    >>> sorted(tensors)
    ['weights.0']
    >>> unpack(told, tensors)
    {'step': 3, 'weights': {0: tensor([1., 1.])}, 'betas': (0.9, 0.95)}
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, "", tensors), tensors


def unpack(told: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree again."""
    if isinstance(told, list):
        return [unpack(part, tensors) for part in told]
    if not isinstance(told, dict):
        return told
    ((kind, value),) = told.items()
    match kind:
        case "tensor":
            return tensors[value]
        case "float":
            return from_json(told)
        case "tuple":
            return tuple(unpack(part, tensors) for part in value)
        case "dict":
            return {key: unpack(part, tensors) for key, part in value}
    raise ValueError(f"{kind!r} is nothing that is packed")


def _pack(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        tensors[name] = tree
        return {"tensor": name}
    if tree is None or isinstance(tree, bool | int | float | str):
        return to_json(tree)
    if isinstance(tree, dict):
        # JSON's own objects have texts for keys, and optimizers number their parameters.
        pairs = tree.items()
        return {"dict": [[key, _pack(part, _under(name, key), tensors)] for key, part in pairs]}
    if isinstance(tree, list | tuple):
        parts = [_pack(part, _under(name, place), tensors) for place, part in enumerate(tree)]
        return {"tuple": parts} if isinstance(tree, tuple) else parts
    raise TypeError(f"{name} is {type(tree).__name__}, which a checkpoint cannot hold.")


def _under(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)
