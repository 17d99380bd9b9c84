"""Watcher: what one `watch` asks of each attention that its model meets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.asked import Asked
from glasshead.attention.weights import Weights
from glasshead.engines import reductions_of
from glasshead.engines.autocast import without_autocast
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.masks.dense import Dense
from glasshead.recipe.masks.mask import AllOf
from glasshead.recipe.normalizers.softmax import exponential
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic
from glasshead.watching.met import Met, keys_before
from glasshead.watching.naming import Layers, calling, names_of
from glasshead.watching.refusing import BudgetError, UnseenError
from glasshead.watching.standing import Standing
from glasshead.watching.verifying import differs
from glasshead.watching.watched import Call, Watched


@dataclass(frozen=True)
class Choice:
    """What is asked of each attention.

    Attributes:
        statistics: By name.
        heads: Whose; None: of all.
        keep: Whether its lazy weights are kept.
        budget: How many bytes these may take, of all calls together.
    """

    statistics: dict[str, Statistic]
    heads: tuple[int, ...] | None = None
    keep: bool = False
    budget: int = 2**31


class Watcher:
    """Observes each attention that is met in a model, and keeps what was seen.

    Attributes:
        watched: The attentions that were seen, by name, in the order in which they ran.
        own: The modules that computed a softmax by code of their own, by name: their class.
        compiled: Whether a part of what ran was compiled meanwhile.
    """

    def __init__(
        self, model: nn.Module, layers: str | Sequence[str] | None, choice: Choice
    ) -> None:
        self.model, self.choice = model, choice
        self.names = names_of(model)
        self.layers = Layers(layers, self.names.values())
        self.watched: dict[str, Watched] = {}
        self.own: dict[str, str] = {}
        self.compiled = False
        self._kept = 0
        self._shared: set[int] = set()
        self._standing = Standing()

    def name(self, module: nn.Module | None) -> str | None:
        """The name of a module, or of the innermost that is at work; None where it is not ours."""
        if module is None or module not in self.names:
            module = calling(self.names)
        if isinstance(module, nn.TransformerEncoderLayer):
            # It is one operator from end to end where it does not call this.
            module = module.self_attn
        return None if module is None else self.names[module]

    def saw(self, module: nn.Module | None, met: Callable[[], Met]) -> None:
        """Observe an attention, where its layer is asked for.

        Args:
            module: Whose it is; None: that of the innermost module that is being called.
            met: Tells what it was.

        Errors: a ValueError for a statistic that does not fit, a `BudgetError` where what is kept
        takes more than the budget, an `UnseenError` where the attention is not what it was taken
        for.
        """
        name = self.name(module)
        if name is None or name not in self.layers:
            return
        one = met()
        with torch.no_grad(), without_autocast(one.problem.query.device):
            if name not in self.watched and differs(one):
                raise UnseenError(
                    f"watch takes attention that follows from its queries, keys and mask, and that "
                    f"of {name!r} gave another output: leave it out by layers=."
                )
            self.watched.setdefault(name, Watched(name)).add(self._call(name, one))

    def computed_a_softmax(self, *, surely: bool) -> None:
        """Take note of a module that computes weights by itself, where nothing can be seen.

        Args:
            surely: Whether they are of attention; else its name or its class is to say so.
        """
        module = calling(self.names)
        if module is None:
            return
        name, kind = self.names[module], type(module).__name__
        if surely or any(word in f"{name} {kind}".lower() for word in ("attention", "attn")):
            self.own[name] = kind

    def check_seen(self) -> None:
        """Say loudly what was not seen.

        Errors: an `UnseenError` where there was no attention at all, none in what a pattern names,
        or one that cannot be seen.
        """
        if self.compiled:
            raise UnseenError(
                "watch sees what is not compiled, and a part of what ran was compiled on the way: "
                "watch it as it was before torch.compile, and give generate disable_compile=True."
            )
        hidden = {n: kind for n, kind in self.own.items() if n in self.layers and not self._saw(n)}
        if hidden:
            name, kind = next(iter(hidden.items()))
            others = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            raise UnseenError(
                f"watch sees attention that goes through scaled_dot_product_attention or the "
                f"attention interface of transformers, and {kind} at {name!r}{others} computes its "
                f"own: load the model with attn_implementation='sdpa' if it has one, or leave "
                f"these out by layers=."
            )
        self.layers.check_seen(self.watched)
        if not self.watched:
            raise UnseenError(
                f"watch saw no attention of {type(self.model).__name__}: run the model inside the "
                f"block and in the thread that opened it, and not compiled."
            )

    def _saw(self, name: str) -> bool:
        """Whether it was seen at work: within, or as a part of what was."""
        return any(
            f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in self.watched
        )

    def _call(self, name: str, met: Met) -> Call:
        """One call, observed."""
        last = self.watched[name][-1] if name in self.watched and len(self.watched[name]) else None
        position, first_key, offset = self._standing.of(met, last)
        problem = met.problem if offset is None else replace(met.problem, offset=offset)
        whole = keys_before(problem, first_key)
        asked = Asked(whole, self.choice.statistics)
        values = asked.finished(reductions_of(whole, asked.reductions))
        shape = tuple(whole.as_given(whole.query).shape[:-1])
        if self.choice.heads is not None:
            heads, axis = self._heads(name, problem), problem.query.ndim - 3
            values = {n: _of_heads(value, heads, axis) for n, value in values.items()}
            shape = (*shape[:-2], len(heads), shape[-1])
        return Call(
            shape,
            self.choice.statistics,
            values,
            position=position,
            first_key=first_key,
            keys=whole.scores_shape[-1],
            crossing=met.crossing,
            heads=self.choice.heads,
            weights=self._weights(name, met, problem) if self.choice.keep else None,
        )

    def _heads(self, name: str, problem: Problem) -> list[int]:
        """The heads that are asked for.

        Errors: a ValueError where one is not there.
        """
        heads, count = list(self.choice.heads or ()), problem.query.shape[-3]
        if problem.axes < 4:
            raise ValueError(
                f"heads takes attention that has some, and {name or 'the model'!r} was given "
                f"{problem.axes} axes, without heads: leave heads out, or narrow layers=."
            )
        if max(heads) >= count:
            raise ValueError(
                f"heads takes heads that are there, and {name!r} has {count}, counted from 0, and "
                f"not {max(heads)}: name others, or narrow layers=."
            )
        return heads

    def _weights(self, name: str, met: Met, problem: Problem) -> Weights:
        """The lazy weights, where there is still room for them."""
        if not exponential(problem.normalizer):
            raise ValueError(
                f"keep='weights' takes attention with a softmax, and {name!r} has "
                f"{type(problem.normalizer).__name__}: leave it out by layers=."
            )
        rows = problem.query.shape[:-1].numel()
        held = [problem.query, problem.key]
        for tensor in (*_tensors_of(problem.mask), *problem.biases):
            # Layers share these, and they live as long as the weights that hold them.
            if isinstance(tensor, Tensor) and id(tensor) not in self._shared:
                self._shared.add(id(tensor))
                held.append(tensor)
        self._kept += sum(x.numel() * x.itemsize for x in held) + rows * problem.dtype.itemsize
        if self._kept > self.choice.budget:
            raise BudgetError(
                f"keep='weights' takes at most budget={self.choice.budget} bytes, and would need "
                f"{self._kept} by {name!r}: raise budget=, or narrow layers=."
            )
        return Weights(problem, _logsumexp(met, problem))


def _logsumexp(met: Met, problem: Problem) -> Tensor | None:
    """What the kernel told of each row, and -inf of an empty one, of which kernels say 0."""
    if met.logsumexp is None:
        return None
    known = met.logsumexp.to(problem.dtype)
    # A band that hides the future alone shows each query something.
    if problem.mask is None or isinstance(problem.mask, Band):
        return known
    _, visible = problem.bias_and_visible(problem.mask, problem.tile())
    return known if visible is None else known.masked_fill(~visible.any(-1), -torch.inf)


def _tensors_of(mask: Mask | None) -> list[Tensor]:
    """What a mask holds, pair by pair."""
    if isinstance(mask, AllOf):
        return [tensor for one in mask.masks for tensor in _tensors_of(one)]
    return [mask.tensor] if isinstance(mask, Dense) else []


def _of_heads(value: Any, heads: list[int], axis: int) -> Any:
    """Some heads of a statistic's value."""
    if isinstance(value, Tensor):
        return value.index_select(axis, torch.tensor(heads, device=value.device))
    parts = [_of_heads(part, heads, axis) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
