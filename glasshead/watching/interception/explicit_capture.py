"""Attention written by hand, captured by its softmax and by the product that took the weights."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glasshead.recipe.masks import dense
from glasshead.watching.captured_call import (
    CapturedCall,
    MaskReader,
    agrees,
    first_keys,
    hiding_limit,
    position_among,
    problem_from_inputs,
)
from glasshead.watching.errors import UnfollowedError
from glasshead.watching.interception.explicit_records import MIXED, Change, TakenWeights
from glasshead.watching.interception.explicit_trace import trace_explicit
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.session import Session
from glasshead.watching.interception.torch_attention import same_for_all
from glasshead.watching.module_calls import (
    ModuleCall,
    calls_in_progress,
    crosses_by_arguments,
)
from glasshead.watching.recorded_call import OVER_FEATURES

_CHANGED = (
    "changes its weights after the softmax by other than a dropout, a number for each head, or a "
    "learned product that mixes the heads"
)
_FILLED = "has weights that are NaN, and fills them with other numbers after the softmax"
_ANOTHER_OUTPUT = "gave another output than its mixed weights do with its values"


def observe_explicit(session: Session, taken: TakenWeights) -> None:
    """Let the watchers observe an attention written by hand."""
    calls = next(filter(None, (calls_in_progress(one.names) for one in session.watchers)), [])
    batch = taken.batch
    heads = count_heads(calls, taken.of_scores().shape) if len(batch) == 1 else None
    crosses = session.crosses()
    taken.weights.found.taken = True

    def capture() -> CapturedCall:
        _check_whole(calls, taken.of_scores().shape)
        captured = _capture(session.masks, taken, heads, crosses=crosses)
        of_tokens = not captured.over_features
        session.followed = captured.problem.query.shape[:-1] if of_tokens else None
        return captured

    session.observe(None, capture, taken.output)
    taken.weights.close()


def _capture(
    masks: MaskReader, taken: TakenWeights, heads: int | None, *, crosses: bool
) -> CapturedCall:
    """Capture an attention by its scores, its values and its output.

    Args:
        masks: The conversions of mask tensors.
        taken: The softmax and the products.
        heads: Number of heads, where these share an axis with the batch.
        crosses: Whether the keys belong to another text.

    Errors: an `UnfollowedError` if the weights were changed after the softmax.
    """
    apart = partial(headed, heads=heads)
    scores, value = apart(taken.of_scores()), apart(taken.of_values())
    value = value.expand(*scores.shape[:-2], *value.shape[-2:])
    after: list[str] = []
    if any(not step.keeps for step in taken.after):
        after = _changed(scores, apart(taken.of_weights()), taken.after)
    if MIXED in after:
        _check_output(taken, apart)
    made = None if after or taken.found.added else apart(taken.of_output())
    # Features have no order in which a later one could be hidden.
    over_features = taken.weights.over_features
    context = CallContext(masks, lambda: crosses or over_features, made)
    captured = capture_scores(scores, context, value=value, lowest=taken.weights.product.dtype)
    before = _described(taken.weights.steps, hides=captured.problem.mask is not None)
    softmax = OVER_FEATURES if over_features else "softmax"
    words = ["queries · keys", *before, softmax, *after, "· values"]
    if over_features:
        problem = replace(captured.problem, offset=0)
        captured = replace(captured, problem=problem, crossing=False, over_features=True)
    trace = None
    if taken.weights.product.found is not None:
        trace = partial(trace_explicit, taken)
    context = partial(_context, taken, heads)
    return replace(captured, by_hand=", ".join(words), trace=trace, context=context)


def capture_scores(
    scores: Float[Tensor, "... queries keys"],
    context: CallContext,
    *,
    value: Float[Tensor, "*batch heads keys value_dim"] | None = None,
    lowest: torch.dtype | None = None,
) -> CapturedCall:
    """Capture an attention by its scores, masked with -inf, without queries and keys.

    They come from the math fallback of PyTorch's function, as for dropout, from eager
    FlexAttention, and from attention written by hand. Here they become a bias of scores that are 0.

    Args:
        scores: The input of the softmax; three axes have no heads.
        context: What else is known of the call.
        value: The values, where known.
        lowest: The type of which the lowest number hides a key, too, as that of a mask.
    """
    scores = headed(scores.detach(), None)
    queries, keys = scores.shape[-2:]
    hidden = _hidden(scores, lowest)
    visible = ~hidden if bool(hidden.any()) else None
    offset = position_among(queries, keys, visible)
    other = context.crosses() or crosses_by_arguments(queries, keys)
    crossing = other and same_for_all(visible)
    query, key = (scores.new_zeros(*scores.shape[:-2], count, 1) for count in (queries, keys))
    problem = problem_from_inputs(
        query,
        key,
        key if value is None else value,
        scale=1.0,
        offset=offset,
        mask=None if visible is None else dense(visible),
        bias=scores,
    )
    if not crossing:
        problem = first_keys(problem, offset + queries)
    output = None if context.output is None else context.output.detach()
    return CapturedCall(problem, crossing=crossing, output=output)


# As many scores fit a core's cache, in which they are read twice.
_CACHED = 2**18


def _hidden(
    scores: Float[Tensor, "*batch heads queries keys"], lowest: torch.dtype | None
) -> Bool[Tensor, "*#batch #heads queries keys"]:
    """Return which scores hide a key, with one index for axes along which it is the same."""
    limit = -torch.inf if lowest is None else hiding_limit(lowest)
    queries = scores.shape[-2]
    blocks = []
    for some in scores.split(max(1, _CACHED * queries // max(scores.numel(), 1)), -2):
        # Extremes over the heads are faster than a boolean of each. A NaN makes them differ.
        blocks.append(~(some.amax(-3, keepdim=True) > limit))
        if not torch.equal(blocks[-1], some.amin(-3, keepdim=True) <= limit):
            hidden = scores <= limit
            break
    else:
        hidden = torch.cat(blocks, -2)
    for axis in range(hidden.ndim - 3):
        first = hidden.narrow(axis, 0, 1)
        if hidden.shape[axis] > 1 and bool((hidden == first).all()):
            hidden = first
    return hidden


def _context(taken: TakenWeights, heads: int | None) -> Tensor:
    return headed(taken.of_output(), heads)


def headed(tensor: Tensor, heads: int | None) -> Tensor:
    """Return a tensor with axes of a batch and of heads before its last two."""
    if heads is not None:
        tensor = tensor.unflatten(0, (-1, heads))
    while tensor.ndim < 4:
        tensor = tensor.unsqueeze(0 if tensor.ndim < 3 else -3)
    return tensor


def _check_output(taken: TakenWeights, apart: Callable[[Tensor], Tensor]) -> None:
    """Check that the output is that of the weights which were taken, at the first and last query.

    Errors: an `UnfollowedError` if it is another.
    """
    if taken.found.added:
        return
    weights, value, made = map(apart, (taken.of_weights(), taken.of_values(), taken.of_output()))
    rows = [0, weights.shape[-2] - 1]
    theirs, ours = made[..., rows, :], weights[..., rows, :] @ value
    undefined = theirs.isnan() & ours.isnan()
    if not agrees(theirs.masked_fill(undefined, 0.0), ours.masked_fill(undefined, 0.0)):
        raise UnfollowedError(_ANOTHER_OUTPUT)


def _changed(
    scores: Float[Tensor, "*batch heads queries keys"],
    taken: Float[Tensor, "*batch heads queries keys"],
    steps: Sequence[Change],
) -> list[str]:
    """Return what became of the weights after the softmax; nothing where they stayed as they are.

    Args:
        scores: The input of the softmax.
        taken: The weights as the product with values took them.
        steps: What was done in between.

    Errors: an `UnfollowedError` for anything but heads that are mixed, and then a dropout or a
    factor for each head.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.to(dtype).softmax(-1)
    rounding = 8 * max(torch.finfo(one).eps for one in (taken.dtype, scores.dtype))
    # Libraries fill the rows of queries that see nothing in different ways.
    empty = scores.isneginf().all(-1, keepdim=True)
    weights, mixed = _mixed(weights.masked_fill(empty, 0.0), steps)
    undefined = weights.isnan()
    if bool((undefined & ~taken.isnan() & ~empty).any()):
        raise UnfollowedError(_FILLED)
    empty = empty | undefined
    # Sums of heads may cancel.
    cancels = float(weights.abs().amax()) if mixed and weights.numel() else 0.0
    near = partial(torch.allclose, rtol=rounding, atol=max(1e-6, rounding * cancels))
    weights, taken = weights.masked_fill(empty, 0.0), taken.to(dtype).masked_fill(empty, 0.0)
    if near(taken, weights):
        return mixed
    kept = weights.masked_fill(taken == 0, 0.0)
    places = kept.abs().flatten(-2).argmax(-1, keepdim=True)
    largest = kept.flatten(-2).gather(-1, places)
    factor = taken.flatten(-2).gather(-1, places) / largest
    factor = factor.masked_fill(largest == 0, 0.0).unsqueeze(-1)
    if near(taken, weights * factor):
        several = bool((factor != factor.flatten()[0]).any())
        number = f"times {float(factor.amax()):.4g}"
        return [*mixed, "times a number for each head" if several else number]
    # What is left of weights grows by 1 / (1 - p), other than where a mask sets some to 0.
    if float(factor.amax()) > 1 + rounding and near(taken, kept * factor):
        return [*mixed, "a dropout"]
    raise UnfollowedError(_CHANGED)


