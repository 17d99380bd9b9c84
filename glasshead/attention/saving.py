"""A recipe described: JSON that says of what it is made, and the tensors that belong to it.

Each part is one of ours, told by the name of its class and the arguments that make it again; so a
file can bring numbers, and never code.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.files import from_json, to_json
from glasshead.attention.narrowed_biases import Diagonals, HidingDiagonals, OfHeadBias
from glasshead.attention.narrowed_masks import OfHead
from glasshead.recipe.biases import ALiBi, RelativeBias
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.masks.kinds import Band, Dense, Documents, Keys, KeysBelow
from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian, ScaledDot


class _Kind(NamedTuple):
    """How a part is made again.

    Attributes:
        make: Its class.
        arguments: Of the constructor, and attributes of the part.
        learned: Its parameters, by their names in a state dict.
    """

    make: type
    arguments: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()


_MASKS = (AllOf, AnyOf, Band, Dense, Documents, Keys, KeysBelow, Not)
_KINDS: dict[str, _Kind] = {
    kind.make.__name__: kind
    for kind in (
        *(_Kind(make, tuple(field.name for field in fields(make))) for make in _MASKS),
        *(_Kind(make, ("beta",)) for make in (Cosine, Dot, Gaussian, ScaledDot)),
        _Kind(Additive, ("dim", "hidden", "beta"), ("W_query.weight", "W_key.weight", "v")),
        _Kind(ALiBi, ("heads",)),
        *(_Kind(make, ("table", "queries")) for make in (Diagonals, HidingDiagonals)),
        _Kind(RelativeBias, ("heads", "buckets", "max_distance", "bidirectional"), ("weight",)),
        _Kind(Softmax),
        _Kind(SoftmaxOne, ("sink",)),
    )
}
# Arguments that a part does not keep under their names.
_FOUND = {("Additive", "hidden"): lambda part: len(part.v)}


def described(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """What JSON says of a value; its tensors are put among `tensors`, named by their place.

    Args:
        value: None, a number, a word, a tensor, a part of a recipe, or a tuple of these.
        place: Where the value belongs, such as "mask".
        tensors: Those found so far.

    Errors: a TypeError for a part of a user's own, which nothing here could make again.

    >>> import glasshead as gh
    >>> tensors = {}
    >>> described(gh.causal() & ~gh.padding([3]), "mask", tensors)["is"], tensors
    ('AllOf', {'mask.masks.1.mask.lengths': tensor([3])})
    """
    if isinstance(value, Tensor):
        tensors[place] = value
        return {"tensor": place}
    if isinstance(value, tuple):
        return [described(one, f"{place}.{number}", tensors) for number, one in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return to_json(value)
    if isinstance(value, OfHead | OfHeadBias):
        value = value.whole  # Of a user's own, which is refused by its own name.
    name = type(value).__name__
    kind = _KINDS.get(name)
    if kind is None or kind.make is not type(value):
        raise TypeError(
            f"Weights.save takes a recipe of glasshead's own parts, and its "
            f"{place.split('.', 1)[0]} has a {name}, which a file cannot make again: save "
            f"W.dense(), or parts of it."
        )
    told = {
        argument: described(_argument(value, name, argument), f"{place}.{argument}", tensors)
        for argument in kind.arguments
    }
    learned = {name: value.get_parameter(name) for name in kind.learned}
    tensors |= {f"{place}.{name}": parameter for name, parameter in learned.items()}
    # PyTorch may multiply in another order by what requires a gradient, and round otherwise.
    trained = {name: parameter.requires_grad for name, parameter in learned.items()}
    return {"is": name, "of": told, "trained": trained}


def restored(told: Any, place: str, tensors: Mapping[str, Tensor]) -> Any:
    """The value that `described` has told of.

    Errors: whatever a description leads to that was not made there.
    """
    if isinstance(told, list):
        return tuple(restored(one, f"{place}.{number}", tensors) for number, one in enumerate(told))
    if not isinstance(told, dict) or "float" in told:
        return from_json(told)
    if "tensor" in told:
        return tensors[told["tensor"]]
    kind = _KINDS[told["is"]]
    arguments = {
        argument: restored(told["of"][argument], f"{place}.{argument}", tensors)
        for argument in kind.arguments
    }
    if not kind.learned:
        return kind.make(**arguments)
    # Parameters that are not there yet take no numbers from a generator.
    with torch.device("meta"):
        part = kind.make(**arguments)
    state = {name: tensors[f"{place}.{name}"] for name in kind.learned}
    _check_shapes(part, state)
    part.load_state_dict(state, strict=False, assign=True)
    for name in kind.learned:
        part.get_parameter(name).requires_grad_(told["trained"][name] is True)
    return part


def _argument(part: Any, name: str, argument: str) -> Any:
    found = _FOUND.get((name, argument))
    return getattr(part, argument) if found is None else found(part)


def _check_shapes(part: nn.Module, state: Mapping[str, Tensor]) -> None:
    for name, tensor in state.items():
        expected = part.get_parameter(name)
        if (
            expected.shape != tensor.shape
            or expected.is_floating_point() != tensor.is_floating_point()
        ):
            raise ValueError(
                f"{name} takes {list(expected.shape)}, and got {tensor.dtype} {list(tensor.shape)}"
            )
