"""Bytes that `keep="weights"` takes while a text is generated, against those of the keys.

python benchmarks/kept_weights.py          greedy decoding, a padded batch, beams and a window
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pairs import Figure, figure, report

import glasshead as gh

RESULTS = Path("build/benchmarks/kept_weights.json")
LAYERS, HEADS, KV_HEADS, WIDTH = 2, 4, 1, 128
PROMPT, TOKENS, WINDOW = 100, 400, 64


def model(window: int | None) -> torch.nn.Module:
    """Two layers of the shape of Llama 3 8B, with a quarter of its heads; with a window Mistral."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=101,
        hidden_size=HEADS * WIDTH,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH,
        sliding_window=window,
    )
    return MistralForCausalLM(config).eval()


def kept_bytes(value: Any, known: dict[int, Any]) -> int:
    """Sum the storages of all tensors within a value, each once."""
    if id(value) in known:
        return 0
    known[id(value)] = value
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        first = storage.data_ptr() not in known
        known[storage.data_ptr()] = storage
        return storage.nbytes() if first else 0
    if isinstance(value, Mapping):
        return sum(kept_bytes(one, known) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(kept_bytes(one, known) for one in value)
    return kept_bytes(getattr(value, "__dict__", {}), known)


def measured(name: str, batch: int, window: int | None = None, **decoding: Any) -> list[Figure]:
    """Generate a text, and return what its weights take beyond a row for each step."""
    made = model(window)
    tokens = torch.randint(2, 101, (batch, PROMPT))
    mask = torch.ones_like(tokens)
    mask[1:, :13] = 0
    with gh.watch(made, keep="weights") as seen:
        made.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            pad_token_id=0,
            do_sample=False,
            **decoding,
        )
    known: dict[int, Any] = {}
    calls = [call for layer in seen.values() for call in layer]
    total = sum(kept_bytes(call.weights, known) for call in calls)
    read = sum(call.queries for call in calls) * calls[0].shape[0] * 4
    keys, rows = read * KV_HEADS * WIDTH, read * HEADS * WIDTH
    about = f"{PROMPT} + {TOKENS} tokens"
    return [
        figure(f"{name}: kept", total / 2**20, "MiB", about=about),
        figure(f"{name}: beyond rows, by keys", (total - rows) / keys, "×", at_most=1.2),
    ]


def main() -> None:
    """Measure, print, and write JSON."""
    figures = [
        *measured("greedy", 1),
        *measured("batch of 3, padded", 3),
        *measured("4 beams", 1, num_beams=4),
        *measured(f"window of {WINDOW}", 1, window=WINDOW),
    ]
    report(f"keep='weights' while text is generated, torch {torch.__version__}", figures, RESULTS)


if __name__ == "__main__":
    main()
