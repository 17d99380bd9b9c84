"""Logit parts: a logit as a sum of what embeddings, heads, MLPs and biases wrote."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.observe import import_pandas
from glasshead.watching.analytics.components import (
    Component,
    Split,
    check_split,
    component_of,
    expert_shares,
    listed,
    place_in,
    source_shares,
    split,
    tolerance,
)
from glasshead.watching.errors import UnseenError
from glasshead.watching.residual.nodes import Axes, Batch, Rows, Text
from glasshead.watching.residual.replay import alone, value_of
from glasshead.watching.residual.tape import Output
from glasshead.watching.seen import Seen

if TYPE_CHECKING:
    import pandas as pd


class LogitParts:
    """A logit, or the difference of two, split into components of the residual stream.

    Attributes:
        components: The components, in the order in which the model wrote them.
        names: Their names.
        logit: The logit, or logit - logit of `against`.
        parts: What each component adds to it, `[components]`.
        token, against, query: As given; a token that was not given is the most likely one.
    """

    def __init__(
        self, seen: Seen, found: Split, query: int, batch: int, token: int, against: int | None
    ) -> None:
        self._seen, self._found, self._batch = seen, found, batch
        self._batches = int(seen.logits().shape[0])
        self.query, self.token, self.against = query, token, against
        self.components, self.parts, self.logit = found.components, found.parts[0], found.total[0]

    @property
    def names(self) -> list[str]:
        return [str(one) for one in self.components]

    def sum(self) -> Float[Tensor, ""]:
        """Return the sum over all components, which equals `logit`."""
        return self.parts.sum()

    @property
    def lens(self) -> Float[Tensor, " components"]:
        """The logit lens: what the components so far give, at the scale of the last norm.

        Source: nostalgebraist 2020 (Interpreting GPT: the logit lens); here at a fixed scale, so
        that steps are parts.
        """
        return self.parts.cumsum(0)

    def sources(self, component: "Component | str") -> Float[Tensor, " keys"]:
        """Split the part of a head by the tokens that it attended to: Σ_j P_ij (v_j·g).

        Errors: a ValueError if it is not a head.
        """
        one = component_of(self.components, component)
        pulled = self._found.pulled(one)[0]
        return source_shares(self._seen, one, pulled, self.query, self._batch)

    def experts(self, component: "Component | str") -> Float[Tensor, " experts"]:
        """Split the part of a mixture of experts by the expert; those not chosen have 0.

        Errors: a ValueError if it is not of experts, or the model was deleted.
        """
        leaf, routed, pulled = self._found.routed(component_of(self.components, component))
        row = self._batch * (leaf.shape[0] // self._batches) + self.query
        return expert_shares(leaf, routed, pulled[0], row)

    def top(self, count: int = 8) -> list[tuple[Component, float]]:
        """Return the components with the largest parts, and these."""
        order = self.parts.abs().argsort(descending=True)[:count].tolist()
        return [(self.components[place], float(self.parts[place])) for place in order]

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table with a row for each component: its part, and the logit lens.

        Errors: a MissingLibraryError without pandas.
        """
        pandas = import_pandas()
        index = pandas.Index(self.names, name="component")
        columns = {"part": self.parts.tolist(), "lens": self.lens.tolist()}
        return pandas.DataFrame(columns, index=index)

    def __repr__(self) -> str:
        minus = "" if self.against is None else f" - {self.against}"
        title = f"LogitParts of token {self.token}{minus} at {self.query}: {float(self.logit):.4g}"
        return "\n".join([title, *listed([(str(one), part) for one, part in self.top()])])


