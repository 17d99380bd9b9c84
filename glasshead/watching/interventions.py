"""Interventions: what `intervene` changes of an attention, each a small value of its own."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.recipe.validation import finite, whole_number
from glasshead.watching.layer_record import Watched
from glasshead.watching.recorded_call import Call
from glasshead.watching.seen import Seen
from glasshead.watching.sequences import CallPosition


@dataclass(frozen=True)
class ChangedCall:
    """An attention call that is changed, and its place in the text.

    Attributes:
        name: Name of the module.
        heads: Its number of query heads; None: its inputs have no head axis.
        place: Position of its first query and of its first key in the text; None if no
            intervention asks for it.
    """

    name: str
    heads: int | None
    place: CallPosition | None = None

    @property
    def position(self) -> int:
        """Position of the first query in the text."""
        return 0 if self.place is None else self.place.position

    def rows(self, queries: Sequence[int] | None, count: int) -> Sequence[int]:
        """Return which of its queries these positions are.

        Args:
            queries: Positions in the text; None: all.
            count: Number of queries of the call.
        """
        if queries is None:
            return range(count)
        rows = [one - self.position for one in queries]
        return [row for row in rows if 0 <= row < count]

    def where(
        self, intervention: "Intervention", like: Float[Tensor, "*batch heads queries dim"]
    ) -> Bool[Tensor, "#heads #queries 1"] | None:
        """Return where an intervention applies in a tensor; None: everywhere."""
        heads, queries = intervention.heads, intervention.queries
        if heads is None and queries is None:
            return None
        where = torch.ones(1, 1, 1, dtype=torch.bool, device=like.device)
        if heads is not None:
            where = where & _at(heads, self.heads or 0, like)[:, None, None]
        if queries is not None:
            count = like.shape[-2]
            where = where & _at(self.rows(queries, count), count, like)[:, None]
        return where


def _at(places: Sequence[int], count: int, like: Tensor) -> Bool[Tensor, " count"]:
    """Return True at some places of an axis."""
    known = torch.zeros(count, dtype=torch.bool, device=like.device)
    known[list(places)] = True
    return known


@dataclass(frozen=True, eq=False)
class Intervention:
    """Base class of the changes to an attention: of its queries, keys, mask or context.

    Attributes:
        heads: Query heads that are changed, counted from 0; None: all.
        queries: Positions in the text of the queries that are changed; None: all.
    """

    _: KW_ONLY
    heads: Sequence[int] | None = None
    queries: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "queries"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._places(getattr(self, name), name))

    def _places(self, given: Any, name: str) -> tuple[int, ...]:
        """Check a list of heads or positions.

        Errors: a TypeError or ValueError if it is none, or empty.
        """
        what = f"{type(self).__name__}({name}=…)"
        if not isinstance(given, list | tuple | range) or not len(given):
            raise TypeError(f"{what} must be a list of numbers such as [0, 3], got {given!r}.")
        return tuple(whole_number(one, what) for one in given)

    @property
    def hides(self) -> bool:
        """Whether it changes which keys are visible."""
        return type(self).change_visible is not Intervention.change_visible

    @property
    def scales(self) -> bool:
        """Whether it changes the queries."""
        return type(self).change_query is not Intervention.change_query

    @property
    def rekeys(self) -> bool:
        """Whether it changes the keys."""
        return type(self).change_key is not Intervention.change_key

    @property
    def positions(self) -> list[tuple[str, tuple[int, ...]]]:
        """The positions in the text that it names, by the name of the argument."""
        named = ((name, getattr(self, name, None)) for name in ("queries", "keys"))
        return [(name, places) for name, places in named if places is not None]

    def change_query(
        self, query: Float[Tensor, "*batch heads queries dim"], call: ChangedCall
    ) -> Float[Tensor, "*batch heads queries dim"]:
        """Return the queries to score the keys with."""
        del call
        return query

    def change_key(
        self, key: Float[Tensor, "*batch kv_heads keys dim"], call: ChangedCall
    ) -> Float[Tensor, "*batch kv_heads keys dim"]:
        """Return the keys that the queries are scored with."""
        del call
        return key

    def change_visible(
        self, visible: Bool[Tensor, "*#batch #heads queries keys"], call: ChangedCall
    ) -> Bool[Tensor, "*#batch #heads queries keys"]:
        """Return which keys each query may attend to."""
        del call
        return visible

    def change_context(
        self, context: Float[Tensor, "*batch heads queries value_dim"], call: ChangedCall
    ) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Return the output of the heads, before the output projection."""
        del call
        return context


