"""Take heads out of a model, and see what it cannot do without them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from glasshead.recipe.validation import whole_number
from glasshead.watching.active import Ablater
from glasshead.watching.errors import check_not_compiled
from glasshead.watching.interception.session import ablated


@contextmanager
def ablate(model: nn.Module, heads: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Remove heads of a model, as long as the block lasts.

    H = Σ_h context_h W_hᵀ + b_o, without the terms of the heads that are removed: their context is
    0 before the output projection. Their weights are computed all the same, so that a `watch`
    around the block or within it sees them. Gradients flow through the heads that are left.

    The model may be one of ours, one of transformers in any attention mode, PyTorch's own
    transformer layers, which leave their fast paths meanwhile, or any other that calls
    `F.scaled_dot_product_attention`. Nothing of it is changed. A block belongs to the thread that
    opened it; blocks within each other remove the heads of all. With gradient checkpointing the
    backward pass belongs into the block, too, whatever thread PyTorch runs it in.

    Args:
        model: What runs inside the block.
        heads: Which heads, counted from 0, by the dotted name of their module, as `watch` gives it.

    Errors: a TypeError or ValueError where an argument is wrong, a name is none of the model's or
    the model is compiled. Within the block a ValueError where a head is not there, or an attention
    has no axis of heads. At the end of the block a RuntimeError where a named attention was never
    met, or a part of what ran was compiled.

    Source: Michel et al. 2019 (Are sixteen heads really better than one?), section 2.3.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> tokens = torch.tensor([[3, 1, 4, 1, 5]])
    >>> with gh.ablate(model, {"blocks.1.attention": [0, 2]}):
    ...     without = model(tokens)
    >>> torch.equal(without, model(tokens))
    False
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"ablate takes a model, and got {type(model).__name__}: build one.")
    check_not_compiled(model, "ablate")
    ablater = Ablater(model, _heads(heads))
    with ablated(ablater):
        yield
    ablater.check_met()


def _heads(heads: Any) -> dict[str, list[int]]:
    if not isinstance(heads, Mapping) or not all(isinstance(name, str) for name in heads):
        raise TypeError(
            f"ablate takes heads by the names of their modules, such as "
            f'{{"blocks.1.attention": [0, 3]}}, and got {heads!r}.'
        )
    for name, numbers in heads.items():
        if not isinstance(numbers, list | tuple | range):
            raise TypeError(
                f"ablate takes a list of heads such as [0, 3] for {name!r}, and got {numbers!r}."
            )
    return {name: [whole_number(head, "heads") for head in heads[name]] for name in heads}
