"""What decoding drives: a model with its cache, one step after the other."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Steps(Protocol):
    """A model that goes on from what it was fed, for several rows at once.

    Each row is one text. What it was fed, the model remembers; a fresh object remembers nothing.

    >>> import torch
    >>> from glasshead.models.decoding.chain import Chain
    >>> steps: Steps = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> steps.next(torch.tensor([[0, 1]])).exp()
    tensor([[0.1000, 0.3000, 0.6000]])
    """

    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Feed each row its next tokens, one or more; the logits of the one that follows them."""
        ...

    def reorder(self, rows: Int[Tensor, "rows"]) -> None:
        """Let row i be what row `rows[i]` was; rows may be dropped, and repeated."""
        ...
