"""Gradient-weighted rollout: how much each input token contributes to what a loss is of."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import Elementwise
from glasshead.attention.lazy_matrix import LazyMatrix
from glasshead.recipe.validation import whole_number
from glasshead.watching.analytics.stacks import (
    check_one_text,
    chosen,
    mean_of_heads,
    places_in_texts,
    stack_of,
    zeros,
)
from glasshead.watching.layer_record import Watched
from glasshead.watching.seen import Seen


@torch.no_grad()
def gradient_rollout(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    layers: str | Sequence[str] | None = None,
    budget: int = 2**31,
) -> Float[Tensor, "*batch rows keys"]:
    """Compute gradient-weighted rollout: rows of R = (I + Ā_L) · … · (I + Ā_1).

    Ā = mean_heads max(∇A ⊙ A, 0) takes the weights A of a layer by the gradient ∇A of a loss, such
    as the logit of a class or of a token, so that heads and tokens count that raise it. Column j of
    row i is the relevance of token j to what token i holds at the end, 1 of its own included.

    The rows are multiplied from the last layer down, tile by tile, so that no matrix of tokens ×
    tokens is built: memory grows with heads · tokens · rows. Negative rows are counted from the
    last token of each text of a padded batch, others from the start of its row, padding included.

    Args:
        seen: The result of a watch with `keep="gradients"`, after a backward pass; the last text,
            each layer once.
        rows: Tokens of the last layer, from the end of each text where negative: the token whose
            logit the loss is, or that of the class.
        layers: Patterns of names, as of `watch`; None: all, which must be of one stack.
        budget: Memory for intermediate results in bytes.

    Errors: a TypeError or ValueError where an argument is invalid, gradients were not kept or have
    not arrived, a layer is no self-attention or of another text than the others, and where the rows
    would take more than the budget.

    Source: Chefer, Gur & Wolf 2021 (Generic attention-model explainability), equations 5 and 6.

    >>> import torch
    >>> import glasshead as gh
    >>> rule = gh.Attention()
    >>> x, value = torch.zeros(1, 1, 2, 1, requires_grad=True), torch.tensor([[[[4.0], [-2.0]]]])
    >>> with gh.watch(rule, keep="gradients") as seen:
    ...     rule(x, x, value)[0, 0, 1].sum().backward()
    >>> gh.gradient_rollout(seen, rows=[0, 1])                 # ½ · 4, and 1 of its own
    tensor([[[1., 0.],
             [2., 1.]]])
    """
    name = "gradient_rollout"
    stack, real = stack_of(seen, layers, name)
    weighted = [_weighted(one) for one in chosen(seen, layers, name).values()]
    places = places_in_texts(rows, stack, real)
    needed = max(2 * W.shape[:-1].numel() * places.shape[-1] * W.dtype.itemsize for W in weighted)
    if needed > whole_number(budget, "budget"):
        raise ValueError(
            f"{name} takes at most budget={budget} bytes, and {places.shape[-1]} rows would need "
            f"{needed}: ask for fewer at once, or raise budget=."
        )
    reached = zeros(stack[-1], *places.shape[:-1], stack[0].shape[-1], places.shape[-1])
    reached.scatter_(-2, places.unsqueeze(-2).to(reached.device), 1.0)
    for W in reversed(weighted):
        reached = reached + _product(W.T, reached)
    return reached.transpose(-1, -2)


@torch.no_grad()
def cross_gradient_rollout(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    encoder: str | Sequence[str],
    decoder: str | Sequence[str],
    cross: str | Sequence[str],
) -> Float[Tensor, "*batch rows source_keys"]:
    """Compute the gradient-weighted relevance of source tokens to tokens of a decoder.

    With Ā as of `gradient_rollout`, R_ss and R_qq of the decoder's and the encoder's own attention,
    and R̄ = (R - I) / its row sums + I, each cross-attention adds R̄_ssᵀ Ā R̄_qq to R_sq, and each
    later self-attention of the decoder Ā R_sq. A row whose R - I is 0 adds nothing.

    Args:
        seen: The result of a watch with `keep="gradients"`, after a backward pass.
        rows: Tokens of the decoder; negative ones from the end of each text.
        encoder, decoder: Patterns of names of the self-attention of either, as of `watch`.
        cross: Those of the cross-attention of the decoder, one for each of its layers.

    Errors: as of `gradient_rollout`, and a ValueError where there is not one cross-attention for
    each self-attention of the decoder.

    Source: Chefer, Gur & Wolf 2021 (Generic attention-model explainability), equations 5 to 10.
    """
    name = "cross_gradient_rollout"
    own = stack_of(seen, decoder, name)
    # For its checks.
    stack_of(seen, encoder, name)
    crossing = chosen(seen, cross, name)
    for each, one in crossing.items():
        check_one_text(each, one, name)
        if not all(call.crossing for call in one.texts[-1]):
            raise ValueError(
                f"{name} takes cross-attention by cross=, and {each!r} attends to its own text: "
                f"choose others."
            )
    if len(crossing) != len(own[0]):
        raise ValueError(
            f"{name} takes one cross-attention for each layer of the decoder, and there are "
            f"{len(crossing)} for {len(own[0])}: choose by cross= and decoder=."
        )
    selves, source, across = (
        [_weighted(one) for one in chosen(seen, each, name).values()]
        for each in (decoder, encoder, cross)
    )
    places = places_in_texts(rows, *own)
    length = selves[0].shape[-1]
    reached = zeros(own[0][-1], *places.shape[:-1], length, places.shape[-1])
    reached.scatter_(-2, places.unsqueeze(-2).to(reached.device), 1.0)
    total = zeros(own[0][-1], *places.shape[:-1], across[0].shape[-1], places.shape[-1])
    for layer in range(len(selves) - 1, -1, -1):
        total = total + _product(across[layer].T, _normalized(selves[: layer + 1], reached))
        reached = reached + _product(selves[layer].T, reached)
    return _normalized_transposed(source, total).transpose(-1, -2)


def _weighted(watched: Watched) -> LazyMatrix:
    """Return max(∇A ⊙ A, 0) of each head."""
    return Elementwise(watched.weights, watched.gradients).relu()


def _product(W: LazyMatrix, x: Float[Tensor, "*batch columns n"]) -> Float[Tensor, "*batch rows n"]:
    """Compute Ā·x, with the mean over heads."""
    x = x.to(W.device)
    right = x.unsqueeze(-3) if x.ndim > 2 and len(W.shape) > 3 else x
    return mean_of_heads(W @ right)


def _after(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute (R - I)·x, of R = (I + Ā_l) · … · (I + Ā_1)."""
    made = x
    for W in stack:
        made = made + _product(W, made)
    return made - x


def _row_sums(stack: Sequence[LazyMatrix], x: Tensor) -> Float[Tensor, "*batch tokens 1"]:
    """Return the row sums of R - I, with 1 where a row is 0."""
    sums = _after(stack, x.new_ones(*x.shape[:-1], 1))
    return torch.where(sums == 0, 1.0, sums)


def _normalized(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute R̄·x, of R̄ = (R - I) / its row sums + I."""
    return _after(stack, x) / _row_sums(stack, x) + x


def _normalized_transposed(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute R̄ᵀ·x."""
    divided = x / _row_sums(stack, x)
    made = divided
    for W in reversed(stack):
        made = made + _product(W.T, made)
    return made - divided + x
