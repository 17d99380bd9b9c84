"""Linear recurrences over the tokens of a text, as the matrix by which they weigh values."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A recurrence with a state for each head, whose gates are fixed at those of one run.

    S_t = diag(a_t) S_{t-1} + g_t k_t ⊗ v_t, with a_t = exp(decay_t · rate), and y_t = q_tᵀ S_t +
    d_t v_t. So y_t = Σ_s W_ts v_s, where W_ts = g_s q_tᵀ (Π_{s<r≤t} diag(a_r)) k_s, and d_t is
    added at s = t. W is never built: W·R is a scan forwards with R in the place of the values, and
    Wᵀ·L is one backwards.

    All fields have four axes, `[batch, heads, tokens, …]`, of which the first two may be 1.

    Args:
        query: q, what reads the state, `[batch, heads, tokens, state]`.
        key: k, where a token writes, like the query.
        gain: g, how much it writes, `[batch, heads, tokens, 1]`.
        decay: The logarithm of what is kept of the state, `[batch, heads, tokens, state or 1]`.
        skip: d, by which a token passes its value on, `[batch, heads, tokens, 1]`; None: not.
        rate: Factor of the decay for each number of the state, `[heads, state]`; None: 1.
        delta: Whether what the state holds at a key is subtracted from the value before it is
            written, as in a delta rule: g_t k_t ⊗ (v_t - (diag(a_t) S_{t-1})ᵀ k_t).
        before: Whether the query reads the state before its token has written: q_tᵀ S_{t-1}.
    """

    query: Float[Tensor, "batch heads tokens state"]
    key: Float[Tensor, "batch heads tokens state"]
    gain: Float[Tensor, "batch heads tokens 1"]
    decay: Float[Tensor, "batch heads tokens rates"]
    skip: Float[Tensor, "batch heads tokens 1"] | None = None
    rate: Float[Tensor, "heads state"] | None = None
    delta: bool = False
    before: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return batch, heads and tokens."""
        each = [one.shape[:3] for one in self._per_token().values()]
        return tuple(torch.broadcast_shapes(*each))  # type: ignore[return-value] - three axes

    @property
    def state(self) -> int:
        """Return how many numbers a head holds for each number of a value."""
        return self.key.shape[-1]

    @property
    def device(self) -> torch.device:
        """Return where it is computed."""
        return self.key.device

    def _per_token(self) -> dict[str, Tensor]:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {n: x for n, x in given.items() if isinstance(x, Tensor) and n != "rate"}

    def selected(
        self, batch: Int[Tensor, " rows"] | None = None, heads: Sequence[int] | None = None
    ) -> "Recurrence":
        """Return the recurrence of some rows of the batch, or of some heads."""
        changed: dict[str, Any] = {}
        for name, given in self._per_token().items():
            own = given
            if batch is not None and own.shape[0] > 1:
                own = own.index_select(0, batch.to(own.device))
            changed[name] = own[:, [*heads]] if heads is not None and own.shape[1] > 1 else own
        if heads is not None and self.rate is not None and len(self.rate) > 1:
            changed["rate"] = self.rate[[*heads]]
        return replace(self, **changed)

    def first(self, tokens: int) -> "Recurrence":
        """Return the recurrence of the first tokens."""
        return replace(self, **{n: x[:, :, :tokens] for n, x in self._per_token().items()})

    def then(self, later: "Sequence[Recurrence]") -> "Recurrence":
        """Return the recurrence of these tokens and later ones."""
        every = [one._per_token() for one in (self, *later)]  # noqa: SLF001 - of this class
        return replace(self, **{name: _along_tokens([x[name] for x in every]) for name in every[0]})

    def owned(self) -> "Recurrence":
        """Return the recurrence of tensors that nobody else writes to."""
        return replace(self, **{name: x.clone() for name, x in self._per_token().items()})

    @property
    def bytes(self) -> int:
        """Return the memory that it takes."""
        return sum(x.numel() * x.itemsize for x in self._per_token().values())

    def scan(
        self,
        values: Float[Tensor, "batch heads span r"],
        start: int = 0,
        state: Float[Tensor, "batch heads state r"] | None = None,
    ) -> Float[Tensor, "batch heads span r"]:
        """Compute W·R over consecutive tokens.

        Args:
            values: R at these tokens.
            start: The first of them.
            state: What the state holds before it; None: nothing.
        """
        batch, heads, _ = self.shape
        values = values.expand(batch, heads, -1, -1)
        held = values.new_zeros(batch, heads, self.state, values.shape[-1])
        held = held if state is None else held + state
        made = torch.empty_like(values, memory_format=torch.contiguous_format)
        for place in range(values.shape[2]):
            query, key, gain, kept = self._at(start + place)
            value = values[:, :, place, None]
            if self.before:
                made[:, :, place] = (query.mT @ held)[..., 0, :]
            held = kept * held
            written = value - key.mT @ held if self.delta else value
            held = held + (gain * key) * written
            if not self.before:
                made[:, :, place] = (query.mT @ held)[..., 0, :]
        if self.skip is not None:
            made += self.skip[:, :, start : start + values.shape[2]] * values
        return made

    def scan_back(
        self, left: Float[Tensor, "batch heads span n"], start: int = 0
    ) -> Float[Tensor, "batch heads span n"]:
        """Compute Wᵀ·L over consecutive tokens, after which L is 0.

        Args:
            left: L at these tokens.
            start: The first of them.
        """
        batch, heads, _ = self.shape
        left = left.expand(batch, heads, -1, -1)
        owed = left.new_zeros(batch, heads, self.state, left.shape[-1])
        made = torch.empty_like(left, memory_format=torch.contiguous_format)
        for place in reversed(range(left.shape[2])):
            query, key, gain, kept = self._at(start + place)
            read = query * left[:, :, place, None]
            owed = owed if self.before else owed + read
            written = gain * (key.mT @ owed)
            made[:, :, place] = written[..., 0, :]
            owed = kept * (owed - key * written if self.delta else owed)
            owed = owed + read if self.before else owed
        if self.skip is not None:
            made += self.skip[:, :, start : start + left.shape[2]] * left
        return made

    def _at(self, token: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k, g and a of a token, `[batch, heads, state or 1, 1]`."""
        decay = self.decay[:, :, token]
        kept = (decay if self.rate is None else decay * self.rate).exp()
        given = (x[:, :, token, :, None] for x in (self.query, self.key, self.gain))
        query, key, gain = given
        return query, key, gain, kept.unsqueeze(-1)