def _mixed(
    weights: Float[Tensor, "*batch heads queries keys"], steps: Sequence[Change]
) -> tuple[Float[Tensor, "*batch heads queries keys"], list[str]]:
    """Return weights whose heads are mixed as the steps after a softmax mix them, and the words."""
    words = []
    for step in steps:
        if step.mixing is not None:
            weights = step.mixing.of(weights)
            words.append(step.words)
        elif words and step.other is not None:
            # A bias that is added by an operator of its own.
            bias = step.other()
            if bias is not None and bias.shape == weights.shape[-3:-2]:
                weights = weights + bias.detach().to(weights)[:, None, None]
    return weights, words


def _described(steps: Sequence[Change], *, hides: bool) -> list[str]:
    """Describe the steps before a softmax, and which tensors that are added are masks.

    Args:
        steps: The steps.
        hides: Whether the softmax hides any key.
    """
    words = [_described_by_numbers(step) for step in steps]
    # The numbers of a tensor that is gone are told by what the softmax hides.
    gone = [place for place, word in enumerate(words) if word is None]
    masked = any(word and "mask" in word for word in words)
    for place in gone:
        likely = "a mask" if hides and not masked and len(gone) == 1 else "a bias or a mask"
        words[place] = f"{likely if hides else 'a bias'} added"
    return [word for word in words if word]


