"""What parts of scores and logits cost, in forward passes of a model of the size of GPT-2.

python benchmarks/parts.py    all of it, some two minutes; at most 1.5 passes for a query of a layer
"""

from pathlib import Path

import torch
from pairs import judged, paired, report

import glasshead as gh

RESULTS = Path("build/benchmarks/parts.json")
TOKENS, VOCABULARY, LAYERS, HEADS, WIDTH = 1024, 5000, 12, 12, 768
HEAD, KEY = 3, 5
LIMIT = 1.5


def model() -> torch.nn.Module:
    """A GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return GPT2LMHeadModel(config).eval()


def main() -> None:
    """Measure, print, and write JSON."""
    made, tokens = model(), torch.randint(VOCABULARY, (1, TOKENS))

    @torch.no_grad()
    def plain() -> object:
        return made(tokens)

    @torch.no_grad()
    def watched() -> gh.Seen:
        with gh.watch(made, keep="parts") as seen:
            made(tokens)
        return seen

    seen = watched()
    last = list(seen)[-1]
    asked = {
        "score_parts of a query and all keys, last layer": lambda: gh.score_parts(
            seen, last, head=HEAD, query=-1
        ),
        "score_parts of a query and a key, all pairs": lambda: (
            gh.score_parts(seen, last, head=HEAD, query=-1, key=KEY).pairs
        ),
        "logit_parts": lambda: gh.logit_parts(seen),
    }
    rows = [judged("a pass that keeps parts", paired(watched, plain, pairs=5))]
    for name, ask in asked.items():
        rows.append(judged(name, paired(ask, plain, pairs=5), ratio=LIMIT))
    title = (
        f"A GPT-2 of {LAYERS} layers, {TOKENS} tokens, against a forward pass, torch "
        f"{torch.__version__}, {torch.get_num_threads()} threads"
    )
    report(title, rows, RESULTS)


if __name__ == "__main__":
    main()
