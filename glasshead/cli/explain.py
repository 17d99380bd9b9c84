"""The command `explain`: explain one attention step by step."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Option

from glasshead.cli.inputs.files import check_sentence, output_file, shown
from glasshead.cli.inputs.messages import print_stderr
from glasshead.cli.inputs.settings import CommandSettings, takes_settings
from glasshead.cli.output import (
    OUTPUT,
    Html,
    Lang,
    Width,
    check_apart,
    check_target,
    check_width,
    chosen_language,
    print_drawing,
    print_json,
    spoken,
    write_page,
)
from glasshead.explanation.choices import RecipeOptions
from glasshead.ladder.worked_example import JOURNEY
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.explanation import Explanation
    from glasshead.explanation.explain_trace import SentenceAttention
    from glasshead.recipe.problem import Trace


@takes_settings
def explain(
    settings: CommandSettings,
    *,
    lang: Lang = None,
    html: Html = None,
    json: Annotated[
        bool, Option("--json", rich_help_panel=OUTPUT, help="Print JSON instead of text.")
    ] = False,
    width: Width = None,
) -> None:
    """Explain one attention step by step, with the formula, the numbers and why."""
    page_file = output_file(html, "--html")
    if settings.vectors is None:
        check_sentence(settings.text)
    settings = replace(settings, lang=chosen_language(lang, os.environ))
    settings.check()
    check_width(width)
    if page_file is not None:
        check_target(page_file)
        check_apart(page_file, (settings.file("vectors"), settings.file("weights")))
    explanation = explain_sentence(settings, json=json)
    if page_file is not None:
        write_page(page_file, explanation.html())
    if json:
        print_json(explanation.to_dict())
    else:
        print_drawing(explanation, width)
    if page_file is not None:
        print_stderr(spoken(lang)("The page is at {place}", place=shown(page_file)))


def explain_sentence(settings: CommandSettings, *, json: bool = False) -> "Explanation":
    """Explain the self-attention of a sentence, of a worked example, or a step of the ladder.

    Args:
        settings: The settings.
        json: Whether every number will be written out, which takes more memory.

    Errors: a ValueError, TypeError or OSError in one sentence.
    """
    from glasshead.cli.inputs.sentences import query_position, sentence_of

    if settings.step is not None:
        from glasshead.explanation.ladder_steps import explain_ladder_step

        if settings.query is not None:
            place = query_position(JOURNEY.tokens, str(settings.query))
            settings = replace(settings, query=place)
        return explain_ladder_step(settings)
    recipe = settings.recipe()
    from glasshead.cli.inputs.tensors import read_weights
    from glasshead.explanation.explain_trace import SentenceAttention

    weights = settings.file("weights")
    matrices = None if weights is None else read_weights(weights)
    if settings.dim is None and matrices is not None:
        settings = replace(settings, dim=matrices.d_in)
    sentence = sentence_of(settings, most=max_tokens(recipe, json=json))
    embeddings, position = sentence.embeddings, sentence.default_query
    if settings.query is not None:
        position = query_position(embeddings.tokens, str(settings.query))
    attention = SentenceAttention(
        sentence=sentence,
        settings=settings,
        own_projection=None if matrices is None else matrices.projection(embeddings.vectors),
    )
    return attention.explain(_trace(attention, json=json), position)


# Measured for a pair of words: the steps and their drawing; as JSON, lists and text.
_BYTES_PER_PAIR, _BYTES_PER_PAIR_AS_JSON = 110, 650
_MAX_BYTES = 2**31
# These two keep [queries, keys, dim] twice.
_PAIRWISE = ("gaussian", "additive")


def _trace(attention: "SentenceAttention", *, json: bool) -> "Trace":
    """Trace the self-attention of a sentence.

    Args:
        attention: The attention.
        json: Whether every number will be written out, which takes more memory.

    Errors: a ValueError if the heads do not divide the widths, the trace would not fit into 2
    GiB, or numbers overflow.
    """
    attention.check_heads()
    tokens, recipe = attention.sentence.embeddings.tokens, attention.recipe
    _check_size(len(tokens), recipe, attention.width // recipe.heads, json=json)
    trace = attention.trace()
    if not (trace.scaled.isfinite().all() and trace.context.isfinite().all()):
        raise ValueError(
            Message("the scores overflow to infinity. Use smaller vectors, or a smaller --beta.")
        )
    return trace


def max_tokens(recipe: RecipeOptions, *, json: bool, dim: int = 0) -> int:
    """Return the maximum number of tokens, for any head width where `dim` is not given."""
    return int((_MAX_BYTES / _bytes_per_pair(recipe, dim, json=json)) ** 0.5)


def _bytes_per_pair(recipe: RecipeOptions, dim: int, *, json: bool) -> int:
    per_head = _BYTES_PER_PAIR_AS_JSON if json else _BYTES_PER_PAIR
    per_head += 2 * 8 * dim if recipe.score in _PAIRWISE else 0
    return per_head * recipe.heads


def _check_size(tokens: int, recipe: RecipeOptions, dim: int, *, json: bool) -> None:
    needed = _bytes_per_pair(recipe, dim, json=json) * tokens**2
    if needed > _MAX_BYTES:
        most = max_tokens(recipe, json=json, dim=dim)
        raise ValueError(
            Message(
                "{tokens:,} tokens are too many to explain in full (about {value:.1f} GiB with "
                "these options). Give at most {most:,}.",
                tokens=tokens,
                value=needed / 2**30,
                most=most,
            )
        )
