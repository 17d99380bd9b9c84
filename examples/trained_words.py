"""Train vectors of a few Chinese words, and write them as a file for `glasshead explain`.

    python examples/trained_words.py [FILE.csv]
    glasshead explain "我用機寫碼" --vectors examples/trained_words.csv --query 寫 --lang zh-Hant

Words that stand in one sentence get vectors that point the same way. 「寫」 stands with letters and
with code (碼), and its context in a sentence is pulled to the ones that are there.
"""

import csv
import sys
from itertools import combinations
from pathlib import Path

import torch
from torch.nn import functional as F

FILE = Path(__file__).with_suffix(".csv")
WIDTH, STEPS, SEED = 4, 500, 123
SENTENCES = [
    "我 寫 信 給 友",
    "她 寫 信 給 媽",
    "友 讀 信",
    "媽 讀 信 給 我",
    "她 寫 詩 給 友",
    "我 讀 詩",
    "他 用 機 寫 碼",
    "我 用 機 寫 碼",
    "機 跑 碼",
    "他 用 機 跑 碼",
]


def trained(sentences: list[str] = SENTENCES, steps: int = STEPS) -> dict[str, list[float]]:
    """Train a vector for each word: a product is large where two words share a sentence.

    >>> vectors = trained(["a b", "c d"])
    >>> near, far = (torch.tensor(vectors["a"]) @ torch.tensor(vectors[w]) for w in "bc")
    >>> bool(near > 1 > -1 > far)
    True
    """
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence.split()))
    together = torch.zeros(len(words), len(words))
    for sentence in sentences:
        for one, other in combinations(map(words.index, sentence.split()), 2):
            together[one, other] = together[other, one] = 1
    pairs = ~torch.eye(len(words), dtype=torch.bool)
    generator = torch.Generator().manual_seed(SEED)
    vectors = torch.randn(len(words), WIDTH, generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([vectors], lr=0.05, weight_decay=0.01)
    for _ in range(steps):
        products = vectors @ vectors.T
        loss = F.binary_cross_entropy_with_logits(products[pairs], together[pairs])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rows = [[round(x, 2) for x in row] for row in vectors.tolist()]
    return dict(zip(words, rows, strict=True))


def main(file: Path = FILE) -> None:
    """Train, and write a word and its numbers a row."""
    with file.open("w", encoding="utf-8", newline="") as rows:
        csv.writer(rows, lineterminator="\n").writerows([w, *v] for w, v in trained().items())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