@dataclass(frozen=True, eq=False)
class ZeroAblation(Intervention):
    """Zero ablation: the output of the heads is 0 before the output projection.

    No gradient flows through what is ablated, and its weights are computed all the same.

    Args:
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: a TypeError or ValueError if these are not lists of whole numbers of at least 0.

    Source: Michel et al. 2019 (Are sixteen heads really better than one?), section 2.3.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.ones(1, 2, 3, 1)
    >>> with gh.intervene(rule, {"": gh.ZeroAblation(heads=[1], queries=[0, 2])}):
    ...     rule(x, x, x).squeeze()
    tensor([[1., 1., 1.],
            [0., 1., 0.]])
    """

    def change_context(self, context: Tensor, call: ChangedCall) -> Tensor:
        return _where(call.where(self, context), torch.zeros_like(context), context)


@dataclass(frozen=True, eq=False)
class MeanAblation(Intervention):
    """Mean ablation: the output of each head is its mean over the queries of another run.

    The mean is taken over all texts and queries of that run, without padding. Zeros may be far from
    what later layers were trained on; the mean keeps what a head adds to every text.

    Args:
        run: What `gh.watch(model, keep="context")` has seen.
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: a TypeError or ValueError if an argument is invalid. Within the block a
    ValueError if the run did not observe the attention, or heads of another number or width.

    Source: Wang et al. 2023 (Interpretability in the wild), mean ablation.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.arange(3.0).reshape(1, 1, 3, 1)
    >>> with gh.watch(rule, keep="context") as run:
    ...     context = rule(0 * x, x, 6 * x)
    >>> with gh.intervene(rule, {"": gh.MeanAblation(run)}):
    ...     rule(x, x, x).flatten()
    tensor([6., 6., 6.])
    """

    run: Seen

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_run(self, self.run)

    def change_context(self, context: Tensor, call: ChangedCall) -> Tensor:
        rows = []
        for one in _of_run(self, self.run, call):
            kept, known = _kept(one, call).movedim(-3, 0), one.real
            real = None if known is None else known.expand(kept.shape[1:-1])
            rows.append(kept.flatten(1, -2) if real is None else kept[:, real])
        every = torch.cat(rows, 1)
        _check_shape(self, (every.shape[0], every.shape[-1]), context, call)
        at_least = torch.promote_types(every.dtype, torch.float32)
        mean = every.mean(1, keepdim=True, dtype=at_least).to(context)
        return _where(call.where(self, context), mean.expand_as(context), context)


@dataclass(frozen=True, eq=False)
class ActivationPatch(Intervention):
    """Activation patching: the heads output what another run output at the same positions.

    The run is of the same text length at least, as far as positions are patched, and of as many
    texts, or of one for all. While a text grows with a cache, each step takes its own position.

    Args:
        run: What `gh.watch(model, keep="context")` has seen; its last text.
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: a TypeError or ValueError if an argument is invalid. Within the block a
    ValueError if the run did not observe the attention, or another shape.

    Source: Vig et al. 2020 (Investigating gender bias in language models using causal mediation
    analysis); Meng et al. 2022 (Locating and editing factual associations in GPT), section 2.1.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.ones(1, 2, 3, 1)
    >>> with gh.watch(rule, keep="context") as run:
    ...     context = rule(x, x, 5 * x)
    >>> with gh.intervene(rule, {"": gh.ActivationPatch(run, heads=[0], queries=[2])}):
    ...     rule(x, x, x).squeeze()
    tensor([[1., 1., 5.],
            [1., 1., 1.]])
    """

    run: Seen

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_run(self, self.run)

    def change_context(self, context: Tensor, call: ChangedCall) -> Tensor:
        rows = call.rows(self.queries, context.shape[-2])
        if not rows:
            return context
        text = _of_run(self, self.run, call).last_text
        kept = torch.cat([_kept(one, call) for one in text], -2)
        start = call.position - text[0].position
        length = kept.shape[-2]
        if start + min(rows) < 0 or start + max(rows) >= length:
            raise ValueError(
                f"ActivationPatch needs a run that has the position, but {call.name!r} has query "
                f"{call.position + max(rows)} where that run has {length}. Run a text as long, or "
                "give queries=."
            )
        _check_shape(self, (kept.shape[-3], kept.shape[-1]), context, call)
        batch = kept.shape[:-3]
        if batch != context.shape[:-3] and batch.numel() != 1:
            raise ValueError(
                f"ActivationPatch needs a run of one text or of as many, but {call.name!r} has "
                f"{list(context.shape[:-3])} where that run has {list(batch)}. Run as many."
            )
        places = torch.arange(context.shape[-2], device=kept.device) + start
        patch = kept.index_select(-2, places.clamp(0, length - 1)).to(context)
        return _where(call.where(self, context), patch.expand_as(context), context)


@dataclass(frozen=True, eq=False)
class ScaleBeta(Intervention):
    """Scale β, the inverse temperature: weights become softmax(factor · β · score + bias).

    A factor above 1 makes attention sharper, one below 1 flatter, and 0 leaves the bias and the
    mask alone. It is applied to the query, rounded to the dtype of the model.

    Args:
        factor: Factor of β.
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: a TypeError or ValueError if the factor is not finite, or an argument is not a list.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(score=gh.Dot(1.0)), torch.tensor([[[1.0], [3.0]]])
    >>> with gh.intervene(rule, {"": gh.ScaleBeta(0.0)}):
    ...     rule(x, x, x).flatten()
    tensor([2., 2.])
    """

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factor", finite(self.factor, "ScaleBeta"))

    def change_query(self, query: Tensor, call: ChangedCall) -> Tensor:
        return _where(call.where(self, query), query * self.factor, query)


