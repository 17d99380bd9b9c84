"""Ablation: the heads to ablate in a model, and a record of the attentions that it reached."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from glasshead.watching.module_calls import calling, names_of


def without_heads(x: Tensor, heads: Sequence[int], axis: int) -> Tensor:
    """Set some heads to 0 along an axis; no gradient flows through them.

    >>> without_heads(torch.ones(2, 3), [0, 2], axis=-1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if not heads:
        return x
    return x.index_fill(axis, torch.tensor(heads, device=x.device), 0.0)


class Ablater:
    """The heads to ablate in each attention of a model, and a record of the attentions reached.

    Args:
        model: The model to run.
        heads: Head indices by module name.

    Attributes:
        compiled: Whether a module with heads to ablate was compiled meanwhile.

    Errors: a ValueError for an unknown module name.
    """

    def __init__(self, model: nn.Module, heads: Mapping[str, Sequence[int]]) -> None:
        self._kind, self._names, self._heads = type(model).__name__, names_of(model), heads
        self._reached: dict[str, None] = {}
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
        """Return the heads to ablate in an attention that has run.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            count: Its number of heads; None: its inputs have no head axis.

        Errors: a ValueError for a head out of range.
        """
        if module is None or module not in self._names:
            module = calling(self._names)
        if module is None:
            return ()
        name = self._names[module]
        self._reached[name] = None
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

    def record_compiled(self) -> None:
        """Record that a module is being compiled, where it has heads to ablate."""
        module = calling(self._names)
        # A model compiled as a whole calls none of its modules.
        name = "" if module is None else self._names[module]
        if any(not name or f"{one}.".startswith(f"{name}.") for one in self._heads):
            self.compiled = True

    def check_complete(self) -> None:
        """Check that every named attention was reached.

        Errors: a RuntimeError where one was not, or a module was compiled.
        """
        if self.compiled:
            raise RuntimeError(
                "ablate removes heads of what is not compiled, and a part of what ran was compiled "
                "on the way: run it as it was before torch.compile, and give generate "
                "disable_compile=True."
            )
        missed = [name for name in self._heads if name not in self._reached]
        if missed and self._reached:
            raise RuntimeError(
                f"ablate met no attention at {_listed(missed)}, only at "
                f"{_listed([*self._reached])}: take such names; what computes its attention by "
                f"code of its own cannot be ablated."
            )
        if missed:
            raise RuntimeError(
                f"ablate met no attention of {self._kind}: run the model inside the block and in "
                f"the thread that opened it; attention that goes neither through "
                f"F.scaled_dot_product_attention nor the attention interface of transformers "
                f"cannot be ablated."
            )


def _listed(names: Sequence[str]) -> str:
    """Quote the first three names."""
    return ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")
