"""Weights files: both forms that are read, and every fault with its file and tensor."""

import re

import pytest
import torch
from safetensors.torch import save_file

from glasshead.cli.inputs.tensors import read_weights
from glasshead.ladder import SelfAttentionV1, SelfAttentionV2

ROLES = ("query", "key", "value")


def saved(folder, **tensors):
    path = folder / "w.safetensors"
    save_file({name.replace("__", "."): tensor for name, tensor in tensors.items()}, path)
    return path


def matrices(**others):
    return {f"W_{role}": torch.ones(3, 2) for role in ROLES} | others


@pytest.mark.parametrize("module", [SelfAttentionV1(3, 2), SelfAttentionV2(3, 2, qkv_bias=True)])
def test_the_ladders_own_weights_give_its_projections(tmp_path, module):
    path = tmp_path / "w.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, path)
    x = torch.rand(5, 3, dtype=torch.float64)
    projection = read_weights(path).projection(x)
    module = module.double()
    for role, made in zip(
        ROLES, (projection.queries, projection.keys, projection.values), strict=True
    ):
        weight = getattr(module, f"W_{role}")
        torch.testing.assert_close(
            made, x @ weight if isinstance(weight, torch.Tensor) else weight(x)
        )


def test_half_precision_is_read_and_the_value_may_be_of_another_width(tmp_path):
    path = saved(tmp_path, **matrices(W_value=torch.full((3, 5), 0.5, dtype=torch.bfloat16)))
    read = read_weights(path)
    assert read.d_in == 3
    assert read.tensors["W_value"].shape == (3, 5)
    assert read.tensors["W_value"].dtype == torch.float64


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"W_query": torch.ones(3, 2)}, "and W_key, W_value are missing (the file has W_query)"),
        (
            {"W_q": torch.ones(3, 2)},
            "expected W_query, W_key, W_value, and W_query, W_key, W_value are",
        ),
        (matrices(out_proj=torch.ones(2, 2)), "out_proj has no place in a projection of W_query"),
        (
            matrices(W_query__bias=torch.ones(2)),
            "W_query.bias has no place in a projection of W_query, W_key, W_value: leave it",
        ),
        (
            matrices(W_key=torch.ones(3, 4)),
            "W_key takes the shape of W_query, [3, 2] as [d_in, d_out]",
        ),
        (
            matrices(W_value=torch.ones(4, 2)),
            "W_value takes the d_in of W_query, 3, and got [4, 2]",
        ),
        (matrices(W_key=torch.ones(6)), "W_key takes the shape [d_in, d_out], and got [6]"),
        (matrices(W_key=torch.ones(3, 0)), "W_key takes the shape [d_in, d_out], and got [3, 0]"),
        (
            matrices(W_key=torch.ones(3, 2, dtype=torch.int64)),
            "W_key takes floating-point numbers, and got torch.int64: convert it by .float().",
        ),
        (
            matrices(W_value=torch.full((3, 2), torch.nan)),
            "W_value takes finite numbers, and has NaN",
        ),
        (matrices(W_query=torch.full((3, 2), torch.inf)), "W_query takes finite numbers"),
    ],
)
def test_a_fault_is_named_with_its_file_and_tensor(tmp_path, tensors, sentence):
    path = saved(tmp_path, **tensors)
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_bias_of_another_width_is_refused(tmp_path):
    linear = {f"W_{role}__weight": torch.ones(2, 3) for role in ROLES}
    path = saved(tmp_path, **linear, W_key__bias=torch.ones(3))
    with pytest.raises(
        ValueError, match="the bias of W_key takes 2 numbers, as its d_out, and got 3"
    ):
        read_weights(path)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x08" + b"\0" * 7 + b"{}"])
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="w.safetensors"):
        read_weights(path)


def test_vectors_of_another_width_are_refused_with_the_file(tmp_path):
    path = saved(tmp_path, **matrices())
    with pytest.raises(
        ValueError, match=re.escape(f"{path}: W_query takes [2, d_out] for vectors of 2")
    ):
        read_weights(path).projection(torch.ones(4, 2, dtype=torch.float64))
