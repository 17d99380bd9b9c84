"""What the tests of explanations share: small traces to be told, and how written sums are read."""

import math
import re

import torch

import glasshead as gh
from glasshead.explanation import figures
from glasshead.ladder.worked_example import HELLO_SHINY_SUN

WORDS = ("The", "cat", "sat", "down", "here")
LANGUAGES = ("en", "tr", "es", "zh-Hant", "zh-Hans")

_KNOWN = {"tanh": math.tanh, "max": max, "E": math.e}


def figure(x):
    """A number as explanations write it, where nobody asked for other decimals."""
    return figures.figure(x, 4)


class OwnScore(gh.Score):
    """A score that the library does not know, without a formula."""

    def forward(self, query, key):
        return (query @ key.transpose(-1, -2)).abs().sqrt()


class OwnNormalizer(gh.Normalizer):
    """A normalizer that the library does not know, with weights below 0."""

    formula = "s_j²/9 - 0.1"

    def normalize(self, scores):
        return scores.square() / 9 - 0.1


def worked_example(lang="en", **options):
    x = torch.tensor(HELLO_SHINY_SUN.embeddings)
    trace = gh.Attention(score=gh.Dot()).trace(x, x, x)
    options = {"tokens": HELLO_SHINY_SUN.tokens, "query": "shiny", **options}
    return gh.explain(trace, lang=lang, **options)


def two_decimals(*shape, seed=0):
    """Numbers that are shown in full, so that what is written out can be checked exactly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-150, 151, shape, generator=generator).double() / 100


def traced(queries=5, keys=5, dim=3, value_dim=2, *, leading=(), seed=0, call=None, **recipe):
    """A trace of three different inputs of two decimals."""
    attention = gh.Attention(**recipe)
    inputs = (
        two_decimals(*leading, length, width, seed=seed + place)
        for place, (length, width) in enumerate(((queries, dim), (keys, dim), (keys, value_dim)))
    )
    return attention.trace(*inputs, **(call or {}))


def sides(line):
    """What stands between the signs of equality of `name(…) = … = …`, as numbers."""
    _, *parts = re.split(r" = ", re.sub(r"   \(.*\)$", "", line))
    return [value(part) for part in parts]


def value(written):
    """A written calculation as a number."""
    code = written.replace("−", "-").replace("·", "*").replace("²", "**2").replace("∞", "math.inf")
    code = re.sub(r"\be\^", "E**", code).replace("[", "(").replace("]", ")")
    return float(eval(code, {"__builtins__": {}, "math": math, **_KNOWN}))


def all_text(explanation):
    return explanation.text(width=100)
