"""The work of `glasshead explain`."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import glasshead as gh
from glasshead.cli.explain import ExplainRequest
from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.messages import listed, nearest, quoted
from glasshead.cli.inputs.tensors import read_weights
from glasshead.cli.inputs.vectors import read_vectors
from glasshead.cli.output import (
    chosen_language,
    print_drawing,
    print_json,
    print_stderr,
    write_page,
)
from glasshead.cli.recipe_options import RecipeOptions
from glasshead.explanation import Explanation
from glasshead.explanation.embeddings import (
    MADE_UP_DIM,
    Embeddings,
    Projection,
    composed,
    head_counts,
    in_heads,
    last_word,
    split,
)
from glasshead.explanation.explanation import (
    on_made_up_embeddings,
    on_made_up_score,
    on_one_of_heads,
)
from glasshead.explanation.language import Say
from glasshead.ladder.worked_example import HELLO_SHINY_SUN, is_the_texts_own
from glasshead.recipe.problem import Trace

_MOST_NUMBERS = 2**24


class VectorSource(Enum):
    """Where the vectors come from."""

    TEXTS = "the worked example of the texts"
    MADE_UP = "made up from a seed"
    FILE = "the user's file"


@dataclass(frozen=True)
class Sentence:
    """A sentence with its vectors, and where they come from."""

    embeddings: Embeddings
    source: VectorSource


def sentence_of(
    text: str | None, vectors: Path | None, *, dim: int | None, seed: int, most: int | None = None
) -> Sentence:
    """The sentence that the command line asks for.

    Args:
        text: A sentence; None: the rows of `vectors`, or else the worked example of the texts.
        vectors: A file of vectors; None: they are made up.
        dim: How wide made-up vectors are; 4 if not given.
        seed: What they are made up from.
        most: How many tokens can be explained, where that is known before they are.

    Errors: a ValueError where the text is empty, a word has no vector, or the file is malformed or
    has more rows than can be explained; an OSError where it cannot be read.
    """
    if vectors is None and is_the_texts_own(text):
        return Sentence(Embeddings.of_the_texts(HELLO_SHINY_SUN), VectorSource.TEXTS)
    words = None if text is None else _words(text)
    if vectors is not None:
        known = read_vectors(vectors, most=most if words is None else None)
        return Sentence(
            known if words is None else _looked_up(known, words, vectors), VectorSource.FILE
        )
    return Sentence(_made_up(words or [], dim or MADE_UP_DIM, seed), VectorSource.MADE_UP)


def _words(text: str) -> list[str]:
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError("TEXT takes UTF-8, and got other bytes: set the terminal to UTF-8.")
    words = split(composed(text))
    if not words:
        raise ValueError(
            f"TEXT takes a sentence, and got {quoted(text)}, which has no word: write one, as in "
            f'"Hello shiny sun!", or leave TEXT out.'
        )
    return words


def _made_up(words: list[str], dim: int, seed: int) -> Embeddings:
    if len(words) * dim > _MOST_NUMBERS:
        raise ValueError(
            f"{len(words):,} tokens with {dim:,} made-up numbers each are too many: give at most "
            f"{_MOST_NUMBERS // dim:,} tokens, or a smaller --dim."
        )
    return Embeddings.made_up(words, dim=dim, seed=seed)


def _looked_up(known: Embeddings, words: list[str], path: Path) -> Embeddings:
    have = set(known.tokens)
    missing = [word for word in dict.fromkeys(words) if word not in have]
    if missing:
        alike = nearest(missing[0], known.tokens)
        hint = f"did you mean {quoted(alike)}? Or add" if alike else "add"
        rows = "a row for it" if len(missing) == 1 else "a row for each"
        raise ValueError(
            f"{shown(path)} has no vector for {listed(map(quoted, missing))}: {hint} {rows}."
        )
    try:
        return known.look_up(words)
    except ValueError as error:
        raise ValueError(f"{shown(path)}: {error}") from error


def notes(
    sentence: Sentence, recipe: RecipeOptions, seed: int, head: int, language: str
) -> Iterator[str]:
    """What was made up, in the language of the explanation.

    >>> import torch
    >>> from glasshead.explanation.embeddings import Embeddings
    >>> own = Sentence(Embeddings(("sun",), torch.ones(1, 2)), VectorSource.FILE)
    >>> list(notes(own, RecipeOptions(), 123, 0, "en"))
    []
    """
    say = Say(language)
    if sentence.source is VectorSource.MADE_UP:
        yield on_made_up_embeddings(say, seed)
    if recipe.heads > 1:
        yield on_one_of_heads(say, recipe.heads, head)
    if recipe.score == "additive":
        yield on_made_up_score(say, seed)


_POSITION = re.compile(r"#([0-9]{1,9})")
# What is meant for a position and is none: #-1, #1.5, # 2.
_LIKE_A_POSITION = re.compile(r"#[-+ ]*[0-9][0-9.,]*")


def query_position(tokens: Sequence[str], asked: str | None) -> int:
    """The place of the query among the tokens, counted from 0.

    Args:
        tokens: The sentence.
        asked: A token, or "#2" for the second one; None: the last that is a word.

    Errors: a ValueError where the token is not there or stands more than once, or the position is
    outside the sentence.

    >>> sentence = ["the", "sun", "and", "the", "moon", "!"]
    >>> query_position(sentence, None), query_position(sentence, "sun")
    (4, 1)
    >>> query_position(sentence, "#4")
    3
    """
    if asked is None:
        return last_word(tokens)
    position = _POSITION.fullmatch(asked)
    if position:
        return _at(tokens, int(position[1]))
    places = [place for place, token in enumerate(tokens) if token == asked]
    if not places and _LIKE_A_POSITION.fullmatch(asked):
        raise _outside(tokens, asked)
    if not places:
        raise ValueError(f"{quoted(asked)} is not in the sentence: {_hint(tokens, asked)}.")
    if len(places) > 1:
        named = listed(f"#{place + 1}" for place in places)
        raise ValueError(
            f"{quoted(asked)} stands {len(places)} times in the sentence, at {named}: "
            f"ask for one of them, as in --query '#{places[0] + 1}'."
        )
    return places[0]


def _at(tokens: Sequence[str], position: int) -> int:
    if not 1 <= position <= len(tokens):
        raise _outside(tokens, f"#{position}")
    return position - 1


def _outside(tokens: Sequence[str], asked: str) -> ValueError:
    return ValueError(
        f"positions go from #1 to #{len(tokens)}, and --query got {asked}: the sentence is "
        f"{listed(map(quoted, tokens))}."
    )


def _hint(tokens: Sequence[str], asked: str) -> str:
    parts = split(asked)
    if len(parts) > 1 and all(part in tokens for part in parts):
        return f"it is {len(parts)} tokens here, so ask for one of {listed(map(quoted, parts))}"
    alike = nearest(asked, tokens)
    question = f"did you mean {quoted(alike)}? It" if alike else "it"
    return f"{question} takes one of {listed(map(quoted, dict.fromkeys(tokens)))}"


# For each pair of words, as measured: the steps and what is drawn of them; as JSON, lists and text.
_BYTES_A_PAIR, _BYTES_A_PAIR_AS_JSON = 110, 650
_MOST_BYTES = 2**31
# These two subtract or add each query and each key, number by number, and keep it twice.
_PAIRWISE = ("gaussian", "additive")


@dataclass(frozen=True, eq=False)
class Traced:
    """An attention's trace, and which head of it is told."""

    trace: Trace
    index: tuple[int, ...] | None


