"""Keep what one head of a model saw of a whole book, and look at it in the studio.

    python examples/atlas_of_a_book.py stories260K.bin BOOK.txt [FILE.safetensors]
        [--tokens 65536] [--layer 1] [--head 3]

stories260K is a small Llama that was trained on children's stories of up to 512 tokens; llama2.c
keeps it as one file, https://huggingface.co/karpathy/tinyllamas. Its positions have no end, so it
reads on: what its heads do far beyond what they have learned is to be seen. Kept are queries, keys
and the logsumexp of each row, 4 MB for 65,536 tokens; the matrix itself would take 17 GB. Beside
them FILE.tokens.json holds the tokens, which the studio shows along the axes.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import glasshead as gh
from glasshead.models.pretrained import load_llama2c
from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.files import read_text
from glasshead.tasks.tokenizers.pretrained import llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

FILE = Path("build") / "book.safetensors"
CHARACTERS_A_TOKEN = 8


def reaching(model: gh.LanguageModel, tokens: int, layers: int) -> gh.LanguageModel:
    """The first layers of a model, made to read as many tokens."""
    config = dataclasses.replace(model.config, context_length=tokens, num_layers=layers)
    longer = gh.LanguageModel(config)
    own = model.state_dict()
    longer.load_state_dict({name: own[name] for name in longer.state_dict()})
    return longer.eval()


def read(model: gh.LanguageModel, tokens: Sequence[int], layer: int, head: int) -> gh.Weights:
    """The attention of one head to a text, which takes no matrix."""
    name = f"blocks.{layer}.attention"
    longer = reaching(model, len(tokens), layer + 1)
    with torch.inference_mode(), gh.watch(longer, keep="weights", layers=name) as seen:
        longer.hidden(torch.tensor([tokens]))
    return seen[name][0].weights.head(0, head)


def main(arguments: Sequence[str]) -> int:
    """Read, keep, and say how to look; the exit code is 2 where a file is not what it should be."""
    parser = argparse.ArgumentParser(description="Keep what a head saw of a book.")
    parser.add_argument("model", type=Path, help="a file of llama2.c, its tokenizer beside it")
    parser.add_argument("book", type=Path, help="a text")
    parser.add_argument("file", type=Path, nargs="?", default=FILE, help="where it is kept")
    parser.add_argument("--tokens", type=int, default=65_536, help="how many are read at most")
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--head", type=int, default=3)
    asked = parser.parse_args(arguments)
    try:
        model = load_llama2c(asked.model)
        _check(model, asked.layer, asked.head)
        most = whole_number(asked.tokens, "--tokens", least=1)
        tokenizer: Tokenizer = llama2c_tokenizer(asked.model.parent / "tok512.bin")
        text = read_text(asked.book)[: CHARACTERS_A_TOKEN * most]
        tokens = tokenizer.encode_batch([text])[0][:most]
        print(f"reading {len(tokens):,} tokens: some minutes for a long book…", flush=True)
        start = time.perf_counter()
        weights = read(model, tokens, asked.layer, asked.head)
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        weights.save(asked.file)
        words = [tokenizer.token(token) for token in tokens]
        asked.file.with_suffix(".tokens.json").write_text(json.dumps(words), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{weights}, read in {time.perf_counter() - start:.0f} s\nglasshead studio {asked.file}")
    return 0


def _check(model: gh.LanguageModel, layer: int, head: int) -> None:
    layers, heads = model.config.num_layers, model.config.num_heads
    if not (0 <= layer < layers and 0 <= head < heads):
        raise ValueError(
            f"layer must be in 0..{layers - 1} and head in 0..{heads - 1}, got layer {layer}, "
            f"head {head}."
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
