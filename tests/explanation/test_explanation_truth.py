"""What an explanation says is what the trace holds, sentence by sentence, for random inputs."""

import random
import re
from dataclasses import dataclass

import pytest
import torch
from claims import CLAIMS, WORDS, check, shown
from explanation_told import figure, two_decimals

import glasshead as gh
from glasshead.drawing import Paragraph, Table
from glasshead.recipe.problem import Trace


@dataclass(frozen=True)
class Told:
    """An explanation, with the trace that it explains and the row that it shows."""

    trace: Trace
    query: int
    index: tuple[int, ...]
    explanation: gh.Explanation

    def matrix(self, step):
        return getattr(self.trace, step)[self.index]

    def row(self, step):
        return self.matrix(step)[self.query]

    @property
    def problem(self):
        return self.trace.problem

    @property
    def mask(self):
        return self.problem.mask

    @property
    def vectors(self):
        batch, head = self.index
        key_head = head // self.problem.group
        key, value = (x[batch, key_head] for x in (self.problem.key, self.problem.value))
        return self.problem.query[batch, head, self.query], key, value

    @property
    def visible(self):
        """Which pairs the mask shows, of which a test of masks knows that it is right."""
        scores = self.matrix("scores")
        return (
            torch.ones_like(scores).bool() if self.mask is None else shown(self.mask, len(scores))
        )

    @property
    def seen(self):
        return self.visible[self.query].nonzero().flatten().tolist()

    def ranked(self):
        """The keys from the largest weight on, with their names and their weights as shown."""
        weights = self.row("weights")
        keys = sorted(range(len(weights)), key=lambda key: (-weights[key], key))
        return [(self.name(key), figure(weights[key].item())) for key in keys]

    def name(self, key):
        return "itself" if key == self.query else f"“{WORDS[key]}”"

    def with_beta(self, beta):
        """The weights of the query with another β."""
        attention = gh.Attention(
            score=type(self.problem.score)(beta=beta),
            mask=self.mask,
            normalizer=self.problem.normalizer,
        )
        p = self.problem
        return attention.trace(p.query, p.key, p.value).weights[self.index][self.query]


def random_told(seed):
    draw = random.Random(seed)
    length, dim = draw.choice((1, 2, 3, 5, 7, 11)), draw.choice((1, 2, 3, 5))
    heads, key_heads = draw.choice(((1, 1), (1, 1), (3, 3), (6, 2)))
    score = draw.choice(
        (gh.Dot(), gh.ScaledDot(), gh.Cosine(), gh.Gaussian(), gh.Dot(beta=2.5), gh.Dot(beta=0.2))
    )
    mask = draw.choice(
        (
            None,
            None,
            gh.causal(),
            gh.causal(offset=-1),
            gh.causal(offset=1),
            gh.padding(2),
            gh.window(before=1, after=1),
            gh.causal() & gh.padding(1),
            ~gh.causal(),
        )
    )
    normalizer = draw.choice(
        (
            gh.Softmax(),
            gh.Softmax(),
            gh.Softmax(),
            gh.SoftmaxOne(sink=0.5),
            gh.Sparsemax(),
            gh.Entmax15(),
            gh.Sigmoid(),
            gh.HardMax(),
        )
    )
    attention = gh.Attention(
        score=score,
        mask=mask,
        normalizer=normalizer,
        softcap=draw.choice((None, None, 1.5)),
        bias=draw.choice((None, None, gh.ALiBi(heads))),
        dropout=draw.choice((0.0, 0.0, 0.0, 0.5)),
    )
    size = draw.choice((1, 1, 30))
    vectors = [
        size * two_decimals(1, count, length, width, seed=3 * seed + place)
        for place, (count, width) in enumerate(((heads, dim), (key_heads, dim), (key_heads, 2)))
    ]
    if draw.random() < 0.2:
        # Keys that tie.
        vectors[1][..., 1::2, :] = vectors[1][..., :1, :]
    torch.manual_seed(seed)
    trace = attention.trace(*vectors)
    query, index = draw.randrange(length), (0, draw.randrange(heads))
    told = gh.explain(trace, tokens=WORDS[:length], query=query, index=index)
    return Told(trace, query, index, told)


def sentences(explanation):
    for step in explanation.steps:
        blocks = [*step.figures, *step.printed]
        paragraphs = [block.text for block in blocks if isinstance(block, Paragraph)]
        captions = [block.caption for block in blocks if isinstance(block, Table) and block.caption]
        for text in (*step.intro, *paragraphs, *captions, step.why):
            yield from ((step.name, one) for one in re.split(r"(?<=[.!?])\s+(?=[A-Z“(−τ])", text))


@pytest.mark.parametrize("seeds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_every_sentence_with_a_number_or_a_direction_is_true_of_the_trace(seeds):
    known = {}
    for seed in range(seeds):
        told = random_told(seed)
        for _, sentence in sentences(told.explanation):
            try:
                known[sentence] = check(told, sentence)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {sentence}") from error
    assert [sentence for sentence, is_known in known.items() if not is_known] == []
    if seeds < 200:
        return
    # Each check has been made.
    unused = [pattern.pattern for pattern, _ in CLAIMS if not any(map(pattern.fullmatch, known))]
    assert unused == []


@pytest.mark.parametrize(
    ("seed_of", "said", "instead"),
    [
        ("looks most at", r"\(weight [\d.]+\)", "(weight 0.9999)"),
        ("goes to 1", r"derivative [^:]+", "derivative 0.5"),
        ("hidden from it", r"may see \d", "may see 99"),
    ],
)
def test_a_wrong_number_is_found(seed_of, said, instead):
    for seed in range(200):
        told = random_told(seed)
        for _, sentence in sentences(told.explanation):
            if seed_of in sentence:
                wrong = re.sub(said, instead, sentence, count=1)
                assert wrong != sentence
                with pytest.raises(AssertionError):
                    check(told, wrong)
                return
    pytest.fail(f"no explanation says {seed_of!r}")
