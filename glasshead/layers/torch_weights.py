"""Weights of PyTorch's attention, of the ladder's classes and of a reader's own, for our layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import torch
from torch import Tensor, nn

from glasshead import ladder
from glasshead.attention import Attention
from glasshead.recipe.masks import Mask, causal
from glasshead.recipe.scores import Dot, ScaledDot, Score

_Map = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights and settings of an attention module.

    Attributes:
        maps: Weight and bias of queries, keys and values, the heads' rows one below the other.
        output: Those of the output projection, if there is one.
        num_heads: The number of heads.
        score, mask, dropout: Of its attention.
    """

    maps: Sequence[_Map]
    output: _Map | None = None
    num_heads: int = 1
    mask: Mask | None = None
    dropout: float = 0.0
    score: Score | None = None

    def attention(self) -> Attention:
        """Return the attention between the projections."""
        return Attention(score=self.score, mask=self.mask, dropout=self.dropout)


def read_attention(module: nn.Module) -> AttentionWeights:
    """Return the weights of PyTorch's multi-head attention, or of a class of a text.

    That is a class of the ladder, or a reader's own with the names of the texts. The latter is run
    on random numbers, and taken for what it computes.

    Errors: a TypeError for a module of another kind; a ValueError for a setting that has no
    counterpart here, and for a class that computes another thing than its names say.
    """
    for kind, find in _FINDERS.items():
        if isinstance(module, kind):
            return find(module)
    named = named_weights(module)
    if named is None:
        raise TypeError(
            f"from_module takes nn.MultiheadAttention, a rung of the ladder, or a class of a text "
            f"with matrices such as W_query, W_key and W_value, and got {type(module).__name__}: "
            f"copy its weights into a MultiHeadAttention by hand."
        )
    return _as_computed(module, named)


def _of_torch(module: nn.MultiheadAttention) -> AttentionWeights:
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "from_module takes an nn.MultiheadAttention without add_bias_kv and add_zero_attn, "
            "which add keys of their own: build it without."
        )
    if module.in_proj_weight is None:
        weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    else:
        weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return AttentionWeights(
        maps=list(zip(weights, biases, strict=True)),
        output=(module.out_proj.weight, module.out_proj.bias),
        num_heads=module.num_heads,
        dropout=module.dropout,
    )


def _of_rung2(rung: ladder.SelfAttentionV1) -> AttentionWeights:
    return AttentionWeights(maps=[(W.T, None) for W in (rung.W_query, rung.W_key, rung.W_value)])


def _of_rung3(rung: ladder.SelfAttentionV2) -> AttentionWeights:
    return AttentionWeights(maps=_linears(rung.W_query, rung.W_key, rung.W_value))


def _of_rung4(rung: ladder.CausalAttention | ladder.MultiHeadAttention) -> AttentionWeights:
    maps = _linears(rung.W_query, rung.W_key, rung.W_value)
    return AttentionWeights(maps=maps, mask=causal(), dropout=rung.dropout.p)


def _of_rung5(rung: ladder.MultiHeadAttentionWrapper) -> AttentionWeights:
    return _joined([_of_rung4(cast("ladder.CausalAttention", head)) for head in rung.heads])


def _joined(heads: Sequence[AttentionWeights]) -> AttentionWeights:
    """Return the weights of modules side by side as those of heads."""
    maps = []
    for one in zip(*(head.maps for head in heads), strict=True):
        weights, biases = zip(*one, strict=True)
        maps.append((torch.cat(weights), None if biases[0] is None else torch.cat(biases)))
    return replace(heads[0], maps=maps, num_heads=len(heads))


def _of_rung6(rung: ladder.MultiHeadAttention) -> AttentionWeights:
    (output,) = _linears(rung.out_proj)
    return replace(_of_rung4(rung), output=output, num_heads=rung.num_heads)


def _of_rung7(rung: ladder.EncoderMultiHeadAttention) -> AttentionWeights:
    (output,) = _linears(rung.W_h)
    return AttentionWeights(
        maps=_linears(rung.W_q, rung.W_k, rung.W_v),
        output=output,
        num_heads=rung.num_heads,
        dropout=rung.dropout.p,
    )


_FINDERS: dict[type[nn.Module], Callable[..., AttentionWeights]] = {
    nn.MultiheadAttention: _of_torch,
    ladder.SelfAttentionV1: _of_rung2,
    ladder.SelfAttentionV2: _of_rung3,
    ladder.CausalAttention: _of_rung4,
    ladder.MultiHeadAttentionWrapper: _of_rung5,
    ladder.MultiHeadAttention: _of_rung6,
    ladder.EncoderMultiHeadAttention: _of_rung7,
}


def _linears(*linears: nn.Linear) -> Sequence[_Map]:
    return [(linear.weight, linear.bias) for linear in linears]


# What texts call the parts of a class of attention.
_MATRICES = (
    ("W_query", "W_key", "W_value"),
    ("W_q", "W_k", "W_v"),
    ("Wq", "Wk", "Wv"),
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
)
_OUTPUTS = ("out_proj", "W_h", "W_o", "o_proj")
_HEADS = ("num_heads", "n_heads", "n_head")


