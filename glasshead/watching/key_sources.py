"""Where the keys of an attention come from: the text of its queries, or another one."""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor, nn

from glasshead.watching.foreign import attribute, is_a
from glasshead.watching.module_calls import ModuleCall, calls_of_thread

# Arguments that give a module the text of its keys, if its queries belong to another.
_OTHER_TEXTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "memory")
# By these names it is given the keys of its own text from earlier calls.
_CACHES = ("past_key_values", "past_key_value", "layer_past")
# A tensor with such a word in its name is not a text.
_NO_TEXTS = ("mask", "bias", "position", "freqs")
# Axes of a text with its batch, and of one that is divided into heads.
_TEXT, _HEADS = 3, 4


def crosses_by_variables(
    module: nn.Module, variables: Mapping[str, Any], keys: int, cache: type
) -> bool | None:
    """Return whether the keys of a module of transformers belong to another text.

    Args:
        module: The module.
        variables: The local variables of its method.
        keys: Number of keys.
        cache: The class of caches.

    Returns: None if its variables do not say.
    """
    others = _other_texts(variables)
    if any(one is variables.get("hidden_states") for one in others):
        return False
    told = variables.get("is_cross_attention", attribute(module, "is_cross_attention"))
    if type(told) is bool:
        return told
    if "cross" in type(module).__name__.lower() or any(keys in _lengths(one) for one in others):
        return True
    cached = any(variables.get(name) is not None for name in _CACHES)
    return False if cached or any(is_a(one, cache) for one in variables.values()) else None


def crosses_by_arguments(queries: int, keys: int) -> bool:
    """Return whether keys belong to another text, by what the modules in progress were given.

    A module with one text whose keys are more than that has keys of its own, such as a prefix or a
    memory. Fewer keys than queries are no tokens of their text.

    Args:
        queries, keys: Number of queries and keys of an attention that is not causal.
    """
    for call in calls_of_thread():
        if _given_other_text(call, keys):
            return True
        if queries in (keys, 1):
            # Lengths do not tell: the same text, or a step after others of it.
            return False
        texts = _texts(call)
        own = next((one for one in texts if queries in _lengths(one)), None)
        others = [one for one in texts if one is not own]
        if any(_makes(one, own, queries, keys) for one in others):
            # A module that was given the heads of both says nothing of where they come from.
            if own is None or own.ndim < _HEADS:
                return True
        elif own is not None:
            return keys < queries
    return queries not in (keys, 1)


def merged_position(queries: int, keys: int, own: ModuleCall) -> int | None:
    """Return the position of the first query of merged self- and cross-attention.

    Its keys are those of its own text and, after them, those of an encoder.

    Args:
        queries, keys: Number of queries and keys.
        own: The module call that the attention belongs to.

    Returns: the position; None for attention of another kind.
    """
    others: Any = own.arguments.get("encoder_hidden_states")
    if not isinstance(others, Tensor) or others.ndim != _TEXT:
        return None
    position = keys - others.shape[1] - queries
    return position if position >= 0 else None


def _given_other_text(call: ModuleCall, keys: int) -> bool:
    """Return whether a module was given, by name, another text that has all of the keys."""
    given = call.arguments
    own = [one for name, one in given.items() if name not in _OTHER_TEXTS]
    others = [one for one in _other_texts(given) if keys in _lengths(one)]
    return any(all(one is not each for each in own) for one in others)


def _other_texts(given: Mapping[str, Any]) -> list[Tensor]:
    """Return what is given by the name of another text."""
    return [one for name in _OTHER_TEXTS if is_a(one := given.get(name), Tensor)]


def _texts(call: ModuleCall) -> list[Tensor]:
    """Return the vectors that a module was given."""
    return [
        one
        for name, one in call.arguments.items()
        if is_a(one, Tensor)
        and one.is_floating_point()
        and one.ndim >= _TEXT - 1
        and not any(word in name for word in _NO_TEXTS)
    ]


def _makes(text: Tensor, own: Tensor | None, queries: int, keys: int) -> bool:
    """Return whether the keys may be those of a text, alone or before the queries' own."""
    lengths = _lengths(text)
    return keys in lengths or (
        own is not None and own.ndim == text.ndim and keys - queries in lengths
    )


def _lengths(text: Tensor) -> set[int]:
    """Return how many tokens a tensor may have: the batch may come second, a picture has pixels."""
    shape = text.shape
    lengths = {shape[-2]} if len(shape) > 1 else set()
    if len(shape) == _TEXT:
        lengths.add(shape[0])
    if len(shape) > _TEXT:
        lengths.add(prod(shape[2:]))
    return lengths
