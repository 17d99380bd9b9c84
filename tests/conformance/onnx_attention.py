"""The ONNX operator `Attention` (opset 23 to 25), said with the public interface.

ONNX writes the layout, the cache and the masks into one operator; here each is a line.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import glasshead as gh

STEPS = ("scaled", "capped", "masked", "weights")


def onnx_attention(
    inputs: Mapping[str, Tensor], attributes: Mapping[str, Any], engine: str
) -> dict[str, Tensor]:
    """The outputs of the operator for its inputs and attributes, by their names."""
    flat = inputs["Q"].ndim == 3
    query, key, value = inputs["Q"], inputs["K"], inputs["V"]
    if flat:
        heads, kv_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
        key, value = (x.unflatten(-1, (kv_heads, -1)).transpose(1, 2) for x in (key, value))
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[-2]
        key = torch.cat([inputs["past_key"], key], dim=-2)
        value = torch.cat([inputs["past_value"], value], dim=-2)

    attention = gh.Attention(
        score=gh.ScaledDot(beta=attributes.get("scale")),
        softcap=attributes.get("softcap", 0.0) or None,
        mask=_structure(inputs, attributes, query, past),
        engine=engine,
    )
    call = _data(inputs, key.shape[-2])
    context = attention(query, key, value, **call)
    step = STEPS[attributes.get("qk_matmul_output_mode", 0)]
    return {
        "Y": context.transpose(1, 2).flatten(2) if flat else context,
        "present_key": key,
        "present_value": value,
        "qk_matmul_output": getattr(attention.trace(query, key, value, **call), step),
    }


def _structure(inputs, attributes, query, past) -> gh.Mask | None:
    """Causal and windows, counted from the past length, or from the keys that are real."""
    offset = past
    if "nonpad_kv_seqlen" in inputs:
        offset = inputs["nonpad_kv_seqlen"] - query.shape[-2]
    before, after = (
        None if attributes.get(name, -1) < 0 else attributes[name]
        for name in ("left_window_size", "right_window_size")
    )
    masks = []
    if attributes.get("is_causal"):
        masks.append(gh.causal(offset=offset))
    if before is not None or after is not None:
        masks.append(gh.window(before=before, after=after, offset=offset))
    return masks[0] & masks[1] if len(masks) == 2 else masks[0] if masks else None


def _data(inputs, keys) -> dict[str, Any]:
    """The mask tensor, whose missing columns are hidden, and the keys that are real."""
    call = {"mask": None, "bias": None}
    if "nonpad_kv_seqlen" in inputs:
        call["mask"] = gh.padding(inputs["nonpad_kv_seqlen"])
    if "attn_mask" in inputs:
        tensor = inputs["attn_mask"]
        missing = (0, keys - tensor.shape[-1])
        if tensor.dtype == torch.bool:
            mask = gh.dense(torch.nn.functional.pad(tensor, missing, value=False))
            call["mask"] = mask if call["mask"] is None else call["mask"] & mask
        else:
            call["bias"] = torch.nn.functional.pad(tensor, missing, value=-torch.inf)
    return call