@dataclass(frozen=True, eq=False)
class _KeyIntervention(Intervention):
    keys: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "keys", self._places(self.keys, "keys"))

    def _named(self, visible: Tensor, call: ChangedCall) -> Bool[Tensor, " keys"]:
        """Return which keys of a call are those of the intervention."""
        first, count = call.place.first_key if call.place else 0, visible.shape[-1]
        return _at([one - first for one in self.keys if 0 <= one - first < count], count, visible)


@dataclass(frozen=True, eq=False)
class ForbidKeys(_KeyIntervention):
    """Attention knockout: keys are hidden, and their weight goes to the keys that remain.

    A query that sees no other key has an empty row: its weights and its context are 0.

    Args:
        keys: Positions of the keys in the text.
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: a TypeError or ValueError if these are not lists of whole numbers of at least 0. At
    the end of the block a RuntimeError if a text never had such a key.

    Source: Geva et al. 2023 (Dissecting recall of factual associations in auto-regressive language
    models), attention knockout.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.zeros(1, 4, 1)
    >>> value = torch.tensor([[[5.0], [0.0], [1.0], [2.0]]])
    >>> with gh.intervene(rule, {"": gh.ForbidKeys([0], queries=[3])}):
    ...     rule(x, x, value).flatten()
    tensor([2., 2., 2., 1.])
    """

    def change_visible(self, visible: Tensor, call: ChangedCall) -> Tensor:
        hidden = self._named(visible, call)
        where = call.where(self, visible)
        return visible & ~(hidden if where is None else hidden & where)


@dataclass(frozen=True, eq=False)
class ForceKeys(_KeyIntervention):
    """Force all attention to some keys: others are hidden, and these share all the weight.

    Weights among these keep their ratios. A query that sees none of them, as one before all of them
    in causal attention, has an empty row: its weights and its context are 0.

    Args:
        keys: Positions of the keys in the text.
        heads: Query heads, counted from 0; None: all.
        queries: Positions in the text of the queries; None: all.

    Errors: as of `ForbidKeys`.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.zeros(1, 3, 1)
    >>> with gh.intervene(rule, {"": gh.ForceKeys([0, 2])}):
    ...     rule(x, x, torch.tensor([[[5.0], [0.0], [1.0]]])).flatten()
    tensor([3., 3., 3.])
    """

    def change_visible(self, visible: Tensor, call: ChangedCall) -> Tensor:
        shown = self._named(visible, call)
        where = call.where(self, visible)
        return visible & (shown if where is None else shown | ~where)


def _where(where: Tensor | None, changed: Tensor, other: Tensor) -> Tensor:
    return changed if where is None else torch.where(where, changed, other)


def _check_run(intervention: Intervention, run: Any) -> None:
    if not isinstance(run, Seen):
        raise TypeError(
            f"{type(intervention).__name__} needs what a watch has seen, got "
            f'{type(run).__name__}. Give it the run of \'with gh.watch(…, keep="context") as '
            "run'."
        )


def _of_run(intervention: Intervention, run: Seen, call: ChangedCall) -> Watched:
    """Return what a run has of an attention.

    Errors: a ValueError if it has nothing, or the module runs several times in a forward pass.
    """
    if call.name not in run:
        raise ValueError(
            f"{type(intervention).__name__} needs a run of the same attention, but {call.name!r} "
            "was not seen there. Name it in layers= of that watch, and run the model."
        )
    watched = run[call.name]
    if len(watched.runs) > 1:
        raise ValueError(
            f"{type(intervention).__name__} needs an attention that runs once in a forward pass, "
            f"but {call.name!r} runs {len(watched.runs)} times. Use ZeroAblation there."
        )
    return watched


def _kept(one: Call, call: ChangedCall) -> Float[Tensor, "*batch heads queries value_dim"]:
    """Return the context of a call of a run.

    Errors: a ValueError if it was not kept.
    """
    if one.context is None:
        raise ValueError(
            f"the context of {call.name!r} was not kept in that run. Watch it with keep='context'."
        )
    return one.context


def _check_shape(
    intervention: Intervention, known: Sequence[int], context: Tensor, call: ChangedCall
) -> None:
    """Raise a ValueError if heads of a run have another number or width."""
    shape = context.shape[-3], context.shape[-1]
    if tuple(known) != shape:
        raise ValueError(
            f"{type(intervention).__name__} needs a run of the same heads, but {call.name!r} has "
            f"{shape[0]} of {shape[1]} dimensions where that run has {known[0]} of {known[1]}. "
            "Run this model."
        )