def named_weights(module: nn.Module) -> AttentionWeights | None:
    """Find the matrices of a class by the names that texts give them; None without them.

    A parameter is taken as applied from the right, x @ W.

    >>> rung = ladder.SelfAttentionV1(d_in=5, d_out=3)
    >>> [list(weight.shape) for weight, _ in named_weights(rung).maps]
    [[3, 5], [3, 5], [3, 5]]
    """
    heads = getattr(module, "heads", None)
    if isinstance(heads, nn.ModuleList) and len(heads):
        parts = [named_weights(head) for head in heads]
        return None if None in parts else _joined(cast("list[AttentionWeights]", parts))
    for names in _MATRICES:
        maps = [_map(getattr(module, name, None)) for name in names]
        if None not in maps:
            break
    else:
        return None
    outputs = (_map(getattr(module, name, None)) for name in _OUTPUTS)
    dropout = getattr(module, "dropout", None)
    return AttentionWeights(
        maps=cast("list[_Map]", maps),
        output=next((one for one in outputs if one is not None), None),
        num_heads=next((n for name in _HEADS if isinstance(n := vars(module).get(name), int)), 1),
        dropout=dropout.p if isinstance(dropout, nn.Dropout) else 0.0,
    )


def _map(part: Any) -> _Map | None:
    if isinstance(part, nn.Linear):
        return part.weight, part.bias
    if isinstance(part, nn.Parameter) and part.ndim == 2:
        return part.T, None
    return None


# Enough words to tell a causal mask, and few enough for any `context_length`.
_BATCH, _WORDS = 2, 3


def _as_computed(module: nn.Module, named: AttentionWeights) -> AttentionWeights:
    """Return the weights with the score and the mask by which a class computes its output.

    Errors: a ValueError where it computes another thing with each of them.
    """
    kind = type(module).__name__
    refusal = ValueError(
        f"from_module takes a class that computes softmax(Q Kᵀ / √d) V of its matrices, with or "
        f"without √d, a causal mask, dropout of the weights and an output projection, and "
        f"{kind} does not: copy its weights into a MultiHeadAttention by hand."
    )
    width, rows = named.maps[0][0].shape[1], len(named.maps[0][0])
    if any(weight.shape != (rows, width) for weight, _ in named.maps) or rows % named.num_heads:
        raise refusal
    for score, mask in product((ScaledDot(), Dot()), (None, causal())):
        read = replace(named, score=score, mask=mask)
        if _agree(module, read, train=False):
            # Of several modules each draws numbers of its own.
            heads = isinstance(getattr(module, "heads", None), nn.ModuleList)
            if named.dropout and not (heads or _agree(module, read, train=True)):
                break
            return read
    raise refusal


def _agree(module: nn.Module, read: AttentionWeights, *, train: bool) -> bool:
    """Return whether a module computes from random numbers what its weights would here."""
    weight = read.maps[0][0]
    with _undisturbed(module, train=train):
        words = torch.randn(_BATCH, _WORDS, weight.shape[1]).to(weight)
        words = words[:1] if train else words
        torch.manual_seed(0)
        theirs = _output(module, words)
        torch.manual_seed(0)
        ours = _computed(read, words, train=train)
    return (
        isinstance(theirs, Tensor)
        and theirs.shape == ours.shape
        and torch.allclose(theirs, ours, rtol=1e-3, atol=1e-5)
    )


@contextmanager
def _undisturbed(module: nn.Module, *, train: bool) -> Iterator[None]:
    """Put a module into a mode without gradients, and undo all of that at the end."""
    modes = {part: part.training for part in module.modules()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            module.train(train)
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode


def _output(module: nn.Module, words: Tensor) -> Tensor | None:
    """Return what a module makes of sentences; None where it takes no such inputs."""
    ways: Sequence[Callable[[], Any]] = (
        lambda: torch.stack([module(sentence) for sentence in words]),
        lambda: module(words),
        lambda: module(words, words, words),
    )
    for way in ways:
        try:
            output = way()
        except (TypeError, ValueError, RuntimeError, LookupError, AssertionError, AttributeError):
            continue
        return output[0] if isinstance(output, tuple) else output
    return None


def _computed(read: AttentionWeights, words: Tensor, *, train: bool) -> Tensor:
    """Return the output of an attention with these weights, by the reference engine."""
    query, key, value = (
        nn.functional.linear(words, *one).unflatten(-1, (read.num_heads, -1)).transpose(1, 2)
        for one in read.maps
    )
    context = read.attention().train(train).trace(query, key, value).context
    context = context.transpose(1, 2).flatten(2)
    return context if read.output is None else nn.functional.linear(context, *read.output)


def copied_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a linear layer with copies of a weight and a bias."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    copy_into(linear.weight, weight)
    copy_into(linear.bias, bias)
    return linear


def copy_into(to: Tensor | None, of: Tensor | None) -> None:
    """Copy one tensor into another, where both are there."""
    if to is not None and of is not None:
        with torch.no_grad():
            to.copy_(of)
