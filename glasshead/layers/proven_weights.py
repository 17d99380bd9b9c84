"""The attention that a reader's own class computes, proven by its outputs on random inputs."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.layers.torch_weights import (
    AttentionWeights,
    known_weights,
    named_weights,
    readings,
)
from glasshead.recipe.masks import causal
from glasshead.recipe.scores import Dot, ScaledDot

_BATCH = 2
# Lengths that each class runs with, besides those beyond its constants.
_LENGTHS = (1, 2, 3, 5, 17, 67)
# Cells of all heads that a class runs with at most.
_MOST_CELLS = 2**24
# With large inputs a softcap or a clipped score shows.
_LARGE = 6.0
_FAILURES = (TypeError, ValueError, RuntimeError, LookupError, AssertionError, AttributeError)


def read_attention(module: nn.Module) -> AttentionWeights:
    """Return the weights of PyTorch's multi-head attention, or of a class of a text.

    That is a class of the ladder, or a reader's own with the names of the texts. The latter is run
    on random numbers, and taken for what it computes.

    Errors: a TypeError for a module of another kind; a ValueError for a setting that has no
    counterpart here, and for a class that computes another thing than its names say.
    """
    known = known_weights(module)
    if known is not None:
        return known
    if named_weights(module) is None:
        raise TypeError(
            "from_module needs an nn.MultiheadAttention, a class of the ladder, or a class of "
            "your own with matrices such as W_query, W_key and W_value, got "
            f"{type(module).__name__}. Copy the weights into a MultiHeadAttention."
        )
    return prove(module, readings(module))


def prove(module: nn.Module, readings: Iterable[AttentionWeights]) -> AttentionWeights:
    """Return the weights with the score and the mask by which a class computes its outputs.

    It is run in both modes, with small and large inputs, of lengths from 1 to one beyond each
    constant of its code, its settings and its buffers, as far as it and 2^24 cells allow.

    Args:
        module: The class.
        readings: The ways in which its weights may be meant.

    Errors: a ValueError that states where each of them gives another output.
    """
    kind = type(module).__name__
    proof = _Proof(module)
    try:
        with _undisturbed(module):
            for read in readings:
                for way, score, mask in product(_WAYS, (ScaledDot(), Dot()), (None, causal())):
                    named = replace(read, score=score, mask=mask)
                    if proof.holds(named, way):
                        return named
    except _UnlikeWeightsError as error:
        proof.reason = str(error)
    raise ValueError(
        "from_module needs a class that computes softmax(Q Kᵀ / √d) V of its matrices, with or "
        f"without √d, a causal mask, dropout of the weights and an output projection, got {kind}: "
        f"{proof.reason}. Copy the weights into a MultiHeadAttention."
    )


class _UnlikeWeightsError(ValueError):
    """Matrices whose shapes are not those of one attention; the message is a clause."""


@dataclass(eq=False)
class _Proof:
    """The comparison of a class with attention of its weights.

    Attributes:
        module: The class.
        reason: Why the reading that held longest does not hold, a clause.
    """

    module: nn.Module
    reason: str = "it accepts neither [tokens, width] nor [batch, tokens, width]"
    _held: int = field(default=-1, init=False)

    def holds(self, read: AttentionWeights, way: "_Way") -> bool:
        """Return whether the class computes what a reading says, whatever it is given."""
        _check_shapes(read)
        held, longest = 0, 0
        for length in self._lengths(read, way):
            for factor in (1.0, _LARGE):
                agreed = self._agrees(read, way, length, factor)
                if agreed is None:
                    # It does not take as many tokens.
                    break
                if not agreed:
                    self._refuse(held, _otherwise(length, longest, factor))
                    return False
                held += 1
            else:
                longest = max(longest, length)
        if longest < _LENGTHS[2]:
            return False
        for length in (3, 7):
            if self._agrees(read, way, length, 1.0, train=True) is False:
                self._refuse(held, "it does so in .eval(), and gives another output in .train()")
                return False
        return True

    def _refuse(self, held: int, reason: str) -> None:
        if held > self._held:
            self._held, self.reason = held, reason

    def _lengths(self, read: AttentionWeights, way: "_Way") -> Iterator[int]:
        """Yield the lengths to compare; the last is the longest that the class takes."""
        yield from _LENGTHS
        most = int((_MOST_CELLS / read.num_heads) ** 0.5)
        beyond = {one + more for one in _constants(self.module) for more in (0, 1)}
        weight = read.maps[0][0]
        for length in sorted((n for n in beyond if _LENGTHS[-1] < n <= most), reverse=True):
            if _output(self.module, way, weight.new_zeros(1, length, weight.shape[1])) is not None:
                yield length
                return

    def _agrees(
        self,
        read: AttentionWeights,
        way: "_Way",
        length: int,
        factor: float,
        *,
        train: bool = False,
    ) -> bool | None:
        """Return whether an output is that of the weights; None if the class gives none."""
        weight = read.maps[0][0]
        self.module.train(train)
        batch = 1 if train or length > _LENGTHS[-1] else _BATCH
        words = factor * torch.randn(batch, length, weight.shape[1]).to(weight)
        torch.manual_seed(0)
        theirs = _output(self.module, way, words)
        if theirs is None:
            return None
        torch.manual_seed(0)
        ours = _computed(read, words, train=train)
        return theirs.shape == ours.shape and torch.allclose(theirs, ours, rtol=1e-3, atol=1e-5)


def _otherwise(length: int, longest: int, factor: float) -> str:
    """Describe the first input on which a class gives another output."""
    if factor != 1:
        return f"it does so for inputs near 1, and not for inputs near {factor:g}"
    tokens = "1 token" if length == 1 else f"{length} tokens"
    if longest > 1:
        return f"it does so for up to {longest} tokens, and gives another output for {tokens}"
    return f"it gives another output for {tokens}"


def _check_shapes(read: AttentionWeights) -> None:
    """Check that matrices are of one width, which heads share.

    Errors: an `_UnlikeWeightsError`, a ValueError.
    """
    shapes = [list(weight.shape) for weight, _ in read.maps]
    if any(shape != shapes[0] for shape in shapes):
        listed = ", ".join(str(shape[::-1]) for shape in shapes)
        raise _UnlikeWeightsError(
            f"its matrices of queries, keys and values are {listed}, not of one"
        )
    if shapes[0][0] % read.num_heads:
        raise _UnlikeWeightsError(
            f"{shapes[0][0]} columns do not divide into {read.num_heads} heads"
        )


_Way = Callable[[nn.Module, Tensor], Any]
# How texts call their classes: with one sentence, a batch of them, or with it three times.
_WAYS: Sequence[_Way] = (
    lambda module, words: torch.stack([_first(module(sentence)) for sentence in words]),
    lambda module, words: module(words),
    lambda module, words: module(words, words, words),
)


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) and output else output


def _output(module: nn.Module, way: _Way, words: Tensor) -> Tensor | None:
    """Return what a module makes of sentences; None if it takes no such inputs."""
    try:
        output = _first(way(module, words))
    except _FAILURES:
        return None
    return output if isinstance(output, Tensor) else None


@contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Run a module without gradients, and restore its modes and the generator at the end."""
    modes = {part: part.training for part in module.modules()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A call in a way that is not meant may warn.
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode


def _computed(read: AttentionWeights, words: Tensor, *, train: bool) -> Tensor:
    """Return the output of an attention with these weights."""
    query, key, value = (
        nn.functional.linear(words, *one).unflatten(-1, (read.num_heads, -1)).transpose(1, 2)
        for one in read.maps
    )
    attention = read.attention().train(train)
    if train:
        # The reference draws as a class does: for all heads, or for one after the other.
        parts = [(query, key, value)]
        if read.apart:
            parts = list(zip(*(x.split(1, 1) for x in (query, key, value)), strict=True))
        context = torch.cat([attention.trace(*one).context for one in parts], 1)
    else:
        context = attention(query, key, value)
    context = context.transpose(1, 2).flatten(2)
    return context if read.output is None else nn.functional.linear(context, *read.output)


def _constants(module: nn.Module) -> set[int]:
    """Return the whole numbers in a module's code, settings and shapes."""
    found: set[int] = set()
    known: set[Any] = set()
    for part in module.modules():
        for setting in vars(part).values():
            _add(found, setting, known)
        for tensor in (*part.buffers(recurse=False), *part.parameters(recurse=False)):
            found.update(tensor.shape)
            _add(found, tensor, known)
        for kind in type(part).__mro__:
            for member in vars(kind).values() if _is_own(kind.__module__) else ():
                _add(found, getattr(member, "__func__", member), known)
    return {number for number in found if number > 0}


def _add(found: set[int], value: Any, known: set[Any]) -> None:
    """Add the whole numbers of a value, of a function and of what it calls."""
    if isinstance(value, int) and not isinstance(value, bool):
        found.add(value)
    elif isinstance(value, list | tuple):
        for one in value[:64]:
            _add(found, one, known)
    elif isinstance(value, Tensor):
        if value.numel() == 1 and not value.is_floating_point() and not value.is_meta:
            found.add(int(value))
    elif isinstance(value, FunctionType) and value not in known and _is_own(value.__module__):
        known.add(value)
        given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        named = (value.__globals__.get(name) for name in _names(value.__code__))
        for one in (*given, *cells, *named, *_numbers(value.__code__)):
            _add(found, one, known)


def _is_own(name: str | None) -> bool:
    """Return whether a module of this name is neither PyTorch nor Python."""
    return (name or "").partition(".")[0] not in ("torch", "builtins", "typing", "abc")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _names(code: CodeType) -> set[str]:
    return {name for one in _codes(code) for name in one.co_names}


def _numbers(code: CodeType) -> list[Any]:
    return [one for each in _codes(code) for one in each.co_consts]
