"""What dropout on the weights costs: PyTorch leaves its fused kernel on the CPU for it.

"Ours" is without, as the presets have it; "theirs" has dropout 0.1 on the weights.
"""

from pathlib import Path

import torch
from pairs import Pair, judged, paired, report
from torch.nn import functional as F

from glasshead.models import Translator
from glasshead.tasks.training.task import cross_entropy
from glasshead.tasks.translate import TranslateSettings

RESULTS = Path("build/benchmarks/attention_dropout.json")
HEADS, WIDTH, SHARE = 4, 64, 0.1
SENTENCES, TOKENS, VOCABULARY = 150, 20, 8000


def attention(batch: int, length: int) -> Pair:
    """Forward and backward of one attention."""
    shape = (batch, HEADS, length, WIDTH)
    query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))

    def step(dropout: float) -> None:
        F.scaled_dot_product_attention(query, key, value, dropout_p=dropout).sum().backward()

    times = paired(lambda: step(0.0), lambda: step(SHARE), pairs=15)
    return judged(f"one attention, {batch} × {length} tokens", times)


def translator() -> Pair:
    """Forward and backward of the preset `small`."""
    tokens = torch.randint(4, VOCABULARY, (SENTENCES, TOKENS))
    lengths = torch.full((SENTENCES,), TOKENS)

    def model(dropout: float) -> Translator:
        settings = TranslateSettings.from_preset("small", [f"attention_dropout={dropout}"])
        return Translator(settings.model_config(vocab_size=VOCABULARY))

    def step(translator: Translator) -> None:
        cross_entropy(translator(tokens, lengths, tokens), tokens).backward()

    without, dropping = model(0.0), model(SHARE)
    times = paired(lambda: step(without), lambda: step(dropping), pairs=9)
    return judged(f"translate small, {SENTENCES} sentences of {TOKENS} tokens", times)


def main() -> None:
    """Time a whole model on short sentences, and one attention by length."""
    rows = [translator(), attention(150, 20), attention(12, 256), attention(3, 1024)]
    report(
        f"a step without dropout on the weights (ours) and with {SHARE}, torch "
        f"{torch.__version__}, {torch.get_num_threads()} threads",
        rows,
        RESULTS,
    )


if __name__ == "__main__":
    main()
