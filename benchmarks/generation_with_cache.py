"""What the cache saves: greedy generation with it against without, pairs in one run."""

from pathlib import Path
from typing import Any

import torch
from pairs import Pair, judged, paired, report

import glasshead as gh
from glasshead.models.decoding import Greedy, generate
from glasshead.models.language_model import LanguageModelSteps

RESULTS = Path("build/benchmarks/generation_with_cache.json")
TOKENS = 256


class WithoutCache:
    """A language model that reads the whole text again for each token."""

    def __init__(self, model: gh.LanguageModel) -> None:
        self.model = model
        self.text: torch.Tensor | None = None

    @torch.inference_mode()
    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of the token that follows these."""
        self.text = tokens if self.text is None else torch.cat([self.text, tokens], dim=1)
        return self.model.logits(self.model.hidden(self.text)[:, -1])

    def reorder(self, rows: torch.Tensor) -> None:
        """Row i becomes what row `rows[i]` was."""
        if self.text is not None:
            self.text = self.text[rows]


def pair(name: str, pairs: int, **sizes: Any) -> Pair:
    """The same 256 tokens, both ways."""
    torch.manual_seed(0)
    config = gh.LanguageModelConfig(vocab_size=512, context_length=512, **sizes)
    model = gh.LanguageModel(config).eval()
    prompt = torch.randint(512, (1, 32))

    def tokens(steps: type) -> list[int]:
        return generate(steps(model), prompt, Greedy(), max_tokens=TOKENS).tokens[0]

    assert tokens(LanguageModelSteps) == tokens(WithoutCache), "the cache changed the text"
    times = paired(lambda: tokens(LanguageModelSteps), lambda: tokens(WithoutCache), pairs=pairs)
    return judged(f"{TOKENS} tokens, {name}", times, speedup=4)


def main() -> None:
    """Time a model of a few and one of many layers."""
    rows = [
        pair("4 layers, width 128", pairs=5, num_layers=4, d_model=128, num_heads=4),
        pair("6 layers, width 384", pairs=3, num_layers=6, d_model=384, num_heads=6),
    ]
    report(
        f"greedy generation with a cache (ours) and without, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads",
        rows,
        RESULTS,
    )


if __name__ == "__main__":
    main()
