"""Keys that the calls of a growing text share, so that each of them is kept once."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention.recompute import KnownRows, unmasked_scores
from glasshead.attention.weights import Weights
from glasshead.engines import reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Dot
from glasshead.statistics.reductions import Largest, LogSum

# A buffer grows by an eighth, so that its spare room stays small and copying linear.
_SPARE = 8
# Texts whose keys are remembered: a model may read a few in turn, as guidance does.
_RECENT = 4


class _Buffer:
    """Keys that were appended one after another, perhaps to those of an earlier buffer.

    Attributes:
        tensor: The keys, with spare room at the end.
        used: Number of keys that are there.
        before: The keys before these; None: there are none.
        rows: For each row of the batch its row in `before`; None: the same.
    """

    def __init__(
        self, tensor: Tensor, before: "KeptKeys | None" = None, rows: Tensor | None = None
    ) -> None:
        self.tensor, self.used, self.before, self.rows = tensor, tensor.shape[-2], before, rows

    @property
    def first(self) -> int:
        """Number of the first key of its own."""
        return 0 if self.before is None else len(self.before.span)

    @property
    def end(self) -> int:
        """Number after the last key."""
        return self.first + self.used

    def append(self, keys: Tensor, charge: Callable[[int], None]) -> None:
        """Append keys; what others read before stays as it is."""
        used = self.used + keys.shape[-2]
        room = self.tensor.shape[-2]
        if used > room:
            room = max(used, room + room // _SPARE)
            charge((room - self.tensor.shape[-2]) * _bytes(keys[..., :1, :]))
            grown = self.tensor.new_empty(*self.tensor.shape[:-2], room, self.tensor.shape[-1])
            grown[..., : self.used, :] = self.tensor[..., : self.used, :]
            self.tensor = grown
        self.tensor[..., self.used : used, :] = keys
        self.used = used


class KeptKeys:
    """The keys of a call: a range of those in a buffer and in the buffers before it.

    Attributes:
        shape: `(*batch, kv_heads, keys, dim)`.
    """

    def __init__(self, buffer: _Buffer, span: range) -> None:
        self.buffer, self.span = buffer, span
        tensor = buffer.tensor
        self.shape = torch.Size([*tensor.shape[:-2], len(span), tensor.shape[-1]])

    def tensor(self) -> Float[Tensor, "*batch kv_heads keys dim"]:
        """Return the keys: a view where they are of one buffer, else a copy."""
        parts: list[Tensor] = []
        buffer, start, stop = self.buffer, self.span.start, self.span.stop
        rows: Tensor | None = None
        while True:
            own = buffer.tensor[..., max(start - buffer.first, 0) : max(stop - buffer.first, 0), :]
            parts.append(own if rows is None else own[rows])
            if buffer.before is None or start >= buffer.first:
                break
            if buffer.rows is not None:
                rows = buffer.rows if rows is None else buffer.rows[rows]
            ahead = buffer.before.span.start
            start, stop = start + ahead, min(stop, buffer.first) + ahead
            buffer = buffer.before.buffer
        return parts[0] if len(parts) == 1 else torch.cat(parts[::-1], -2)

    def part(self, start: int, stop: int) -> "KeptKeys":
        """Return some of the keys, counted from the first of these."""
        return KeptKeys(self.buffer, range(self.span.start + start, self.span.start + stop))


class KeyStore:
    """The keys of one attention, each kept once for all calls of a text.

    A call continues a text if its keys are those of an earlier call and new ones after them. That
    is tested by content, as a model may evict, overwrite or reorder what its cache holds. Rows of
    a batch may change places, as beams do, and the first or last keys may be dropped.

    >>> store, key, charged = KeyStore(), torch.randn(1, 2, 7, 3), []
    >>> first = store.keep(key[..., :5, :], 5, charged.append, instead=None)
    >>> second = store.keep(key, 2, charged.append, instead=None)
    >>> second.tensor().equal(key), first.tensor().equal(key[..., :5, :]), sum(charged)
    (True, True, 168)
    """

    def __init__(self) -> None:
        self._recent: list[KeptKeys] = []
        self._instead = 0

    def weights(
        self, problem: Problem, logsumexp: Tensor | None, charge: Callable[[int], None]
    ) -> Weights:
        """Keep the weights of a call.

        Args:
            problem: The call; its recipe is kept as it is.
            logsumexp: Of each row, `[*batch, heads, queries]`; None: it is computed.
            charge: Called with bytes before they are taken; it may raise.
        """
        rows = problem.query.shape[:-1].numel()
        # Without the logsumexp of a kernel, also the largest score and weight of each row.
        charge(rows * (3 if logsumexp is None else 1) * problem.dtype.itemsize)
        queries, keys = problem.scores_shape[-2:]
        scores = rows * keys * problem.dtype.itemsize
        least = scores if problem.score.is_inner_product else None
        kept = self.keep(problem.key, queries, charge, instead=least)
        if kept is None:
            charge(scores)
            return _ScoredWeights(problem, logsumexp)
        charge(_bytes(problem.query))
        return SharedWeights(problem, kept, logsumexp)

    def keep(
        self,
        key: Float[Tensor, "*batch kv_heads keys dim"],
        queries: int,
        charge: Callable[[int], None],
        *,
        instead: int | None,
    ) -> KeptKeys | None:
        """Keep the keys of a call.

        A cache that changes in each step would be copied in each: then it is cheaper to keep the
        scores, until these have taken as much as a copy, after which calls may share it.

        Args:
            key: The keys.
            queries: Number of queries, which is that of new keys in a text that grows.
            charge: Called with bytes before they are taken; it may raise.
            instead: Bytes of what the caller can keep instead of a copy; None: nothing.

        Returns: the kept keys; None if what the caller keeps instead is to be preferred.
        """
        # A tensor of inference mode could not be appended to outside of it.
        with torch.inference_mode(mode=False), torch.no_grad():
            for known in self._recent:
                if (kept := _continued(known, key, queries, charge)) is not None:
                    self._recent.remove(known)
                    break
            else:
                changed = bool(self._recent) and queries < key.shape[-2]
                if changed and instead is not None and self._instead + instead < _bytes(key):
                    self._instead += instead
                    return None
                self._instead = 0
                kept = KeptKeys(_Buffer(_copied(key, charge)), range(key.shape[-2]))
        self._recent[:] = [kept, *self._recent[: _RECENT - 1]]
        return kept


def _continued(
    known: KeptKeys, key: Tensor, queries: int, charge: Callable[[int], None]
) -> KeptKeys | None:
    """Return the keys of a call within those of an earlier one; None if they are others."""
    buffer, count = known.buffer, key.shape[-2]
    if (
        key.shape[1:-2] != known.shape[1:-2]
        or (key.ndim != 4 and key.shape[0] != known.shape[0])
        or key.shape[-1] != known.shape[-1]
        or (key.dtype, key.device) != (buffer.tensor.dtype, buffer.tensor.device)
    ):
        return None
    for old in sorted({count, count - queries}, reverse=True):
        if not 0 < old <= len(known.span):
            continue
        for start in {len(known.span) - old, 0}:
            part = known.part(start, start + old)
            rows = _rows_of(part, key[..., :old, :])
            if rows is None:
                continue
            same = rows.equal(torch.arange(known.shape[0], device=rows.device))
            if same and old == count:
                return part
            new, stop = key[..., old:, :], part.span.stop
            if same and stop == buffer.end:
                buffer.append(new, charge)
                return KeptKeys(buffer, range(part.span.start, stop + new.shape[-2]))
            other = _Buffer(_copied(new, charge), part, None if same else rows)
            return KeptKeys(other, range(count))
    return None


def _rows_of(part: KeptKeys, key: Tensor) -> Int[Tensor, " batch"] | None:
    """Return which rows of a batch of kept keys equal these keys; None if some row has none."""
    last = part.part(len(part.span) - 1, len(part.span)).tensor()
    mine = key[..., -1:, :]
    if last.shape == mine.shape and torch.equal(last, mine) and torch.equal(part.tensor(), key):
        return torch.arange(len(key), device=key.device)
    if key.ndim != 4:
        return None
    alike = (mine[:, None] == last[None]).flatten(2).all(-1)
    if not bool(alike.any(-1).all()):
        return None
    known, found = part.tensor(), []
    for row, candidates in zip(key, alike, strict=True):
        places = candidates.nonzero().flatten().tolist()
        place = next((one for one in places if torch.equal(known[one], row)), None)
        if place is None:
            return None
        found.append(place)
    return torch.tensor(found, device=key.device)


def _copied(key: Tensor, charge: Callable[[int], None]) -> Tensor:
    charge(_bytes(key))
    return key.detach().clone(memory_format=torch.contiguous_format)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.itemsize


class SharedWeights(Weights):
    """Lazy weights of a call whose keys are kept together with those of other calls.

    Args:
        problem: The call, with its own keys.
        keys: The same keys, kept.
        logsumexp: Of each row, `[*batch, heads, queries]`; None: it is computed.
    """

    @torch.no_grad()
    def __init__(self, problem: Problem, keys: KeptKeys, logsumexp: Tensor | None = None) -> None:
        query = problem.query.detach().clone(memory_format=torch.contiguous_format)
        nothing = problem.key.new_empty(()).expand(keys.shape)
        self._keys = keys
        self._about = replace(problem, query=query, key=nothing, value=nothing, dropout=0.0)
        rows = None
        if logsumexp is None:
            found = reduce_by_fastest(self._problem, [LogSum(), Largest(keyed=False)])
            (logsumexp,), (weight, _, score) = found
            rows = KnownRows(score, weight)
        self._logsumexp, self._known = logsumexp, rows

    @property
    def _outline(self) -> Problem:
        return self._about

    @property
    def _problem(self) -> Problem:  # type: ignore[override] - an attribute where keys are its own
        key = self._keys.tensor()
        return replace(self._about, key=key, value=key)


class _ScoredWeights(Weights):
    """Lazy weights of a call of few queries whose keys are not kept, but its scores."""

    @torch.no_grad()
    def __init__(self, problem: Problem, logsumexp: Tensor | None) -> None:
        self._key_heads = problem.key.shape[-3]
        scores = unmasked_scores(problem)
        unit = torch.eye(scores.shape[-2], dtype=scores.dtype, device=scores.device)
        query, key = unit.expand(*scores.shape[:-1], -1), scores.mT
        super().__init__(replace(problem, query=query, key=key, score=Dot()), logsumexp)

    @property
    def key_heads(self) -> int:
        return self._key_heads
