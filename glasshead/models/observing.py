"""Observing: statistics of every attention of a model, while the model runs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention import Attention, Observation
from glasshead.attention.attention import Statistics
from glasshead.layers import MultiHeadAttention
from glasshead.statistics import Statistic, named


class Seen(Mapping[str, Observation]):
    """What was observed last of each attention that ran, by the name of its module."""

    def __init__(self, last: Mapping[str, Observation]) -> None:
        self._last = last

    def __getitem__(self, name: str) -> Observation:
        if name not in self._last:
            raise KeyError(f"{name!r} was not observed; there is {', '.join(self) or 'nothing'}.")
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __repr__(self) -> str:
        return f"Seen({', '.join(self)})"


@contextmanager
def observing(model: nn.Module, statistics: Statistics) -> Iterator[Seen]:
    """Observe every `MultiHeadAttention` of a model, as long as the block lasts.

    The output of the model stays as it is, bit for bit, its gradient and the random numbers that it
    draws too. Each call of an attention takes the place of the one before; with a cache, its
    queries are the new tokens and its keys all so far. Blocks can stand within each other.

    Args:
        model: Of this library, or another with its attentions in it.
        statistics: A list, or a dict that names each. They have no gradient.

    Yields: each attention's `Observation`, `[batch, heads, …]`, by the dotted name of its module.

    Errors: a TypeError where the model is no module; a ValueError where it has no attention; a
    TypeError or ValueError where a statistic does not fit, as of `Attention.observe`.

    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config)
    >>> with observing(model, [gh.Entropy()]) as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> list(seen), seen["blocks.1.attention"].entropy.shape
    (['blocks.0.attention', 'blocks.1.attention'], torch.Size([1, 3, 5]))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"observing takes a model, and got {type(model).__name__}: build one.")
    attentions = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    if not attentions:
        raise ValueError(
            f"observing takes a model with MultiHeadAttention in it, and {type(model).__name__} "
            f"has none: give one that is built from glasshead's layers."
        )
    watch = _Watch(named(statistics))
    with ExitStack() as stack:
        for hook in watch.hooks(attentions):
            stack.callback(hook.remove)
        yield Seen(watch.last)


class _Watch:
    """Hooks that observe a rule at work, under the name of the attention whose work it is.

    The rule is given queries and keys as they are after projection, rotation and cache, so that
    none of these happens twice. One rule may serve several attentions.
    """

    def __init__(self, statistics: dict[str, Statistic]) -> None:
        self.statistics = statistics
        self.last: dict[str, Observation] = {}
        self.running: str | None = None

    def hooks(self, attentions: Mapping[str, MultiHeadAttention]) -> Iterator[Any]:
        """Each hook as it is registered."""
        for name, module in attentions.items():
            yield module.register_forward_pre_hook(self._beginning(name))
            yield module.register_forward_hook(self._end, always_call=True)
        for rule in {module.attention: None for module in attentions.values()}:
            yield rule.register_forward_hook(self._observe, with_kwargs=True)

    def _beginning(self, name: str) -> Any:
        def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            del module, inputs
            self.running = name

        return begin

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        del module, inputs, output
        self.running = None

    def _observe(
        self, rule: Attention, inputs: tuple[Tensor, ...], asked: dict[str, Any], output: Tensor
    ) -> None:
        if self.running is None:
            return
        # Dropout would draw again what the model is to draw next.
        with torch.no_grad(), _random_numbers_kept(output.device):
            found = rule.observe(*inputs, statistics=self.statistics, **asked)
        found.context = output.detach()
        self.last[self.running] = found


def _random_numbers_kept(device: torch.device) -> Any:
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, device_type=device.type)