def traced(
    embeddings: Embeddings,
    projection: Projection | None,
    recipe: RecipeOptions,
    *,
    seed: int,
    head: int,
    json: bool,
) -> Traced:
    """The trace of the embeddings' self-attention.

    Args:
        embeddings: The sentence.
        projection: What makes queries, keys and values of them; None: they are the embeddings.
        recipe: The attention.
        seed: What learned parameters are made up from.
        head: Which head is told, from 0.
        json: Whether every number will be written out, which takes more memory.

    Errors: a ValueError where the heads do not divide the widths, the trace would not fit into 2
    GiB, or numbers overflow.
    """
    inputs = (embeddings.vectors,) * 3
    if projection is not None:
        inputs = (projection.queries, projection.keys, projection.values)
    for vectors in inputs:
        _check_heads(vectors.shape[-1], recipe.heads)
    dim = inputs[0].shape[-1] // recipe.heads
    _check_size(len(embeddings.tokens), recipe, dim, json=json)
    attention = recipe.attention(dim, seed)
    trace = attention.trace(*(in_heads(x, recipe.heads) for x in inputs))
    if not (trace.scaled.isfinite().all() and trace.context.isfinite().all()):
        raise ValueError(
            "the scores grow beyond all numbers: take smaller vectors, or a smaller --beta."
        )
    index = None if recipe.heads == 1 else (0, head)
    return Traced(trace, index)


