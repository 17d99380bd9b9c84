"""The search of a beam, all rows at once.

The model's side (logits, the largest of them) stays on its device; what is kept of it, a few
numbers a text, is sorted on the CPU in float64, the same for every device.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.models.decoding.finished import Finished
from glasshead.models.decoding.generated import Generated
from glasshead.models.decoding.largest import largest
from glasshead.models.decoding.request import NextTokens, Request


class Texts(NamedTuple):
    """Texts of each row side by side, by falling log-probability.

    Attributes:
        tokens: Chosen so far.
        sums: Their log-probabilities; -inf for a place that holds no text.
        parents: Which text of the step before each goes on.
    """

    tokens: Int[Tensor, "rows texts length"]
    sums: Float[Tensor, "rows texts"]
    parents: Int[Tensor, "rows texts"]

    def taken(self, places: Int[Tensor, "rows some"]) -> "Texts":
        """Of each row the texts at these places."""
        tokens = self.tokens.gather(1, places[..., None].expand(-1, -1, self.tokens.shape[-1]))
        return Texts(tokens, self.sums.gather(1, places), self.parents.gather(1, places))


@torch.no_grad()
def beam_search(
    request: Request, *, width: int, candidates: int, penalty: Callable[[int], float]
) -> Generated:
    """The best texts of each row; `Beam` says which these are."""
    count = len(request.prompt)
    finished = [Finished(width, candidates, penalty) for _ in range(count)]
    rows, texts, fed = list(range(count)), _nothing_yet(count), request.prompt
    while rows:
        following = request.next(fed)
        fed_rows, fed_beams = texts.sums.shape
        extended = _extended(texts, following, width, len(request.ends))
        ends = torch.isin(extended.tokens[..., -1], torch.tensor(request.ends, dtype=torch.long))
        _collect_ended(extended, ends[:, :width], [finished[row] for row in rows])
        texts = _still_open(extended, ends, width)
        if texts.tokens.shape[-1] == request.max_tokens:
            _collect_cut_off(texts, [finished[row] for row in rows])
            break
        sums = texts.sums[:, 0].tolist()
        now, last = penalty(texts.tokens.shape[-1]), penalty(request.max_tokens)
        kept = [
            place
            for place, (row, best) in enumerate(zip(rows, sums, strict=True))
            if best > -torch.inf and not finished[row].suffices(best / now, best / last)
        ]
        rows, texts = [rows[place] for place in kept], Texts(*(part[kept] for part in texts))
        if rows:
            device = following.logits.device
            parents = (torch.tensor(kept)[:, None] * fed_beams + texts.parents).flatten()
            # To leave all rows where they are would copy the cache for nothing.
            if parents.tolist() != list(range(fed_rows * fed_beams)):
                request.steps.reorder(parents.to(device))
            fed = texts.tokens[..., -1].reshape(-1, 1).to(device, fed.dtype)
    return Generated([texts.best() for texts in finished])


def _nothing_yet(rows: int) -> Texts:
    return Texts(
        tokens=torch.empty(rows, 1, 0, dtype=torch.long),
        sums=torch.zeros(rows, 1, dtype=torch.float64),
        parents=torch.zeros(rows, 1, dtype=torch.long),
    )


def _extended(texts: Texts, following: NextTokens, width: int, ends: int) -> Texts:
    """The texts with one token more, the best first: enough that `width` of them do not end."""
    rows, beams, _ = texts.tokens.shape
    # No more than `ends` tokens end a text, so that these hold `width` others of it.
    logits, tokens = largest(following.logits, width + ends)
    steps = following.log_probabilities(logits).reshape(rows, beams, -1)
    sums = (texts.sums[..., None] + steps).flatten(1)
    # Stable: of equal sums the better text comes first, and of one text the lower token.
    sums, order = sums.sort(descending=True, stable=True)
    # At most `ends · width` texts end, `ends` for each that was open.
    most = width + ends * width
    sums, order = sums[:, :most], order[:, :most]
    parents = order // steps.shape[-1]
    chosen = tokens.cpu().reshape(rows, -1).gather(1, order)
    return Texts(torch.cat([texts.taken(parents).tokens, chosen[..., None]], -1), sums, parents)


def _still_open(extended: Texts, ends: Bool[Tensor, "rows texts"], width: int) -> Texts:
    """Of each row the best `width` texts that did not end, or as many as there are."""
    closed = ends | extended.sums.isneginf()
    most = int((~closed).sum(1).max())
    places = closed.long().sort(dim=1, stable=True).indices[:, : min(max(most, 1), width)]
    empty = closed.gather(1, places)
    # The model goes on with the best text in an empty place, too, and never with one that ended.
    texts = extended.taken(torch.where(empty, places[:, :1], places))
    return texts._replace(sums=texts.sums.masked_fill(empty, -torch.inf))


def _collect_ended(
    extended: Texts, ends: Bool[Tensor, "rows width"], finished: Sequence[Finished]
) -> None:
    found = ends & ~extended.sums[:, : ends.shape[1]].isneginf()
    for row, place in found.nonzero().tolist():
        *tokens, _ = extended.tokens[row, place].tolist()
        finished[row].end(tokens, float(extended.sums[row, place]))


def _collect_cut_off(texts: Texts, finished: Sequence[Finished]) -> None:
    for row, place in (~texts.sums.isneginf()).nonzero().tolist():
        finished[row].cut_off(texts.tokens[row, place].tolist(), float(texts.sums[row, place]))
