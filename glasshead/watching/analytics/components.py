"""Components of the residual stream: what embeddings, heads, MLPs and biases have written to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.watching.errors import UnfollowedError, UnseenError
from glasshead.watching.residual.call_parts import CallParts, Side
from glasshead.watching.residual.nodes import Axes, Leaf, Node, Routed, Rows, leaves_of
from glasshead.watching.residual.replay import Share, shares
from glasshead.watching.seen import Seen


@dataclass(frozen=True)
class Component:
    """A component of the residual stream.

    Attributes:
        name: Name of the module that wrote it, or of the parameter.
        kind: "embedding", "heads", "module", "parameter" or "input".
        head: The head of an attention; None: it is not of a head.
        place: The place of its module in the run.
    """

    name: str
    kind: str
    head: int | None
    place: int

    def __str__(self) -> str:
        return self.name if self.head is None else f"{self.name} head {self.head}".strip()


@dataclass(frozen=True, eq=False)
class Split:
    """Products of vectors with a tensor of the run, split into components, at some tokens.

    Attributes:
        components: The components.
        parts: Their shares, `[rows, components]`.
        total: Their sums, computed at once.
        shares: The shares of the leaves, with what is pulled back to heads.
    """

    components: tuple[Component, ...]
    parts: Float[Tensor, "rows components"]
    total: Float[Tensor, " rows"]
    shares: Sequence[Share]

    @cached_property
    def place_of(self) -> dict[Component, int]:
        return {one: place for place, one in enumerate(self.components)}

    def on(self, components: Sequence[Component]) -> Float[Tensor, "rows components"]:
        """Return the shares of some components, 0 for those that have none."""
        known = self.place_of
        nothing = self.parts.new_zeros(len(self.parts))
        columns = [self.parts[:, known[one]] if one in known else nothing for one in components]
        return torch.stack(columns, -1)

    def pulled(self, component: Component) -> Float[Tensor, "rows value_dim"]:
        """Return what a head's output is multiplied by."""
        for one in self.shares:
            if one.leaf.order == component.place and one.pulled is not None:
                return one.pulled[:, component.head or 0]
        raise ValueError(f"sources needs a head, got {str(component)!r}.")

    def routed(self, component: Component) -> tuple[Leaf, Routed, Float[Tensor, "rows width"]]:
        """Return the leaf of experts, what they were given, and what multiplies their output."""
        for one in self.shares:
            leaf = one.leaf
            if leaf.order == component.place and leaf.routed is not None and one.routed is not None:
                return leaf, leaf.routed, one.routed
        raise ValueError(f"experts needs a component of experts, got {str(component)!r}.")


def split(
    name: str, node: Node | None, axes: Axes, rows: Rows, pulling: Tensor, why: str | None
) -> Split:
    """Split g·y into components, for a tensor y of the run.

    Args:
        name: Name of the module that it belongs to, for errors.
        node: The node of the tensor.
        axes: Its axes.
        rows: The tokens.
        pulling: g, in the layout of the tensor at these tokens.
        why: Why nothing is followed; None: it is.

    Errors: an `UnseenError` if it does not follow from what modules added to the stream.
    """
    if why is not None or node is None:
        raise UnseenError(_unknown(name, why))
    try:
        found, total = shares(node, axes, rows, pulling)
    except UnfollowedError as error:
        raise UnseenError(f"the parts of {name!r} are not known, as it {error}.") from error
    components, columns = [], []
    for one in sorted(found, key=lambda share: share.leaf.order):
        apart = one.of_rows if one.of_rows.ndim > 1 else one.of_rows[:, None]
        columns.append(apart)
        of_heads = one.pulled is not None
        components += [
            Component(one.leaf.name, one.leaf.kind, head if of_heads else None, one.leaf.order)
            for head in range(apart.shape[1])
        ]
    return Split(tuple(components), torch.cat(columns, 1), total, found)


def _unknown(name: str, why: str | None) -> str:
    if why is not None:
        return f"the parts of {name!r} are not known, as {why}."
    return (
        f"the parts of {name!r} are not known, as an operator between the residual stream and it "
        "is not linear, or its keys come from a cache. Omit it with layers=."
    )


def check_split(
    name: str, found: Split, parts: Tensor, true: Tensor, eps: float, size: Tensor | float = 0.0
) -> None:
    """Check that parts sum to a number of the model.

    Args:
        name: Name of the module that it belongs to.
        found: The components.
        parts: The parts, `[…, components]`.
        true: What the model computed.
        eps: The rounding of the model.
        size: The size of what may cancel within a part.

    Errors: an `UnseenError` if they do not.
    """
    tiny = torch.finfo(parts.dtype).tiny
    size = (parts.abs().sum(-1) + size).maximum(true.abs()).clamp(min=tiny)
    wrong = float(((parts.sum(-1) - true).abs() / size).amax())
    if not wrong <= tolerance(eps):
        last = max(found.components, key=lambda one: one.place)
        raise UnseenError(
            f"the parts of {name!r} must sum to it, but differ by {wrong:.2g} of their size, after "
            f"{str(last)!r}. Exclude {name!r} with layers=."
        )