def _along_tokens(parts: Sequence[Tensor]) -> Tensor:
    leading = torch.broadcast_shapes(*(x.shape[:2] for x in parts))
    return torch.cat([x.expand(*leading, *x.shape[2:]) for x in parts], 2)


@dataclass(frozen=True, eq=False)
class Band:
    """A short convolution along a text: y_t = Σ_{0≤n<taps} w_n v_{t-n}, for each channel.

    Args:
        taps: w, by distance, `[heads, taps]`: each channel is a head.
        rows: The number of rows of the batch.
        tokens: The number of tokens.
    """

    taps: Float[Tensor, "heads taps"]
    rows: int
    tokens: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return batch, heads and tokens."""
        return self.rows, len(self.taps), self.tokens

    @property
    def state(self) -> int:
        """Return how many numbers a head holds for each number of a value."""
        return self.taps.shape[-1]

    @property
    def device(self) -> torch.device:
        """Return where it is computed."""
        return self.taps.device

    def selected(
        self, batch: Int[Tensor, " rows"] | None = None, heads: Sequence[int] | None = None
    ) -> "Band":
        """Return the convolution of some rows of the batch, or of some channels."""
        rows = self.rows if batch is None else len(batch)
        return Band(self.taps if heads is None else self.taps[[*heads]], rows, self.tokens)

    def first(self, tokens: int) -> "Band":
        """Return the convolution over the first tokens."""
        return replace(self, tokens=tokens)

    def then(self, later: "Sequence[Band]") -> "Band":
        """Return the convolution over these tokens and later ones."""
        return replace(self, tokens=self.tokens + sum(one.tokens for one in later))

    def owned(self) -> "Band":
        """Return the convolution with taps that nobody else writes to."""
        return replace(self, taps=self.taps.clone())

    @property
    def bytes(self) -> int:
        """Return the memory that it takes."""
        return self.taps.numel() * self.taps.itemsize

    def scan(
        self,
        values: Float[Tensor, "batch heads span r"],
        start: int = 0,
        state: Float[Tensor, "batch heads state r"] | None = None,
    ) -> Float[Tensor, "batch heads span r"]:
        """Compute W·R over consecutive tokens; `state` holds the values before them, if any."""
        del start
        values = values.expand(*self.shape[:2], -1, -1)
        earlier = 0 if state is None else state.shape[2]
        given = values if state is None else torch.cat([state, values], 2)
        made = torch.zeros_like(values)
        for distance in range(min(self.state, given.shape[2])):
            first = max(distance - earlier, 0)
            stop = given.shape[2] - distance
            tap = self.taps[:, distance, None, None]
            made[:, :, first:] += tap * given[:, :, earlier + first - distance : stop]
        return made

    def scan_back(
        self, left: Float[Tensor, "batch heads span n"], start: int = 0
    ) -> Float[Tensor, "batch heads span n"]:
        """Compute Wᵀ·L over consecutive tokens, after which L is 0."""
        return self.scan(left.flip(2), start).flip(2)


Operator = Recurrence | Band
