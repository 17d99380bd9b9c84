"""Path patching: the part of one component in the queries and keys of a head is changed."""

from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.watching.analytics.components import component_of_side, parts_of_call
from glasshead.watching.interventions import ChangedCall, Intervention
from glasshead.watching.residual.call_parts import Side
from glasshead.watching.residual.replay import part_of
from glasshead.watching.seen import Seen


@dataclass(frozen=True, eq=False)
class PatchPart(Intervention):
    """Path patching: queries and keys lose what one component wrote, or take another text's.

    q_i ← q_i - q_i^c, or q_i - q_i^c + q̃_i^c, and so for the keys, where c is a component of the
    residual stream, as `score_parts` names it, and q̃ comes from another text of the same length.
    All other paths of the component stay. Heads that share keys change together.

    Args:
        run: What `gh.watch(model, keep="parts")` has seen of the text that is changed.
        component: The name of the component, such as "blocks.0.attention head 3".
        instead: What such a watch has seen of another text; None: the part is removed.
        side: "key", "query" or "both".
        heads: Query heads, counted from 0; None: all.
        queries: Positions of the queries, for the side of the queries; None: all.

    Errors: a ValueError if the side is another word. Within the block a ValueError if a run did not
    keep the parts of the attention, has no such component, or another shape, or the text is read in
    several calls, and an `UnseenError` as of `score_parts`.

    Source: Goldowsky-Dill et al. 2023 (Localizing model behavior with path patching); Wang et al.
    2023 (Interpretability in the wild), section 3.1.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model, tokens = gh.LanguageModel(config).eval(), torch.tensor([[3, 1, 4, 1, 5]])
    >>> with torch.no_grad(), gh.watch(model, keep="parts") as run:
    ...     logits = model(tokens)
    >>> patch = gh.PatchPart(run, "blocks.0.attention head 1", side="key")
    >>> with torch.no_grad(), gh.intervene(model, {"blocks.1.attention": patch}):
    ...     changed = model(tokens)
    >>> torch.equal(changed, logits)
    False
    """

    run: Seen
    component: str
    _: KW_ONLY
    instead: Seen | None = None
    side: str = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side not in ("key", "query", "both"):
            raise ValueError(f"side must be 'key', 'query' or 'both', got {self.side!r}.")

    def change_query(self, query: Tensor, call: ChangedCall) -> Tensor:
        if self.side == "key":
            return query
        changed = query + self._difference(query, call, "query")
        where = call.where(self, query)
        return changed if where is None else torch.where(where, changed, query)

    def change_key(self, key: Tensor, call: ChangedCall) -> Tensor:
        if self.side == "query":
            return key
        changed = key + self._difference(key, call, "key")
        if self.heads is None:
            return changed
        group = max(1, (call.heads or 1) // key.shape[-3])
        where = torch.zeros(key.shape[-3], 1, 1, dtype=torch.bool, device=key.device)
        where[[head // group for head in self.heads]] = True
        return torch.where(where, changed, key)

    @torch.no_grad()
    def _difference(self, like: Tensor, call: ChangedCall, side: str) -> Tensor:
        """Return what is added to the queries or keys."""
        difference = -self._part(self.run, like, call, side)
        if self.instead is not None:
            difference = difference + self._part(self.instead, like, call, side)
        return difference.to(like)

    def _part(
        self, run: Seen, like: Tensor, call: ChangedCall, side: str
    ) -> Float[Tensor, "*batch heads length dim"]:
        """Return what the component adds to the queries or keys in a run."""
        if call.name not in run:
            raise ValueError(f"PatchPart needs a run that observed {call.name!r}.")
        kept, query, key = parts_of_call(run, call.name, "PatchPart")
        own: Side = query if side == "query" else key
        if own.held.tensor.shape != like.shape:
            shapes = f"{list(like.shape)} where that run has {list(own.held.tensor.shape)}"
            raise ValueError(
                f"PatchPart needs a run of the same shape, but the {side} of {call.name!r} has "
                f"{shapes}. Run a text as long."
            )
        found = component_of_side(kept, own, self.component)
        if found is None:
            return torch.zeros_like(like)
        one, node = found
        return part_of(node, own.axes, one.place, one.head, own.held.tensor)