def tolerance(eps: float) -> float:
    """Return how far parts may sum to another number, relative to their size.

    Args:
        eps: The rounding of the least precise dtype of the model.
    """
    return max(1e-10 if eps < 1e-12 else 1e-5, 8 * eps)


def parts_of_call(seen: Seen, name: str, what: str) -> tuple[CallParts, Side, Side]:
    """Return what is followed of the only call of the last text, its queries and its keys.

    Errors: a ValueError if it was not kept, or the text has several calls; an `UnseenError` if its
    queries and keys are not found.
    """
    text = seen[name].last_text
    if len(text) > 1:
        raise ValueError(
            f"{what} needs a text that is read at once, but the last of {name!r} has {len(text)} "
            "calls. Run the whole text in one call."
        )
    found = text[0].parts
    if found is None:
        raise ValueError(f"the parts of {name!r} were not kept. Watch with keep='parts'.")
    if found.query is None or found.key is None or found.query.length < 2:
        raise UnseenError(
            f"{what} needs queries and keys of two tokens at least, but {name!r} does not show "
            "them. Omit it with layers=."
        )
    return found, found.query, found.key


def component_of_side(parts: CallParts, side: Side, name: str) -> tuple[Component, Node] | None:
    """Return a component of queries or keys by its name, and the node of these.

    It is None if only the other side has the component.

    Errors: a ValueError if neither has it; an `UnseenError` if nothing is followed.
    """
    found: list[Component] = []
    for one in (side, parts.query, parts.key):
        if one is None or one.node is None or parts.why is not None:
            raise UnseenError(_unknown(parts.name, parts.why))
        own = [
            Component(leaf.name, leaf.kind, head, leaf.order)
            for leaf in leaves_of(one.node)
            for head in (range(leaf.shape[-3]) if leaf.kind == "heads" else [None])
        ]
        matching = [each for each in own if str(each) == name]
        if one is side and matching:
            return matching[0], one.node
        found += own
    component_of(found, name)
    return None


def component_of(components: Sequence[Component], given: "Component | str") -> Component:
    """Return a component by its name.

    Errors: a ValueError if there is none.
    """
    for one in components:
        if given in (one, str(one)):
            return one
    raise ValueError(f"there is no component {str(given)!r}; see names.")


def place_in(value: Any, count: int, what: str) -> int:
    """Return a place among tokens, heads or rows, of which negative ones count from the end.

    Errors: a TypeError or ValueError if there is no such place.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, got {value!r}.")
    if not -count <= value < count:
        raise ValueError(f"{what} must be in {-count}..{count - 1}, got {value}.")
    return value % count


def source_shares(
    seen: Seen, component: Component, pulled: Float[Tensor, " value_dim"], token: int, batch: int
) -> Float[Tensor, " keys"]:
    """Split what a head wrote at a token by the tokens that it attended to: P_ij (v_j·g).

    Args:
        seen: What a watch has seen.
        component: The head.
        pulled: g, what its output is multiplied by.
        token: The token.
        batch: The row of the batch.
    """
    calls = (call for call in seen[component.name] if call.parts is not None)
    call = next(call for call in calls if call.parts.context.order == component.place)
    weights, value = call.weights, call.parts.value.tensor
    if weights is None:
        raise ValueError(f"the weights of {component.name!r} were not kept.")
    head = component.head or 0
    row = weights[batch, head, token] if weights.shape[:-3] else weights[head, token]
    group = max(1, weights.shape[-3] // value.shape[-3])
    own = value.reshape(-1, *value.shape[-3:])[batch, head // group].to(pulled.dtype)
    return row.to(pulled.dtype) * (own @ pulled)[: row.shape[-1]]


def expert_shares(
    leaf: Leaf, routed: Routed, pulled: Float[Tensor, " width"], row: int
) -> Float[Tensor, " experts"]:
    """Split what experts wrote at a token by the expert: each is run alone, with its weight.

    Args:
        leaf: What they wrote.
        routed: What they were given.
        pulled: What their output is multiplied by.
        row: The token among those of all texts.

    Errors: an `UnseenError` if they do not add up; a ValueError if the model was deleted.
    """
    experts: Any = routed.experts()
    if experts is None:
        raise ValueError(f"experts needs the model, but {leaf.name!r} was deleted. Keep the model.")
    hidden, index, weights = (
        one.tensor[row : row + 1] for one in (routed.hidden, routed.chosen, routed.weights)
    )
    shares = pulled.new_zeros(experts.num_experts)
    with torch.no_grad():
        for expert in index.unique().tolist():
            written = experts(hidden, index, weights.masked_fill(index != expert, 0))
            shares[expert] = written[0].to(pulled) @ pulled
    whole = leaf.held.tensor[row].to(pulled)
    size = (whole.norm() * pulled.norm()).clamp(min=torch.finfo(pulled.dtype).tiny)
    wrong = float((shares.sum() - whole @ pulled).abs() / size)
    if not wrong <= tolerance(leaf.eps):
        raise UnseenError(
            f"the experts of {leaf.name!r} must add up to their output, but differ by {wrong:.2g} "
            "of its size. Read them as one component."
        )
    return shares


def listed(pairs: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for each name and number."""
    return [f"{number:+10.4g}  {name}" for name, number in pairs]
