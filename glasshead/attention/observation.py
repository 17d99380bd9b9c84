"""What was observed of one attention, beside its context."""

import os
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import saved_observation as saved
from glasshead.attention.values import Values
from glasshead.statistics import Statistic


class Observation(Values):
    """The context of an attention, and each statistic that was asked of its weights.

    A statistic is had by its name, `seen.entropy`, or by its object, `seen[gh.Entropy()]`.

    `+` puts an observation of some queries and one of the next together: rows follow each other,
    sums over queries are added, the shorter filled up with 0 where the keys have grown.

    Attributes:
        context: As a call gives it, bit for bit, with its gradient.
        statistics: What was asked, by name.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.eye(3)
    >>> seen = gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.MaxWeight(), gh.Received()])
    >>> seen.max_weight
    tensor([1.0000, 0.6405, 0.4711])
    >>> seen[gh.Received()].sum()
    tensor(3.)
    >>> print(seen)
    Observation of 3 queries
    context     [3, 3]
    max_weight  [3]     0.471 … 1.000  mean 0.704  weight
    received    [3]     0.471 … 1.624  mean 1.000  weight
    """

    context: Float[Tensor, "... queries value_dim"]

    def __init__(
        self, context: Tensor, statistics: dict[str, Statistic], values: dict[str, Any]
    ) -> None:
        super().__init__(tuple(context.shape[:-1]), statistics, values)
        self.context = context

    def __add__(self, other: "Observation") -> "Observation":
        """Of the queries of both, the other's after this one's.

        Errors: a ValueError where they are not of the same statistics, or where a statistic of
        the whole does not follow from those of its chunks.
        """
        if not isinstance(other, Observation):
            return NotImplemented
        values = self._joined(other)
        context = torch.cat([self.context, other.context], -2)
        return Observation(context, self.statistics, values)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write it as safetensors: the context, each value, and which statistic it is, as JSON.

        A value of several tensors is written as `name.field` each. Gradients are not kept.

        Errors: an OSError where the file cannot be written; then an older one is as it was.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "seen.safetensors"
        >>> gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy()]).save(file)
        >>> gh.Observation.load(file).entropy
        tensor([0.0000, 0.6532, 1.0581])
        """
        saved.save(file, self.context, self.statistics, self.values)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Observation":
        """Read what `save` has written; nothing in the file is run.

        A statistic of a user's own is kept by its name: its value is there, but it cannot be added
        to that of further queries.

        Errors: an OSError where the file cannot be read; a ValueError where it is no observation.
        """
        return cls(*saved.load(file))

    def __repr__(self) -> str:
        about = f"Observation of {self.context.shape[-2]} queries"
        return "\n".join([about, *self._lines(("context", self.context))])