def logit_parts(
    seen: Seen,
    token: int | None = None,
    against: int | None = None,
    *,
    query: int = -1,
    batch: int = 0,
) -> LogitParts:
    """Split a logit, or the difference of two, into what each component of the model wrote.

    logit = u·norm(Σ_c x_c) = Σ_c u·J x_c + b, where u is the row of the output projection, or the
    difference of two, x_c what a component added to the residual stream, and J the last norm at its
    scale in this run: direct logit attribution. A softcap after the projection is not included.

    Args:
        seen: What `gh.watch(model, keep="parts")` has seen, of the whole model; its last pass.
        token: The token; None: the most likely one.
        against: A token whose logit is subtracted; None: none.
        query: The place whose next token it is; negative ones count from the end.
        batch: The row of the batch.

    Errors: a TypeError or ValueError if an argument is invalid, or the parts were not kept; an
    `UnseenError` if the model gives no logits that follow from its residual stream.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits), section "Direct
    path"; nostalgebraist 2020 (Interpreting GPT: the logit lens).

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> with torch.no_grad(), gh.watch(model, keep="parts") as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> parts = gh.logit_parts(seen, token=7, against=2)
    >>> torch.allclose(parts.sum(), logits[0, -1, 7] - logits[0, -1, 2], atol=1e-6)
    True
    >>> parts.sources("blocks.1.attention head 0").shape
    torch.Size([5])
    """
    output = _output(seen)
    batches, tokens, vocabulary = output.shape
    query, batch = place_in(query, tokens, "query"), place_in(batch, batches, "batch")
    axes = ((Batch(batches) if batches > 1 else 1,), (Text(tokens),), (vocabulary,))
    last = _logits(output, axes, tokens - 1, batch)
    _check_logits(output, last, batch)
    logits = last if query == tokens - 1 else _logits(output, axes, query, batch)
    token = int(logits.argmax()) if token is None else place_in(token, vocabulary, "token")
    g = torch.zeros(1, 1, vocabulary, dtype=logits.dtype, device=logits.device)
    g[..., token] += 1
    if against is not None:
        against = place_in(against, vocabulary, "against")
        g[..., against] -= 1
    found = split("the logits", output.node, axes, _row(query, batch), g, None)
    check_split("the logits", found, found.parts, found.total, output.node.eps)
    return LogitParts(seen, found, query, batch, token, against)


def head_logits(
    seen: Seen, name: str, looks: Sequence[tuple[int, int]]
) -> Float[Tensor, "looks vocab"] | None:
    """Return what heads of an attention add to all logits; None if the model gives none.

    Args:
        seen: What a watch has seen of one text.
        name: Name of the attention.
        looks: The head and the query of each.

    Errors: an `UnseenError` if the logits do not follow from the residual stream.
    """
    (call,), output = seen[name].last_text, seen.logits()
    if output is None or len(output.shape) != 3 or call.parts is None:
        return None
    batches, tokens, vocabulary = output.shape
    axes = ((Batch(batches) if batches > 1 else 1,), (Text(tokens),), (vocabulary,))
    _check_logits(output, _logits(output, axes, tokens - 1, 0), 0)
    heads, queries = torch.tensor([*looks]).T
    rows, order = Rows(torch.zeros_like(queries), queries), call.parts.context.order
    dtype = torch.promote_types(output.last.dtype, torch.float32)
    return alone(output.node, axes, rows, order, heads, dtype).reshape(len(looks), vocabulary)


def _output(seen: Seen) -> Output:
    """Return what is followed of the logits.

    Errors: a ValueError if nothing was kept, an `UnseenError` if they are not followed.
    """
    if all(call.parts is None for watched in seen.values() for call in watched):
        raise ValueError("the parts were not kept. Watch with keep='parts'.")
    output = seen.logits()
    if output is None or len(output.shape) != 3:
        raise UnseenError(
            "logit_parts needs a model that returns logits [batch, tokens, vocabulary] as a linear "
            "function of its residual stream, but this one does not. Watch one that ends with an "
            "output projection."
        )
    return output


def _row(query: int, batch: int) -> Rows:
    return Rows(torch.tensor([batch]), torch.tensor([query]))


def _logits(output: Output, axes: Axes, query: int, batch: int) -> Float[Tensor, " vocab"]:
    dtype = torch.promote_types(output.last.dtype, torch.float32)
    return value_of(output.node, axes, _row(query, batch), dtype).reshape(-1)


def _check_logits(output: Output, ours: Float[Tensor, " vocab"], batch: int) -> None:
    """Check that the last logits follow from the residual stream.

    Errors: an `UnseenError` if they do not.
    """
    theirs = output.last.reshape(-1, output.shape[-1])[batch].to(ours)
    wrong = float((theirs - ours).abs().amax() / theirs.abs().amax().clamp(min=1e-30))
    if not wrong <= tolerance(output.node.eps):
        raise UnseenError(
            f"the parts must sum to the logits, but differ by {wrong:.2g} of their size. A module "
            "may add what operators do not show."
        )