def most_tokens(recipe: RecipeOptions, *, json: bool, dim: int = 0) -> int:
    """How many tokens can be explained; no fewer where `dim`, how wide a head is, is not given."""
    return int((_MOST_BYTES / _bytes_a_pair(recipe, dim, json=json)) ** 0.5)


def _bytes_a_pair(recipe: RecipeOptions, dim: int, *, json: bool) -> int:
    in_a_head = _BYTES_A_PAIR_AS_JSON if json else _BYTES_A_PAIR
    in_a_head += 2 * 8 * dim if recipe.score in _PAIRWISE else 0
    return in_a_head * recipe.heads


def _check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise ValueError(
            f"--heads {heads} does not divide vectors of {width} numbers into equal parts: "
            f"take one of {listed(map(str, head_counts(width)))}."
        )


def _check_size(tokens: int, recipe: RecipeOptions, dim: int, *, json: bool) -> None:
    needed = _bytes_a_pair(recipe, dim, json=json) * tokens**2
    if needed > _MOST_BYTES:
        most = most_tokens(recipe, json=json, dim=dim)
        raise ValueError(
            f"{tokens:,} tokens are too many to explain in full (about {needed / 2**30:.1f} GiB "
            f"with these options): give at most {most:,}."
        )


def run(request: ExplainRequest) -> None:
    """Explain, write the page if one is asked for, and print.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed or written,
    unless it is the printing that fails: the page, which comes first, stays.
    """
    explanation = explained(request)
    if request.html is not None:
        write_page(request.html, explanation.html())
    if request.json:
        print_json(explanation.to_dict())
    else:
        print_drawing(explanation, request.width)
    if request.html is not None:
        print_stderr(f"The page is at {shown(request.html)}")


def explained(request: ExplainRequest) -> Explanation:
    """The explanation that is asked for.

    Errors: a ValueError, TypeError or OSError in one sentence.
    """
    language = chosen_language(request.lang, os.environ)
    matrices = None if request.weights is None else read_weights(request.weights)
    dim = matrices.d_in if request.dim is None and matrices is not None else request.dim
    most = most_tokens(request.recipe(), json=request.json)
    sentence = sentence_of(request.text, request.vectors, dim=dim, seed=request.seed, most=most)
    query = _query(request, sentence)
    projection = None if matrices is None else matrices.projection(sentence.embeddings.vectors)
    made = traced(
        sentence.embeddings,
        projection,
        request.recipe(),
        seed=request.seed,
        head=request.head,
        json=request.json,
    )
    explanation = gh.explain(
        made.trace,
        tokens=sentence.embeddings.tokens,
        query=query,
        lang=language,
        index=made.index,
        projection=projection,
        printed=HELLO_SHINY_SUN if _is_printed(request, query) else None,
    )
    for note in notes(sentence, request.recipe(), request.seed, request.head, language):
        explanation = explanation.with_note(note)
    return explanation


def _query(request: ExplainRequest, sentence: Sentence) -> int:
    """The position of the query; the texts ask for one of their own."""
    asked = None if request.query is None else composed(request.query)
    if asked is None and sentence.source is VectorSource.TEXTS:
        asked = HELLO_SHINY_SUN.query
    return query_position(sentence.embeddings.tokens, asked)


def _is_printed(request: ExplainRequest, query: int) -> bool:
    """Whether the texts print the numbers of this very attention."""
    return (
        request.is_worked_example
        and request.weights is None
        and request.recipe().is_the_texts_own()
        and HELLO_SHINY_SUN.tokens[query] == HELLO_SHINY_SUN.query
    )
