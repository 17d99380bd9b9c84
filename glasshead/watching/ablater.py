"""Ablater: which heads one `ablate` removes, and what removing them is."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from glasshead.watching.naming import calling, names_of


def without_heads(x: Tensor, heads: Sequence[int], axis: int) -> Tensor:
    """The same numbers, but 0 for those of some heads, which have no gradient then.

    >>> without_heads(torch.ones(2, 3), [0, 2], axis=-1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if not heads:
        return x
    return x.index_fill(axis, torch.tensor(heads, device=x.device), 0.0)


class Ablater:
    """Knows which heads each attention of a model loses, and which attentions it met.

    Args:
        model: What runs.
        heads: Which, by the names of their modules.

    Attributes:
        compiled: Whether a part of what ran, and may lose heads, was compiled meanwhile.

    Errors: a ValueError for a name that no module has.
    """

    def __init__(self, model: nn.Module, heads: Mapping[str, Sequence[int]]) -> None:
        self._kind, self._names, self._heads = type(model).__name__, names_of(model), heads
        self._met: dict[str, None] = {}
        self.compiled = False
        known = list(self._names.values())
        for name in heads:
            if name not in known:
                near = get_close_matches(name, known, n=3, cutoff=0.0)
                raise ValueError(
                    f"ablate takes names of modules that attend, as watch gives them, and got "
                    f"{name!r}, which names none: did you mean one of {_listed(near)}?"
                )

    def removed(self, module: nn.Module | None, count: int | None) -> Sequence[int]:
        """Which heads an attention loses that has run.

        Args:
            module: Whose it is; None: that of the innermost module that is being called.
            count: How many heads it has; None: it was given no axis of heads.

        Errors: a ValueError where a head is not there.
        """
        if module is None or module not in self._names:
            module = calling(self._names)
        if module is None:
            return ()
        name = self._names[module]
        self._met[name] = None
        heads = self._heads.get(name, ())
        if heads and count is None:
            raise ValueError(
                f"ablate takes attention with an axis of heads, and {name!r} was given none: leave "
                f"it out."
            )
        if count is not None and max(heads, default=-1) >= count:
            raise ValueError(
                f"ablate takes heads that are there, and {name!r} has {count}, counted from 0, and "
                f"not {max(heads)}: name others."
            )
        return heads

    def is_compiled(self) -> None:
        """Take note that a part of what runs is being compiled, where it may lose heads."""
        module = calling(self._names)
        # Of a model that is compiled as a whole no module is called any more.
        name = "" if module is None else self._names[module]
        if any(not name or f"{one}.".startswith(f"{name}.") for one in self._heads):
            self.compiled = True

    def check_met(self) -> None:
        """Say loudly which attention has kept its heads, as it was never met.

        Errors: a RuntimeError where there is one.
        """
        if self.compiled:
            raise RuntimeError(
                "ablate removes heads of what is not compiled, and a part of what ran was compiled "
                "on the way: run it as it was before torch.compile, and give generate "
                "disable_compile=True."
            )
        missed = [name for name in self._heads if name not in self._met]
        if missed and self._met:
            raise RuntimeError(
                f"ablate met no attention at {_listed(missed)}, only at {_listed(self._met)}: take "
                f"such names; what computes its attention by code of its own cannot be ablated."
            )
        if missed:
            raise RuntimeError(
                f"ablate met no attention of {self._kind}: run the model inside the block and in "
                f"the thread that opened it; attention that goes neither through "
                f"F.scaled_dot_product_attention nor the attention interface of transformers "
                f"cannot be ablated."
            )


def _listed(names: Sequence[str] | Mapping[str, None]) -> str:
    """A few of them."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")
