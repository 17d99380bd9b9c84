"""Run: from the options of `glasshead explain` to what is printed and written."""

import os

import glasshead as gh
from glasshead.cli.explaining.notes import notes
from glasshead.cli.explaining.query import query_position
from glasshead.cli.explaining.request import ExplainRequest
from glasshead.cli.explaining.sentence import Sentence, Source, sentence_of
from glasshead.cli.explaining.tracing import most_tokens, traced
from glasshead.cli.inputs.reading import shown
from glasshead.cli.inputs.weights_file import read_weights
from glasshead.cli.outputs.language import chosen_language
from glasshead.cli.outputs.page_file import write_page
from glasshead.cli.outputs.terminal import print_drawing, print_json, remark
from glasshead.explanation import Explanation
from glasshead.explanation.embeddings import composed
from glasshead.ladder.worked_example import HELLO_SHINY_SUN


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
        remark(f"The page is at {shown(request.html)}")


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
    if asked is None and sentence.source is Source.TEXTS:
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
