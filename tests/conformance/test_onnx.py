"""Every published case of the ONNX operator `Attention`, through the public interface."""

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
import torch
from onnx import numpy_helper

from conformance.onnx_attention import onnx_attention

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "node"
CASES = sorted(
    path.name for path in FOLDER.glob("test_attention_*") if not path.name.endswith("_expanded")
)


def tensor(path) -> torch.Tensor:
    proto = onnx.TensorProto.FromString(path.read_bytes())
    return torch.from_numpy(np.array(numpy_helper.to_array(proto)))


def load(name):
    """The inputs, attributes and expected outputs of a case, by name."""
    model = onnx.load(FOLDER / name / "model.onnx")
    (node,) = model.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes["opset"] = model.opset_import[0].version
    folder = FOLDER / name / "test_data_set_0"
    inputs, outputs = [n for n in node.input if n], [n for n in node.output if n]
    given = dict(zip(_slots(node.input, INPUTS), inputs, strict=True))
    expected = dict(zip(_slots(node.output, OUTPUTS), outputs, strict=True))
    return (
        {slot: tensor(folder / f"input_{i}.pb") for i, slot in enumerate(given)},
        attributes,
        {slot: tensor(folder / f"output_{i}.pb") for i, slot in enumerate(expected)},
    )


INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


def _slots(names, slots) -> list[str]:
    """The operator's own names for those of its places that the node fills."""
    return [slot for slot, name in zip(slots, names, strict=False) if name]


def test_all_published_cases_are_run():
    assert len(CASES) == 64


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("name", CASES)
def test_published_case(name, engine):
    inputs, attributes, expected = load(name)
    outputs = onnx_attention(inputs, attributes, engine)
    for slot, wanted in expected.items():
        tolerance = 2e-3 if wanted.dtype == torch.float16 else 1e-5
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
    found = onnx_attention(inputs, attributes | {"opset": 25}, engine)
    expected = onnx_attention({**inputs, "attn_mask": seen}, {"opset": 25}, engine)
    torch.testing.assert_close(found["Y"], expected["Y"])
    torch.testing.assert_close(found["qk_matmul_output"], expected["qk_matmul_output"])
