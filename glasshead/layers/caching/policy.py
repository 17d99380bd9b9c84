"""What a policy is: which keys a cache keeps, by what it saw of them."""

from abc import ABC, abstractmethod

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.problem import Problem


class Policy(ABC):
    """Which keys a cache keeps, for each layer, row and key head by itself.

    A policy is a frozen value, its numbers alone; what was seen so far, the votes, is held by the
    cache: rows of numbers, one for each key, that go where their keys go.
    """

    @property
    @abstractmethod
    def most(self) -> int:
        """The most keys that are held after a call, of a row and a key head."""

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads votes keys"] | None:
        """What the queries of a call say of the keys; None: the policy does not listen."""
        del problem

    def joined(
        self,
        before: Float[Tensor, "batch kv_heads votes keys"],
        new: Float[Tensor, "batch kv_heads votes keys"],
    ) -> Float[Tensor, "batch kv_heads votes keys"]:
        """The votes of earlier calls with those of a new one; here, the new ones alone."""
        del before
        return new

    @abstractmethod
    def scores(
        self,
        votes: Float[Tensor, "batch kv_heads votes keys"] | None,
        seen: Bool[Tensor, "batch kv_heads keys"],
    ) -> Float[Tensor, "batch kv_heads keys"]:
        """How much each key is worth; inf: it stays, whatever the others are worth.

        Args:
            votes: What was said of the keys, which are in the order of the text.
            seen: Which keys later queries can see; those that pad are not worth anything.
        """


def widened(votes: Float[Tensor, "*batch keys"], keys: int) -> Float[Tensor, "*batch more"]:
    """Votes on keys of which the last are new, that nobody has voted on."""
    return F.pad(votes, (0, keys - votes.shape[-1]))
