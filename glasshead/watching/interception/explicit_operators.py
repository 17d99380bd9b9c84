"""Operators, as far as following a tensor through them is concerned."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from glasshead.watching.interception.axes import PRODUCTS

# Operators that copy a tensor, and change at most its type or its shape.
_COPIES = {
    f"aten::{name}"
    for name in ("_to_copy", "alias", "clone", "contiguous", "detach", "to", "type_as")
}
_RESHAPES = {"aten::flatten", "aten::reshape", "aten::unflatten", "aten::view_copy"}
# Operators on each number, beside those that PyTorch marks; the log-softmax subtracts one a row.
_ELEMENTWISE = {
    f"aten::{name}"
    for name in (
        "_log_softmax",
        "dropout",
        "feature_dropout",
        "log_softmax",
        "masked_fill",
        "native_dropout",
        "special_log_softmax",
        "tril",
        "triu",
    )
}
_EXPONENTIALS = {"aten::exp", "aten::exp2", "aten::special_exp2"}
_CONVOLUTIONS = {f"aten::{name}" for name in ("convolution", "conv1d", "conv2d", "conv3d")}
_SCALES = {"aten::div", "aten::mul"}
# Operators that move numbers to other places.
_MOVES = {
    f"aten::{name}"
    for name in (
        "_unsafe_index",
        "cat",
        "constant_pad_nd",
        "flip",
        "gather",
        "index",
        "index_put",
        "index_select",
        "pad",
        "repeat",
        "repeat_interleave",
        "roll",
        "scatter",
        "select_scatter",
        "slice_scatter",
        "stack",
    )
}
# Operators along a text.
_SUMS = {f"aten::{name}" for name in ("_fft_c2c", "_fft_r2c", "cumprod", "cumsum", "logcumsumexp")}
# Operators that take no number of their inputs over.
_EMPTY = ("_like", "aten::new_", "aten::bernoulli")


class Operator(NamedTuple):
    """An operator, as far as following it is concerned."""

    name: str
    product: bool
    convolution: bool
    sums: bool
    exponential: bool
    copies: bool
    reshapes: bool
    moves: bool
    scales: bool
    elementwise: bool
    mutates: bool
    empty: bool
    view: bool


def is_exponential(name: str) -> bool:
    """Return whether the operator of a name, such as "aten::exp_", computes powers."""
    return name.partition(".")[0].removesuffix("_") in _EXPONENTIALS


@cache
def operator_of(func: Any) -> Operator:
    """Return what is known of an operator of PyTorch."""
    full = func.name().partition(".")[0]
    name = full.removesuffix("_")
    schema, tags = getattr(func, "_schema", None), getattr(func, "tags", ())
    return Operator(
        name,
        product=full in PRODUCTS,
        convolution=name in _CONVOLUTIONS,
        sums=name in _SUMS,
        exponential=is_exponential(name),
        copies=name in _COPIES,
        reshapes=name in _RESHAPES,
        moves=name in _MOVES,
        scales=name in _SCALES,
        elementwise=name in _ELEMENTWISE
        or name == "aten::copy"
        or any(getattr(tag, "name", "") == "pointwise" for tag in (*tags, *_tags_of(name))),
        mutates=bool(getattr(schema, "is_mutable", full != name)),
        empty=any(part in name for part in _EMPTY),
        view=getattr(func, "is_view", False) and name not in _COPIES | _RESHAPES,
    )


def _tags_of(name: str) -> Sequence[Any]:
    """Return the tags of an operator's other overloads, some of which lack them."""
    packet = getattr(torch.ops.aten, name.rpartition("::")[2], None)
    if packet is None:
        return ()
    return [tag for overload in packet.overloads() for tag in getattr(packet, overload).tags]
