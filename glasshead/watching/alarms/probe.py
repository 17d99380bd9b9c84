"""Probe: reads the heads of a model while a step of its training runs."""

from collections.abc import Sequence
from contextlib import ExitStack

from torch import nn

from glasshead.statistics import Entropy, MaxScore
from glasshead.watching.alarms.reading import Reading, readings_of
from glasshead.watching.alarms.visible_keys import VisibleKeys
from glasshead.watching.seen import Seen
from glasshead.watching.watching import watch


class Probe:
    """`watch` between two moments, in place of a block.

    What is watched is the forward pass of the training itself: no pass is added, no random number
    drawn, and nothing of the model, its gradients or its mode is touched.

    Args:
        model: What is trained.
        layers: As of `watch`.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config)
    >>> probe = Probe(model)
    >>> probe.begin()
    >>> loss = model(torch.tensor([[3, 1, 4, 1, 5]])).logsumexp(-1).sum()
    >>> [(reading.layer, reading.head) for reading in probe.end(step=1)][2:4]
    [('blocks.0.attention', 2), ('blocks.1.attention', 0)]
    """

    def __init__(self, model: nn.Module, layers: str | Sequence[str] | None = None) -> None:
        self.model, self.layers = model, layers
        self._open: ExitStack | None = None
        self._seen: Seen | None = None

    def begin(self) -> None:
        """Watch from now on.

        Errors: as of `watch`.
        """
        self.leave()
        stack = ExitStack()
        statistics = [Entropy(), VisibleKeys(), MaxScore()]
        self._seen = stack.enter_context(watch(self.model, statistics, layers=self.layers))
        self._open = stack

    def end(self, step: int) -> list[Reading]:
        """Watch no longer, and give what was seen; nothing where nobody had begun.

        Errors: as at the end of a block of `watch`.
        """
        if self._open is None or self._seen is None:
            return []
        stack, seen = self._open, self._seen
        self._open = self._seen = None
        stack.close()
        return readings_of(seen, step)

    def leave(self) -> None:
        """Watch no longer, whatever was seen: the step has failed."""
        if self._open is not None:
            stack = self._open
            self._open = self._seen = None
            # A watch that ends by an error asks not whether it has seen anything.
            error = RuntimeError("the step that was watched has failed.")
            stack.__exit__(type(error), error, None)
