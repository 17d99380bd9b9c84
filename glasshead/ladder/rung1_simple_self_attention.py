"""Step 1: attention with nothing to learn."""

import torch
from jaxtyping import Float
from torch import Tensor


def simple_self_attention(x: Float[Tensor, "tokens d"]) -> Float[Tensor, "tokens d"]:
    """Mix the words of a sentence, each with the words that point the same way.

    **What is new:** everything; this is the ground, and it has no weights to learn.

        context = softmax(x xᵀ) x

    The dot product of two words is larger the more they point the same way, and the longer they
    are. Softmax turns the products of one word into shares that sum to 1, and its context is the
    words added up in those shares. The scores are not scaled here: that comes with step 2.

    Args:
        x: one row a word.

    Returns:
        The contexts, one row a word.

    Raises:
        TypeError: ``x`` does not hold floating-point numbers.
        ValueError: ``x`` has not two axes.

    Source: the "Hello shiny sun!" walk-through of self-attention without weights. The score is the
    *dot* of Luong et al. 2015, section 3.1; weights that sum to 1 and can be learned through are
    from Bahdanau et al. 2015, section 3.1.

    Example: what the word *shiny* becomes. (The walk-through prints 0.3992, 0.3858, 0.8610.)

    >>> from glasshead.ladder import HELLO_SHINY_SUN
    >>> x = torch.tensor(HELLO_SHINY_SUN.embeddings)
    >>> simple_self_attention(x)[1]
    tensor([0.3990, 0.3854, 0.8610])
    """
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}. Pass x.float().")
    if x.ndim != 2:
        raise ValueError(
            f"x must be [tokens, d], got {list(x.shape)}. Pass one sentence, one row a word."
        )
    scores = x @ x.T  # [tokens, tokens]
    weights = torch.softmax(scores, dim=-1)
    return weights @ x  # [tokens, d]
