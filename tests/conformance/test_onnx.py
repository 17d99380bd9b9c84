"""Every published case of the ONNX operator `Attention`, through the public interface."""

import importlib
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case import node as published_nodes

from conformance.onnx_attention import onnx_attention


def published():
    """The cases that ONNX computes for its own tests, by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # `collect_testcases` computes those of all other operators too, which takes seconds.
        importlib.import_module(f"{published_nodes.__name__}.attention")
    return {one.name: one for one in published_nodes._NodeTestCases}


def tensor(array) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


PUBLISHED = published()
CASES = sorted(
    name
    for name in PUBLISHED
    if name.startswith("test_attention_") and not name.endswith("_expanded")
)
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2**-7}


def load(name):
    """The inputs, attributes and expected outputs of a case, by name."""
    case = PUBLISHED[name]
    given, expected = (map(tensor, arrays) for arrays in case.data_sets[0])
    (node,) = case.model.graph.node
    return (
        dict(zip(_slots(node.input, INPUTS), given, strict=True)),
        {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        dict(zip(_slots(node.output, OUTPUTS), expected, strict=True)),
    )


INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


def _slots(names, slots) -> list[str]:
    """The operator's own names for those of its places that the node fills."""
    return [slot for slot, name in zip(slots, names, strict=False) if name]


def test_all_published_cases_are_run():
    # ONNX 1.22 has 64 of them, 1.23.2 has 93.
    assert len(CASES) >= 64
    assert "test_attention_4d_causal" in CASES


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("name", CASES)
def test_published_case(name, engine):
    inputs, attributes, expected = load(name)
    outputs = onnx_attention(inputs, attributes, engine)
    for slot, wanted in expected.items():
        tolerance = TOLERANCES.get(wanted.dtype, 1e-5)
        found = outputs[slot].to(wanted.dtype)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, msg=slot)


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize(("left", "right"), [(-1, 0), (0, -1), (2, 1), (0, 0)])
@pytest.mark.parametrize("cache", ["none", "past", "nonpad"])
@pytest.mark.parametrize("is_causal", [0, 1])
def test_windows_of_opset_25(engine, left, right, cache, is_causal):
    """Key j is seen by query i when offset + i - left <= j <= offset + i + right."""
    queries, keys, past = 3, 7, 2 if cache == "past" else 0
    inputs = {
        "Q": torch.randn(2, 2, queries, 5),
        "K": torch.randn(2, 1, keys, 5),
        "V": torch.randn(2, 1, keys, 3),
    }
    offsets = [past, past]
    if cache == "past":
        inputs |= {"past_key": torch.randn(2, 1, past, 5), "past_value": torch.randn(2, 1, past, 3)}
    if cache == "nonpad":
        inputs["nonpad_kv_seqlen"] = torch.tensor([5, 7])
        offsets = [5 - queries, 7 - queries]
    seen = torch.ones(2, 1, queries, keys + past, dtype=torch.bool)
    for batch, offset in enumerate(offsets):
        for i in range(queries):
            for j in range(keys + past):
                ok = (left < 0 or j >= offset + i - left) and (right < 0 or j <= offset + i + right)
                seen[batch, 0, i, j] = ok and not (is_causal and j > offset + i)
    attributes = {"left_window_size": left, "right_window_size": right, "is_causal": is_causal}
    found = onnx_attention(inputs, attributes, engine)
    expected = onnx_attention({**inputs, "attn_mask": seen}, {}, engine)
    torch.testing.assert_close(found["Y"], expected["Y"])
    torch.testing.assert_close(found["qk_matmul_output"], expected["qk_matmul_output"])
