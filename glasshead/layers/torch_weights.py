"""Weights of PyTorch's attention, of the ladder's classes and of a reader's own, for our layers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from glasshead import ladder
from glasshead.attention import Attention
from glasshead.recipe.masks import Mask, causal
from glasshead.recipe.scores import Score

_Map = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights and settings of an attention module.

    Attributes:
        maps: Weight and bias of queries, keys and values, the heads' rows one below the other.
        output: Those of the output projection, if there is one.
        num_heads: The number of heads.
        score, mask, dropout: Of its attention.
        apart: Whether heads are modules of their own, each of which drops weights by itself.
    """

    maps: Sequence[_Map]
    output: _Map | None = None
    num_heads: int = 1
    mask: Mask | None = None
    dropout: float = 0.0
    score: Score | None = None
    apart: bool = False

    def attention(self) -> Attention:
        """Return the attention between the projections."""
        return Attention(score=self.score, mask=self.mask, dropout=self.dropout)


def known_weights(module: nn.Module) -> AttentionWeights | None:
    """Return the weights of PyTorch's multi-head attention, or of a class of the ladder.

    None for a module of another kind.

    Errors: a ValueError for a setting that has no counterpart here.
    """
    for kind, find in _FINDERS.items():
        # A subclass may compute another thing.
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return find(module)
    return None


def _of_torch(module: nn.MultiheadAttention) -> AttentionWeights:
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "from_module needs an nn.MultiheadAttention without add_bias_kv and add_zero_attn, "
            "which add keys."
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
    ("W_Q", "W_K", "W_V"),
    ("Wq", "Wk", "Wv"),
    ("wq", "wk", "wv"),
    ("query", "key", "value"),
    ("queries", "keys", "values"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("q", "k", "v"),
)
_STACKED = ("qkv", "W_qkv", "Wqkv", "qkv_proj", "to_qkv", "c_attn", "in_proj", "query_key_value")
_OUTPUTS = (
    *("out_proj", "W_h", "W_o", "W_O", "Wo", "wo", "o_proj", "to_out", "c_proj", "proj"),
    *("W_out", "fc_out", "output"),
)
_HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "h", "num_attention_heads")
_DROPOUTS = ("dropout", "attn_dropout", "attn_drop", "drop", "dropout_p")


def named_weights(module: nn.Module) -> AttentionWeights | None:
    """Find the matrices of a class by the names that texts give them; None without them.

    A parameter is taken as applied from the right, x @ W.

    >>> rung = ladder.SelfAttentionV1(d_in=5, d_out=3)
    >>> [list(weight.shape) for weight, _ in named_weights(rung).maps]
    [[3, 5], [3, 5], [3, 5]]
    """
    return next(readings(module), None)


def readings(module: nn.Module) -> Iterator[AttentionWeights]:
    """Yield the ways to read the matrices of a class by their names, the likeliest first."""
    heads = getattr(module, "heads", None)
    if isinstance(heads, nn.ModuleList) and len(heads):
        parts = [named_weights(head) for head in heads]
        if None not in parts:
            joined = _joined(cast("list[AttentionWeights]", parts))
            outputs = list(_outputs(module, 1))
            yield replace(joined, output=outputs[0] if outputs else joined.output, apart=True)
        return
    count = next((n for name in _HEADS if isinstance(n := vars(module).get(name), int)), 1)
    read = AttentionWeights(maps=(), num_heads=max(1, count), dropout=_dropout(module))
    for maps, heads in (*_apart(module, read.num_heads), *_stacked(module, read.num_heads)):
        outputs = list(_outputs(module, heads))
        for output in outputs or [None]:
            yield replace(read, maps=maps, num_heads=heads, output=output)


def _apart(module: nn.Module, heads: int) -> Iterator[tuple[list[_Map], int]]:
    """Yield matrices of queries, keys and values that have a name each."""
    for names in _MATRICES:
        parts = [getattr(module, name, None) for name in names]
        biases = [_bias(module, name) for name in names]
        if all(isinstance(part, nn.Parameter) and part.ndim == 3 for part in parts):
            # [heads, width, head_dim], or [width, heads, head_dim].
            for axis in (0, 1):
                shaped = [part.movedim(axis, 0) for part in parts]  # type: ignore[union-attr]
                maps = [
                    (weight.mT.flatten(0, 1), None if bias is None else bias.flatten())
                    for weight, bias in zip(shaped, biases, strict=True)
                ]
                yield maps, len(shaped[0])
            return
        maps = [_map(part, bias) for part, bias in zip(parts, biases, strict=True)]
        if None not in maps:
            yield cast("list[_Map]", maps), heads
            if all(isinstance(part, nn.Parameter) for part in parts):
                # Applied as x @ W.T.
                yield [(weight.T, bias) for weight, bias in cast("list[_Map]", maps)], heads
            return


def _stacked(module: nn.Module, heads: int) -> Iterator[tuple[list[_Map], int]]:
    """Yield matrices of queries, keys and values that are stacked in one."""
    for name in _STACKED:
        found = _map(getattr(module, name, None), _bias(module, name))
        if found is None or len(found[0]) % (3 * heads):
            continue
        weight, bias = found
        three = [None] * 3 if bias is None else bias.chunk(3)
        yield list(zip(weight.chunk(3), three, strict=True)), heads
        # Those of a head side by side.
        rows = weight.unflatten(0, (heads, 3, -1)).unbind(1)
        three = [None] * 3 if bias is None else bias.unflatten(0, (heads, 3, -1)).unbind(1)
        yield (
            [
                (row.flatten(0, 1), None if one is None else one.flatten())
                for row, one in zip(rows, three, strict=True)
            ],
            heads,
        )
        return


def _outputs(module: nn.Module, heads: int) -> Iterator[_Map]:
    """Yield the ways to read the output projection of a class."""
    for name in _OUTPUTS:
        part, bias = getattr(module, name, None), _bias(module, name)
        if isinstance(part, nn.Sequential) and len(part):
            part = part[0]
        if isinstance(part, nn.Parameter) and part.ndim == 3 and len(part) == heads:
            yield part.flatten(0, 1).T, bias
            return
        found = _map(part, bias)
        if found is not None:
            yield found
            if isinstance(part, nn.Parameter):
                yield found[0].T, bias
            return


def _bias(module: nn.Module, name: str) -> Tensor | None:
    """Return the bias of a parameter by its name: of W_query, b_query or W_query_bias."""
    last = name.removeprefix("W_").removeprefix("W").removeprefix("w")
    for one in (f"b_{last}", f"b{last}", f"bias_{last}", f"{last}_bias", f"{name}_bias"):
        found = getattr(module, one, None)
        if isinstance(found, nn.Parameter):
            return found
    return None


def _dropout(module: nn.Module) -> float:
    """Return the share of weights that a class drops."""
    for name in _DROPOUTS:
        found = getattr(module, name, None)
        if isinstance(found, nn.Dropout):
            return found.p
        if isinstance(found, float):
            return found
    return 0.0


def _map(part: Any, bias: Tensor | None) -> _Map | None:
    if isinstance(part, nn.Linear):
        return part.weight, part.bias
    if type(part).__name__ == "Conv1D" and isinstance(part, nn.Module):
        # The linear layer of GPT-2 in transformers, applied as x @ W.
        return cast("Tensor", part.weight).T, cast("Tensor", part.bias)
    if isinstance(part, nn.Parameter) and part.ndim == 2:
        return part.T, bias
    return None


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