def _described_by_numbers(step: Change) -> str | None:
    """Describe a step, "" for one that does nothing; None if its tensor is gone."""
    if step.other is None:
        return step.words
    other = step.other()
    if other is None or not other.is_floating_point() or not other.numel():
        return None
    other = other.detach()
    lowest, highest = (float(one) for one in other.aminmax())
    if lowest == highest == 0:
        return ""
    if lowest > _HIDING:
        return "a bias added"
    named = "a mask" if lowest <= torch.finfo(other.dtype).min / 2 else f"a mask of {lowest:.4g}"
    biased = highest > 0 or float(torch.where(other > _HIDING, other, 0.0).amin()) != 0
    return f"{named} and a bias added" if biased else f"{named} added"


# Numbers below this are taken for a mask in what is told, and in nothing else.
_HIDING = -1e4


def _check_whole(calls: Sequence[ModuleCall], shape: Sequence[int]) -> None:
    """Check that scores of five axes have those of heads before the queries, and not of chunks.

    Args:
        calls: The module calls in progress, innermost first.
        shape: The shape of the scores.

    Errors: an `UnfollowedError` if the tokens of a text are in chunks.
    """
    if len(shape) < 5:
        return
    heads = next((n for call in calls[:3] for n in _numbers(call.module)), None)
    if shape[-3] == heads != shape[-4]:
        return
    given = [one for call in calls[:1] for one in call.arguments.values()]
    texts = [one for one in given if isinstance(one, Tensor) and one.ndim == 3]
    if texts and not any(shape[-2] in one.shape[:2] for one in texts):
        raise UnfollowedError(_CHUNKS.format(shape[-2]))


_CHUNKS = "splits its text into chunks of {} tokens, whose keys do not have the places of the text"
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")


def count_heads(calls: Sequence[ModuleCall], shape: Sequence[int]) -> int | None:
    """Return the number of heads where these share an axis with the batch; None if none do.

    Args:
        calls: The module calls in progress, innermost first.
        shape: The shape of the scores, `[rows, queries, keys]`.
    """
    rows = shape[0]
    batches = [_batches(call) for call in calls[:3]]
    if not any(batches):
        batches = [_batches_of_ids(call, shape[1:]) for call in calls[:3]]
    known = [next((n for n in _numbers(call.module)), None) for call in calls[:3]]
    for sizes, heads in zip(batches, known, strict=True):
        if heads and rows % heads == 0 and rows // heads in sizes:
            return heads
    if not batches or any(rows in sizes for sizes in batches):
        return None
    likely = [rows // size for sizes in batches for size in sizes[:1] if rows % size == 0]
    likely += [heads for heads in known if heads and rows % heads == 0]
    return likely[0] if likely else rows


def _numbers(module: nn.Module) -> Iterator[int]:
    """Yield the attributes of a module that are by name its number of heads."""
    own = vars(module)
    yield from (own[name] for name in _HEADS if isinstance(own.get(name), int))


def _batches(call: ModuleCall) -> list[int]:
    """Return the sizes of the axes that may be the batch of what a module was given."""
    given = [one for one in call.arguments.values() if isinstance(one, Tensor) and one.ndim > 2]
    # Texts may have the batch second, images have it first.
    return [one.shape[0] for one in given] + [one.shape[1] for one in given if one.ndim == 3]


def _batches_of_ids(call: ModuleCall, lengths: Sequence[int]) -> list[int]:
    """Return the sizes of the axes that may be the batch of ids, or numbers, of each token.

    Args:
        call: The call of a module that embeds these itself.
        lengths: The numbers of queries and keys.
    """
    sizes: list[int] = []
    for one in call.arguments.values():
        if not isinstance(one, Tensor) or one.ndim != 2:
            continue
        if not one.is_floating_point():
            sizes += one.shape
        elif one.shape[0] not in lengths:
            # As many vectors as tokens are one text.
            sizes.append(one.shape[0])
    return sizes
