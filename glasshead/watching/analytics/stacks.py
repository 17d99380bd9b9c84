"""Stacks: consecutive self-attention layers of one text, whose weights are multiplied."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.attention import JoinedWeights, Weights
from glasshead.recipe.validation import whole_number
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.layer_record import Watched, check_of_tokens, check_whole
from glasshead.watching.mixers.weights import Shares
from glasshead.watching.other_mixers import interrupts, named
from glasshead.watching.recorded_call import ATTENTION
from glasshead.watching.seen import Seen

LazyWeights = Weights | JoinedWeights | Shares
# Functions that take the magnitudes of the implied weights of mixers as shares.
_MIXED = ("rollout", "flow", "rollout_factors")


def chosen(seen: Seen, layers: str | Sequence[str] | None, name: str) -> dict[str, Watched]:
    """Return the selected attentions, in order of execution.

    Args:
        seen: The result of a watch.
        layers: Patterns of names, as of `watch`; None: all.
        name: Name of the calling function, for errors.

    Errors: a TypeError if `seen` is no result of a watch, a ValueError if it is empty, a
    pattern matches nothing in it, or this rank computes a part of an attention.
    """
    if not isinstance(seen, Seen):
        raise TypeError(
            f"{name} needs the result of a watch, got {type(seen).__name__}. Pass seen from 'with "
            "gh.watch(…) as seen'."
        )
    if not seen:
        raise ValueError(
            f"{name} needs a watch that observed attention, but this one observed none. Run the "
            "model inside the block."
        )
    known = seen.observed
    selected = Layers(layers, with_enclosing(known))
    for each, watched in known.items():
        if each in selected:
            check_whole(each, watched, name)
            check_of_tokens(each, watched, name)
            if name not in _MIXED:
                check_attends(each, watched, name)
    return {each: watched for each, watched in known.items() if each in selected}


def check_attends(each: str, watched: Watched, name: str) -> None:
    """Raise a ValueError if a layer mixes tokens by the signed weights that a mixer implies.

    Args:
        each: Name of the layer.
        watched: Its record.
        name: Name of the calling function, for errors.
    """
    if watched.kind != ATTENTION:
        raise ValueError(
            f"{name} needs attention weights, which are shares of 1, but {each!r} has the implied "
            f"weights of {watched.kind}. Exclude it with layers=."
        )


def check_of_itself(each: str, watched: Watched, name: str) -> None:
    """Raise a ValueError if an attention is cross-attention.

    Args:
        each: Name of the attention.
        watched: Its record.
        name: Name of the calling function, for errors.
    """
    if any(call.crossing for call in watched.last_text):
        raise ValueError(
            f"{name} needs the attention of a text to itself, but {each!r} crosses to another. "
            "Choose others with layers=."
        )


def check_all_attend(unobserved: Mapping[str, str], among: list[str] | None, name: str) -> None:
    """Raise a ValueError if layers of a stack mix tokens by other means than attention.

    Args:
        unobserved: The names and classes of such layers.
        among: Names of attentions, between which they must not lie; None: anywhere.
        name: Name of the calling function, for errors.
    """
    found = {
        each: kind for each, kind in unobserved.items() if among is None or interrupts(each, among)
    }
    if found:
        raise ValueError(
            f"{name} needs layers that mix tokens by attention alone, but some mix them by other "
            f"means, which were not observed: {named(found)}."
        )


def check_one_text(each: str, watched: Watched, name: str) -> None:
    """Raise a ValueError if an attention read several texts in its last forward pass.

    Args:
        each: The name of the attention.
        watched: Its record.
        name: Name of the calling function, for errors.
    """
    forward = watched[-1].forward
    texts = sum(text[-1].forward == forward for text in watched.texts)
    if texts > 1:
        raise ValueError(
            f"{name} needs one text in a forward pass, but {each!r} read {texts}. Give the model "
            "one at a time, or choose others with layers=."
        )


def stack_of(
    seen: Seen, layers: str | Sequence[str] | None, name: str
) -> tuple[list[LazyWeights], Bool[Tensor, "texts tokens"] | None]:
    """Return the lazy weights of consecutive self-attention layers, and the mask of real tokens.

    The mask is None if all tokens are real.

    Errors: as of `chosen`, and a ValueError if the weights were not kept, if layers are of
    several kinds and were not chosen by name, if one is no self-attention, and if they are
    not of one text, or may not be.
    """
    watched = chosen(seen, layers, name)
    check_all_attend(seen.unobserved, None if layers is None else list(watched), name)
    for each, one in watched.items():
        check_one_text(each, one, name)
        if any(call.beside for call in one.last_text):
            raise ValueError(
                f"{name} needs layers that follow one another, but {each!r} is of a module that "
                "attends several times in one call, whose outputs combine in a way that is not "
                "known. Choose others with layers=."
            )
        if any(call.interleaved for call in one.last_text):
            raise ValueError(
                f"{name} needs layers whose order is known, but {each!r} ran again after others, "
                "as when layers share weights in turn or a model reads several texts. Choose "
                "others with layers=."
            )
    mixed = any(one.kind != ATTENTION for one in watched.values())
    if mixed:
        _check_one_a_layer(list(watched), name)
    # The names of the layers of a stack differ in their numbers only, or begin alike if mixed.
    number = r"\d+.*" if mixed else r"\d+"
    kinds = {re.sub(number, "*", each): each for each in watched}
    if layers is None and len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise ValueError(
            f"{name} needs the layers of one stack, but {first!r} and {second!r} look like two. "
            "Choose with layers=."
        )
    stack = {each: _factor(one) for each, one in watched.items()}
    shapes = {each: _without_heads(W.shape) for each, W in stack.items()}
    for each, shape in shapes.items():
        if shape[-1] != shape[-2]:
            raise ValueError(
                f"{name} needs the attention of a whole text to itself, but {each!r} has "
                f"{shape[-2]} queries on {shape[-1]} keys. Choose others with layers=, or watch "
                "the text from its beginning."
            )
        check_of_itself(each, watched[each], name)
        images = watched[each].last_text[0].images
        if isinstance(images, list) and any(one.windows > 1 for own in images for one in own):
            raise ValueError(
                f"{name} needs attention of all tokens to all, but {each!r} attends within "
                "windows, which move from layer to layer. Use its maps from .image()."
            )
        if shape != next(iter(shapes.values())):
            raise ValueError(
                f"{name} needs layers of one text, but {next(iter(shapes))!r} and {each!r} have "
                f"{_size_of(next(iter(shapes.values())))} and {_size_of(shape)}. Choose with "
                "layers=."
            )
    return list(stack.values()), next(reversed(watched.values())).real


def _factor(watched: Watched) -> LazyWeights:
    """Return the weights of a layer; of a mixer their magnitudes, as shares of each row."""
    return watched.weights if watched.kind == ATTENTION else Shares(watched.weights)


def _check_one_a_layer(names: list[str], name: str) -> None:
    """Raise a ValueError if two modules of one layer mix tokens, as in parallel.

    Args:
        names: Names of the modules.
        name: Name of the calling function, for errors.
    """
    layers: dict[str, str] = {}
    for each in names:
        other = layers.setdefault(each.rpartition(".")[0], each)
        if other != each:
            raise ValueError(
                f"{name} needs layers that follow one another, but {other!r} and {each!r} are of "
                "one layer, which may add them. Choose one with layers=."
            )


def rows_of(rows: Any, length: int) -> list[int]:
    """Normalize indices of queries, negative ones included, to count from 0.

    Errors: a TypeError if these are no list of whole numbers, a ValueError if it is empty or
    an index is out of range.

    >>> rows_of([0, -1], 7)
    [0, 6]
    """
    if not isinstance(rows, list | tuple | range):
        raise TypeError(f"rows must be a list of queries such as [-1], got {rows!r}.")
    if not rows:
        raise ValueError("rows must have at least one query, such as [-1], got none.")
    places = [whole_number(row, "rows", least=None) for row in rows]
    for place in places:
        if not -length <= place < length:
            raise ValueError(f"rows must be in -{length}..{length - 1}, got {place}.")
    return [place % length for place in places]


def places_in_texts(
    rows: Sequence[int], stack: Sequence[LazyWeights], real: Bool[Tensor, "texts tokens"] | None
) -> Int[Tensor, "*batch rows"]:
    """Return the indices of the requested rows in each text.

    Negative rows are counted from the last token of each text, without its padding.

    Errors: as of `rows_of`, and a ValueError if a text has fewer tokens.
    """
    *leading, length = stack[0].shape[:-1]
    places = torch.tensor(rows_of(rows, length))
    if real is None:
        return places
    real = real.cpu()
    of_texts = []
    for text in real:
        tokens = text.nonzero()[:, 0]
        for row in rows:
            if row < -len(tokens):
                raise ValueError(
                    f"rows must be tokens of every text, got {row}, but one text has only "
                    f"{len(tokens)} tokens without padding."
                )
        own = [tokens[row] if row < 0 else torch.tensor(row) for row in rows]
        of_texts.append(torch.stack(own))
    batch = leading[:-1] if len(stack[0].shape) > 3 else leading
    return torch.stack(of_texts).reshape(*batch, -1)


def per_row(
    real: Bool[Tensor, "texts tokens"], W: LazyWeights
) -> Bool[Tensor, "*leading queries 1"]:
    """Reshape which queries are real so that it broadcasts over the heads and keys of weights."""
    *leading, queries, _ = W.shape
    if len(real) == 1:
        return real.reshape(queries, 1)
    batch = [*leading[:-1], 1] if len(leading) > 1 else leading
    return real.reshape(*batch, queries, 1)


def mean_of_heads(
    tensor: Float[Tensor, "*batch_heads rows columns"],
) -> Float[Tensor, "*batch rows columns"]:
    """Average over heads; tensors of two or three axes have none."""
    return tensor.mean(-3) if tensor.ndim > 3 else tensor


def zeros(W: LazyWeights, *shape: int) -> Tensor:
    """Return zeros with the dtype and device of some weights."""
    return torch.zeros(shape, dtype=W.dtype, device=W.device)


def with_enclosing(names: Iterable[str]) -> list[str]:
    """Return the names, and those of the enclosing modules, outermost first."""
    parts = [name.split(".") for name in names]
    found = [".".join(one[:end]) for one in parts for end in range(len(one) + 1)]
    # A module encloses each of its runs, "name#0" and so on.
    modules = [name.rpartition("#")[0] for name in names if "#" in name]
    return list(dict.fromkeys([*modules, *found]))


def _without_heads(shape: Sequence[int]) -> tuple[int, ...]:
    """Return `[*batch, queries, keys]`; shapes of two or three axes have no heads."""
    return (*shape[:-3], *shape[-2:]) if len(shape) > 3 else tuple(shape)


def _size_of(shape: Sequence[int]) -> str:
    rows = f" in {shape[0]} rows" if len(shape) > 2 else ""
    return f"{shape[-1]} tokens{rows}"
