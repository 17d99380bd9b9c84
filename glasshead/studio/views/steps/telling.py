"""Telling: what `explain` says of one word, without the numbers that the matrices show."""

from typing import Any

import glasshead as gh
from glasshead.explanation.embeddings import MADE_UP_SEED
from glasshead.explanation.explanation import on_made_up_embeddings, on_one_of_heads
from glasshead.explanation.language import Say
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.studio.limits import Limits
from glasshead.studio.views.steps.asked import StepsAsked
from glasshead.studio.views.steps.computing import computed
from glasshead.studio.views.steps.runs import runs
from glasshead.studio.views.steps.sentence import query_of


def steps_words(asked: StepsAsked, lang: str, limits: Limits) -> dict[str, Any]:
    """The title, the notes and the steps of the explanation, in a language.

    Formulas and numbers are lines of runs, as of `runs`.

    Errors: a `Refusal` as of `steps_data`, or where there is no such word; a ValueError where the
    language is not there.

    >>> told = steps_words(StepsAsked(), "en", Limits())
    >>> [step["name"] for step in told["steps"]][:5]
    ['opening', 'inputs', 'scores', 'scaled', 'weights']
    >>> told["steps"][2]["numbers"][0]
    [('s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842', '')]
    """
    made = computed(asked, limits)
    query = query_of(asked, made.sentence.tokens)
    told = gh.explain(
        made.trace,
        tokens=made.sentence.tokens,
        query=query,
        lang=lang,
        index=made.index,
        printed=HELLO_SHINY_SUN if _is_printed(asked, made.sentence.tokens[query]) else None,
    ).to_dict()
    steps = [
        {
            "name": step["name"],
            "title": step["title"],
            "text": step["text"],
            "formula": [runs(line) for line in step["formula"].splitlines()],
            "numbers": [runs(line) for line in step["numbers"]],
            "why": step["why"],
        }
        for step in told["steps"]
    ]
    return {
        "title": told["title"],
        "query": query,
        "notes": _notes(asked, Say(lang)),
        "steps": steps,
    }


def _is_printed(asked: StepsAsked, word: str) -> bool:
    """Whether the texts print the numbers of this very attention."""
    bare = asked.without_query().parameters().keys() <= {"text"}
    return asked.is_worked_example and bare and word == HELLO_SHINY_SUN.query


def _notes(asked: StepsAsked, say: Say) -> list[str]:
    """What was made up, in the sentences of `glasshead explain`."""
    notes = []
    if not asked.is_worked_example:
        notes.append(on_made_up_embeddings(say, MADE_UP_SEED))
    if asked.heads > 1:
        notes.append(on_one_of_heads(say, asked.heads, asked.head))
    return notes
