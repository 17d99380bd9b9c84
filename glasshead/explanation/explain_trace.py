"""Explain one query of a trace, step by step, and the self-attention of a sentence with notes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import torch

from glasshead.drawing import visible
from glasshead.drawing.printable import nearest, shorten
from glasshead.explanation.choices import RecipeOptions, listed
from glasshead.explanation.embeddings import (
    Embeddings,
    Projection,
    head_counts,
    in_heads,
    last_word,
)
from glasshead.explanation.explanation import Explanation
from glasshead.explanation.figures import figure
from glasshead.explanation.settings import ExplanationSettings
from glasshead.explanation.steps import EXPLAINERS
from glasshead.explanation.subject import Subject, formula_of, part_name
from glasshead.explanation.translations import Say
from glasshead.explanation.undefined import undefined_notes
from glasshead.explanation.walk import walk_of
from glasshead.ladder.worked_example import WorkedExample
from glasshead.message import Message
from glasshead.recipe.problem import Trace

_LONGEST_NAME = 16
_MOST_LISTED = 20
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def check_trace(trace: Any) -> None:
    """Check that a trace has at least one query and one key."""
    if not isinstance(trace, Trace):
        raise TypeError(
            "explain needs a Trace, as Attention().trace(query, key, value) returns, or a module "
            f"and its inputs, got {type(trace).__name__}."
        )
    queries, keys = trace.scores.shape[-2:]
    for count, name in ((queries, "query"), (keys, "key")):
        if not count:
            raise ValueError(
                f"explain needs a trace of at least one {name}, got none. Trace inputs with a "
                f"word in them (scores have shape {list(trace.scores.shape)})."
            )


def _check_kind(name: str, given: Any, kind: type, example: str) -> None:
    if given is not None and not isinstance(given, kind):
        raise TypeError(
            f"{name} must be a {kind.__name__} such as {example}, got {type(given).__name__}."
        )


def words(given: Any, count: int, argument: str, of_what: str) -> tuple[str, ...]:
    """Check the words of the caller; without any, number them "1", "2" and so on.

    Errors: a TypeError if they are not strings, a ValueError if there are not as many.
    """
    if given is None:
        return tuple(str(place + 1) for place in range(count))
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f"{argument} must be a list of words, got {given!r}. Split a text, as with .split()."
        )
    for word in given:
        if not isinstance(word, str):
            raise TypeError(f"{argument} must be words as strings, got {word!r} among them.")
    if len(given) != count:
        raise ValueError(
            f"{argument} must have one word for each of the {count} {of_what}, got {len(given)}."
        )
    return tuple(given)


def names(given: Sequence[str]) -> tuple[str, ...]:
    """Make words printable, short and distinct.

    >>> names(["the", "cat", " the", "the", ""])
    ('the₁', 'cat', '␣the', 'the₂', '␣')
    """
    short = [shorten(visible(word) or "␣", _LONGEST_NAME) for word in given]
    count, used, shown = Counter(short), Counter[str](), []
    for name in short:
        used[name] += 1
        shown.append(name + (str(used[name]).translate(_SUBSCRIPTS) if count[name] > 1 else ""))
    return tuple(shown)


def position(query: Any, given: Sequence[str], shown: Sequence[str]) -> int:
    """Return the position of the requested query; the last one if not given.

    Errors: a ValueError where a word is not among those `given` (nor their names as `shown`), or a
    position lies outside; a TypeError for anything else.
    """
    if query is None:
        return len(given) - 1
    if isinstance(query, str):
        for places in (list(given), list(shown)):
            if query in places:
                return places.index(query)
        near = nearest(query, given)
        hint = f". Did you mean {near!r}?" if near else "."
        raise ValueError(f"query must be one of the words {_listed(given)}, got {query!r}{hint}")
    if isinstance(query, bool) or not hasattr(query, "__index__"):
        raise TypeError(f"query must be a word or its position, got {query!r}.")
    place = int(query)
    if not -len(given) <= place < len(given):
        raise ValueError(
            f"query must be a position from 0 to {len(given) - 1}, or a negative one from the "
            f"end, got {query!r}."
        )
    return place % len(given)


def leading(index: Any, trace: Trace) -> tuple[int, ...]:
    """Normalize the index of the leading axes, (batch…, head); zeros if not given.

    Errors: a ValueError where its length is not that of the trace's axes, or it is out of range.
    """
    axes = tuple(trace.scores.shape[:-2])
    if index is None:
        index = (0,) * len(axes)
    elif hasattr(index, "__index__"):
        index = (index,)
    if not isinstance(index, Sequence) or isinstance(index, str):
        raise TypeError(f"index must be a tuple of positions (batch…, head), got {index!r}.")
    index = tuple(index)
    for place in index:
        if isinstance(place, bool) or not hasattr(place, "__index__"):
            raise TypeError(f"index must be whole numbers, got {place!r} among them.")
    if len(index) != len(axes) or not all(
        -size <= place < size for place, size in zip(index, axes, strict=True)
    ):
        raise ValueError(
            "index must have a position in each leading axis (batch…, head) of the scores, which "
            f"are {list(axes)}, got {index}."
        )
    return tuple(int(place) % size for place, size in zip(index, axes, strict=True))


def _listed(given: Sequence[str]) -> str:
    listed = ", ".join(repr(word) for word in given[:_MOST_LISTED])
    return listed if len(given) <= _MOST_LISTED else f"{listed}, … ({len(given)} words)"


def _recipe(subject: Subject) -> dict[str, Any]:
    """Return the recipe of a trace as names, formulas and numbers."""
    problem = subject.problem
    return {
        "score": type(problem.score).__name__,
        "score_formula": formula_of(problem.score),
        "beta": subject.beta,
        "softcap": problem.softcap,
        "biases": [part_name(bias) for bias in problem.biases],
        "mask": None if problem.mask is None else repr(problem.mask),
        "normalizer": type(problem.normalizer).__name__,
        "normalizer_formula": formula_of(problem.normalizer),
        "dropout": problem.dropout,
        "offset": problem.offset,
        "heads": subject.heads,
        "key_heads": problem.key.shape[-3],
        "width": problem.query.shape[-1],
        "value_width": problem.value.shape[-1],
        "dtype": str(problem.query.dtype).removeprefix("torch."),
    }


def explain(
    trace: Trace,
    settings: ExplanationSettings,
    *,
    tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    index: tuple[int, ...] | None = None,
    projection: Projection | None = None,
    printed: WorkedExample | None = None,
) -> Explanation:
    """Explain a trace in words: the formula of each step, with its numbers, and the reason for it.

    Args:
        trace: The trace.
        settings: The query, the language and the form of the explanation.
        tokens, keys, index, projection, printed: As of `glasshead.explain`.

    Errors: as of `glasshead.explain`.
    """
    check_trace(trace)
    _check_kind("projection", projection, Projection, "Projection(inputs=x, W_query=…)")
    _check_kind("printed", printed, WorkedExample, "HELLO_SHINY_SUN")
    query_count, key_count = trace.scores.shape[-2:]
    query_words = words(tokens, query_count, "tokens", "queries")
    same_words = keys is None and query_count == key_count
    key_words = query_words if same_words else words(keys, key_count, "keys", "keys")
    query_names = names(query_words)
    place = position(settings.query, query_words, query_names)
    say = Say(settings.lang, query=query_names[place])
    subject = Subject(
        trace=trace,
        index=leading(index, trace),
        position=place,
        query_names=query_names,
        key_names=names(key_words),
        same_words=same_words,
        say=say,
        settings=settings,
        projection=projection,
        printed=printed,
    )
    steps = [explainer(subject) for explainer in EXPLAINERS]
    return Explanation(
        title=_title(subject),
        language=say.language,
        recipe=_recipe(subject),
        tokens=query_words,
        keys=key_words,
        query=subject.position,
        index=subject.index,
        steps=tuple(step for step in steps if step is not None),
        notes=tuple(undefined_notes(subject)),
        walk=walk_of(trace, subject.index, place, subject.name, subject.key_names, say),
    )


def _title(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say("Self-attention, step by step: “{query}”")
    return say("Cross-attention, step by step: “{query}”")


def module_notes(
    settings: ExplanationSettings,
    name: str,
    *,
    ends: bool,
    factors: tuple[float, float] = (1.0, 1.0),
    mixed: bool = False,
) -> Iterator[str]:
    """Yield the notes on a module whose attention is explained.

    Args:
        settings: The language, and how numbers are written.
        name: The name of its class.
        ends: Whether the context is what it returns.
        factors: What it multiplies its queries and its keys by before the product.
        mixed: Whether it cuts its vectors into heads so that a head mixes words.
    """
    say, (query, key) = Say(settings.lang), factors
    yield say(
        "These are the numbers of {module} itself, as it ran on the given input.", module=name
    )
    if not ends:
        yield say(
            "Later steps, such as an output projection of the context vectors, are not shown."
        )
    if query != 1:
        yield say(
            "The class multiplies its queries by {factor} before the product. The queries here are "
            "those before it, and the factor is a part of β.",
            factor=figure(query, settings.decimals),
        )
    if key != 1:
        yield say(
            "The class multiplies its keys by {factor} before the product. The keys here are those "
            "before it, and the factor is a part of β.",
            factor=figure(key, settings.decimals),
        )
    if mixed:
        yield say(
            "The class cuts its vectors into heads without a transpose, so that a head mixes "
            "words: its rows are pieces of several words, and are named after the words at their "
            "places. Write .view(batch, words, heads, dim).transpose(1, 2)."
        )


class VectorSource(Enum):
    """The origin of a sentence's vectors."""

    TEXTS = "the worked example of the texts"
    GENERATED = "random, from a seed"
    FILE = "the user's file"


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence with its vectors and their origin, and the worked example that it is, if any."""

    embeddings: Embeddings
    source: VectorSource
    example: WorkedExample | None = None

    @classmethod
    def of_the_texts(cls, example: WorkedExample) -> "Sentence":
        """Return the sentence of a worked example."""
        return cls(Embeddings.of_the_texts(example), VectorSource.TEXTS, example)

    @property
    def default_query(self) -> int:
        """Position of the word explained where none is asked for: that of the texts, or the last.

        >>> Sentence(Embeddings.generated(["A", "sun", "!"]), VectorSource.GENERATED).default_query
        1
        """
        return last_word(self.embeddings.tokens) if self.example is None else self.example.position


@dataclass(frozen=True, eq=False, kw_only=True)
class SentenceAttention:
    """The self-attention of a sentence.

    Attributes:
        sentence: The sentence.
        settings: What the user chose.
        own_projection: The user's matrices, instead of those of a worked example.
    """

    sentence: Sentence
    settings: ExplanationSettings
    own_projection: Projection | None = None

    @cached_property
    def recipe(self) -> RecipeOptions:
        """The attention."""
        return self.settings.recipe()

    @cached_property
    def projection(self) -> Projection | None:
        """Projects the embeddings to queries, keys and values; None: they are all three."""
        if self.own_projection is not None or self.sentence.example is None:
            return self.own_projection
        return Projection.of_the_texts(self.sentence.example)

    @property
    def width(self) -> int:
        """Width of the queries of all heads together."""
        inputs = self.sentence.embeddings.vectors
        return (inputs if self.projection is None else self.projection.queries).shape[-1]

    def check_heads(self) -> None:
        """Raise a ValueError where the heads do not divide the vectors into equal parts."""
        heads, projection = self.settings.heads, self.projection
        for width in (
            self.width,
            self.width if projection is None else projection.values.shape[-1],
        ):
            if width % heads:
                raise ValueError(
                    Message(
                        "{option} must be a divisor of the vectors' dimension {width} ({choices}), "
                        "got {heads}.",
                        option=self.settings.named("heads"),
                        width=width,
                        choices=listed(map(str, head_counts(width))),
                        heads=heads,
                    )
                )

    def trace(self) -> Trace:
        """Trace it: `[words, dim]`, or with heads `[1, heads, words, dim / heads]`.

        Errors: a ValueError as of `check_heads`.
        """
        self.check_heads()
        inputs = (self.sentence.embeddings.vectors,) * 3
        if (projection := self.projection) is not None:
            inputs = (projection.queries, projection.keys, projection.values)
        query, key, value = (in_heads(vectors, self.recipe.heads) for vectors in inputs)
        attention = self.recipe.attention(query.shape[-1], self.settings.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)  # of dropout
            return attention.trace(query, key, value)

    @property
    def index(self) -> tuple[int, ...]:
        """Index of the explained head in the leading axes of the trace."""
        return () if self.recipe.heads == 1 else (0, self.settings.head)

    def explain(self, trace: Trace, query: int) -> Explanation:
        """Explain its trace for the word at a position, with notes on what is made up.

        A worked example, as it stands in the texts, is compared with the numbers printed there.
        """
        example = self.sentence.example
        is_printed = (
            example is not None
            and self.own_projection is None
            and self.recipe.is_that_of(example)
            and query == example.position
        )
        columns = self.settings.columns or (example is not None and example.columns)
        explanation = explain(
            trace,
            replace(self.settings, query=query, columns=columns),
            tokens=self.sentence.embeddings.tokens,
            index=self.index,
            projection=self.projection,
            printed=example if is_printed else None,
        )
        for note in self._notes(Say(self.settings.lang)):
            explanation = explanation.with_note(note)
        return explanation

    def _notes(self, say: Say) -> Iterator[str]:
        example = self.sentence.example
        if example is not None and example.matrices is not None and self.own_projection is None:
            yield say(
                "The matrices are drawn as in the tutorial: torch.manual_seed({seed}), then "
                "{classes}.",
                seed=example.matrices.seed,
                classes=say.translated(Message.joined(", ", example.matrices.classes)),
            )
        if self.sentence.source is VectorSource.GENERATED:
            yield say(
                "The embeddings are random (seed {seed}) and have no meaning: what the words "
                "attend to here says nothing about the words. The computation is real.",
                seed=self.settings.seed,
            )
        if self.recipe.heads > 1:
            cut = say(
                "Each vector is cut into {heads} parts of equal dimension, one for each head. What "
                "follows shows the part of head {head}, counted from 0.",
                heads=self.recipe.heads,
                head=self.settings.head,
            )
            whole = (
                say(
                    "A model has matrices before this cut, so that each of its heads reads whole "
                    "embeddings."
                )
                if self.projection is None
                else say(
                    "Each head reads whole embeddings, all {width} numbers of them: only the "
                    "queries, keys and values are cut.",
                    width=self.projection.inputs.shape[-1],
                )
            )
            yield say.after_each_other(cut, whole)
        if self.recipe.score == "additive":
            yield say(
                "The parameters of the additive score are random (seed {seed}); a model "
                "would learn them.",
                seed=self.settings.seed,
            )
