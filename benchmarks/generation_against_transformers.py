"""Real models as ours: greedy generation against `transformers.generate`, and windows at length."""

import itertools
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from pairs import Figure, Pair, figure, judged, paired, report

import glasshead as gh
from glasshead.models.decoding import Greedy, generate, stream
from glasshead.models.language_model import LanguageModelSteps

RESULTS = Path("build/benchmarks/generation_against_transformers.json")
TOKENS, PROMPT = 128, 32
WINDOW, LONG, PART = 256, 8192, 512


def pair(name: str, *, rows: int = 1, pairs: int = 7, **sizes: Any) -> Pair:
    """The same tokens of the same weights, by both libraries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, max_position_embeddings=512, eos_token_id=None, bos_token_id=0, **sizes
    )
    theirs = LlamaForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.save_pretrained(folder)
        ours = gh.load_pretrained(folder)
    assert isinstance(ours, gh.LanguageModel)
    prompt = torch.randint(1024, (rows, PROMPT))
    asked: Any = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}

    def by_them() -> list[list[int]]:
        mask = torch.ones_like(prompt)
        return theirs.generate(prompt, attention_mask=mask, **asked)[:, PROMPT:].tolist()  # type: ignore[reportCallIssue]

    def by_us() -> list[list[int]]:
        return generate(LanguageModelSteps(ours), prompt, Greedy(), max_tokens=TOKENS).tokens

    assert by_us() == by_them(), "the two wrote other tokens"
    return judged(f"{TOKENS} tokens, {name}", paired(by_us, by_them, pairs=pairs), speedup=1.5)


def windowed() -> list[Figure]:
    """How long a token takes, the first and the last of a long text, of a model with a window."""
    torch.manual_seed(0)
    config = gh.LanguageModelConfig(
        vocab_size=1024,
        context_length=2 * LONG,
        d_model=128,
        num_heads=4,
        positions="rotary",
        norm="rms",
        feed_forward="swiglu",
        window=WINDOW,
        dropout=0.0,
    )
    model = gh.LanguageModel(config).eval()
    times, before = [], time.perf_counter()
    chosen = stream(LanguageModelSteps(model), torch.tensor([[0]]), Greedy(), max_tokens=LONG)
    for _ in itertools.islice(chosen, LONG):
        now = time.perf_counter()
        times.append(now - before)
        before = now
    first, last = (
        statistics.median(part) for part in (times[WINDOW : WINDOW + PART], times[-PART:])
    )
    name = f"window of {WINDOW}, {LONG} tokens"
    return [
        figure(f"{name}: a token after {WINDOW}", first, "s"),
        figure(f"{name}: a token at the end", last, "s"),
        figure(f"{name}: the end against the beginning", last / first, "×", at_most=1.1),
    ]


def main() -> None:
    """Time small Llamas, and a model with a window."""
    small = {"hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 8}
    rows: list[Pair | Figure] = [
        pair("a Llama of 4 layers, width 256", num_hidden_layers=4, num_key_value_heads=4, **small),
        pair("the same, 5 texts", rows=5, num_hidden_layers=4, num_key_value_heads=4, **small),
        pair(
            "stories260K's size",
            hidden_size=64,
            intermediate_size=172,
            num_attention_heads=8,
            num_key_value_heads=4,
            num_hidden_layers=5,
        ),
        *windowed(),
    ]
    title = f"generation, torch {torch.__version__}, {torch.get_num_threads()} threads"
    report(title, rows, RESULTS)


if __name__ == "__main__":
    main()
