"""Layers that mix tokens by other means than attention, in stacks of which other layers attend."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from torch import nn

# Names of classes that mix tokens by a recurrence, a linear attention or a convolution over time.
_MIXER = re.compile(
    r"mamba|ssm|delta_?(net|attention|rule)|linear_?attention|lightning_?attention|retention"
    r"|rwkv|rglru|recurrent_?block|short_?conv|long_?conv|hyena|[ms]lstm",
    re.IGNORECASE,
)
# Names of classes that treat tokens one by one, send them to experts, or combine streams of each.
_NO_MIXER = re.compile(
    r"norm|moe(block|layer)?$|mlp|expert|router|feed_?forward|ffn|hyper_?connection",
    re.IGNORECASE,
)
_STACKS = nn.ModuleList, nn.ModuleDict, nn.Sequential


class Unobserved(NamedTuple):
    """A layer that mixes tokens by other means than attention.

    Attributes:
        kind: The name of its class.
        selected: Whether the watch selected it by `layers`.
    """

    kind: str
    selected: bool = True


class OtherMixers:
    """Finder of the modules that mix tokens where other layers of their stack attend.

    They are proven by what they did, a product of two tensors of which none is a parameter, or a
    sum along a text; by a convolution over time or a recurrent network of PyTorch; or, as kernels
    of other libraries do not show what they do, by the names of their classes.

    Args:
        names: The modules of a model, and their names.
    """

    def __init__(self, names: dict[nn.Module, str]) -> None:
        self._modules = {name: module for module, name in names.items()}

    def found(self, attending: Iterable[str], mixed: Container[str]) -> dict[str, str]:
        """Return the names of these modules, and those of their classes.

        Args:
            attending: Names of the modules whose attention was seen, selected or not.
            mixed: Names of the modules that have computed such a product or sum.
        """
        attending = set(attending)
        around = {outer for name in attending for outer in _outer(name)}
        stacks = {one for one in around if isinstance(self._modules.get(one), _STACKS)}
        parents = {_parent(name) for name in attending}
        mixers: dict[str, str] = {}
        for name, module in self._modules.items():
            if not (name in mixed or _mixes(module)):
                continue
            within = [name, *_outer(name)]
            # A layer of a stack of which others attend, or a sibling of a module that does.
            layer = next((one for one in within if _parent(one) in stacks), None)
            if layer is None and name in mixed and _parent(name) in parents:
                layer = name
            if layer is None or not attending.isdisjoint(within) or name in around:
                continue
            within = within[: within.index(layer) + 1]
            if not any(_NO_MIXER.search(type(self._modules[one]).__name__) for one in within):
                top = self._owner(name, layer, around)
                mixers[top] = type(self._modules[top]).__name__
        return {
            name: kind for name, kind in mixers.items() if mixers.keys().isdisjoint(_outer(name))
        }

    def _owner(self, name: str, layer: str, around: set[str]) -> str:
        """Return the module that a part of PyTorch, such as a convolution, belongs to."""
        outer = name.rpartition(".")[0]
        part = type(self._modules[name]).__module__.startswith("torch.nn.")
        return outer if part and name != layer and outer not in around else name


def _mixes(module: nn.Module) -> bool:
    """Return whether a module mixes tokens by its class."""
    if isinstance(module, nn.Conv1d):
        return module.kernel_size[0] > 1
    return _is_mixer(type(module))


@cache
def _is_mixer(kind: type[nn.Module]) -> bool:
    # A layer of a library may be named after the mixer that it has.
    named = _MIXER.search(kind.__name__) and not kind.__name__.lower().endswith("decoderlayer")
    return bool(named) or issubclass(kind, nn.RNNBase)


def _parent(name: str) -> str | None:
    """Return the name of the module around one; None for the model itself."""
    return name.rpartition(".")[0] if name else None


def _outer(name: str) -> Iterator[str]:
    """Yield the names of the modules around a module, innermost first."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def interrupts(mixer: str, attending: Iterable[str]) -> bool:
    """Return whether a mixer lies between layers that attend, or next to attention in one of them.

    >>> layers = ["layers.1.attention", "layers.4.attention"]
    >>> [interrupts(f"layers.{layer}.mamba", layers) for layer in (0, 1, 3, 5)]
    [False, True, True, False]
    """
    sides = set()
    for name in attending:
        both = zip(mixer.split("."), name.partition("#")[0].split("."), strict=False)
        own, other = next((one for one in both if one[0] != one[1]), ("", ""))
        apart = own.isdigit() and other.isdigit()
        sides.add(int(own) > int(other) if apart else None)
    return None in sides or len(sides) > 1


def named(unobserved: Mapping[str, str]) -> str:
    """Return the name and the class of the first of some layers, and the number of the others."""
    name, kind = next(iter(unobserved.items()))
    others = f" and {len(unobserved) - 1} more" if len(unobserved) > 1 else ""
    return f"{kind} at {name!r}{others}"


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the names of layers by their numbers, where they differ in a number only so far.

    >>> in_order(["layers.1.attention", "layers.10.attention", "layers.0.mamba", "layers.2.mamba"])
    ['layers.0.mamba', 'layers.1.attention', 'layers.2.mamba', 'layers.10.attention']
    """
    placed: list[str] = []
    for name in names:
        at = next((n for n, one in enumerate(placed) if _precedes(name, one)), len(placed))
        placed.insert(at, name)
    return placed


def _precedes(name: str, other: str) -> bool:
    both = zip(name.split("."), other.split("."), strict=False)
    own, its = next((one for one in both if one[0] != one[1]), ("", ""))
    return own.isdigit() and its.isdigit() and int(own) < int(its)
