"""explain: tells one query of a trace, step by step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glasshead.explanation import asked
from glasshead.explanation.explanation import Explanation
from glasshead.explanation.language import Say
from glasshead.explanation.recipe import recipe_of
from glasshead.explanation.steps import TELLERS
from glasshead.explanation.subject import Subject
from glasshead.ladder.worked_example import WorkedExample
from glasshead.recipe.trace import Trace

if TYPE_CHECKING:
    from glasshead.explanation.projection import Projection


def explain(
    trace: Trace,
    *,
    tokens: Sequence[str] | None = None,
    query: str | int | None = None,
    lang: str = "en",
    keys: Sequence[str] | None = None,
    index: tuple[int, ...] | None = None,
    projection: "Projection | None" = None,
    printed: WorkedExample | None = None,
) -> Explanation:
    r"""Tell a trace in words: each step's formula, the real numbers put into it, and why.

    Args:
        trace: What `Attention().trace(query, key, value)` gives, of any layout.
        tokens: The words of the queries, and in self-attention those of the keys; "1", "2" and so
            on if not given.
        query: The query that is told in detail, a word (its first occurrence) or a position; the
            last if not given.
        lang: The language: en, tr, es, zh-Hant or zh-Hans. A code such as "es_ES" or "zh-TW" will
            do.
        keys: The words of the keys where they are others, as in cross-attention.
        index: The leading axes that are told, (batch…, head); zeros if not given.
        projection: The embeddings, and the matrices that made queries, keys and values of them:
            then a first step tells how.
        printed: A worked example, to show its printed numbers beside the exact ones.

    Errors: a TypeError where `trace` is no Trace, or words are not strings; a ValueError where the
    words are not as many as the queries or keys, where the query, the index or the language is not
    there, and where the projection or the printed example does not belong to the trace.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
    >>> trace = gh.Attention(score=gh.Dot()).trace(x, x, x)
    >>> explanation = explain(trace, tokens=["Hello", "shiny", "sun"], query="shiny")
    >>> print("\n".join(explanation["context"].numbers[2:6]))
    c(shiny) = 0.2291·[0.34, 0.22, 0.54]
             + 0.4063·[0.53, 0.34, 0.98]
             + 0.3646·[0.29, 0.54, 0.93]
             = [0.3990, 0.3854, 0.8610]
    """
    asked.check_trace(trace)
    say = Say(lang)
    query_count, key_count = trace.scores.shape[-2:]
    query_words = asked.words(tokens, query_count, "tokens", "queries")
    same_words = keys is None and query_count == key_count
    key_words = query_words if same_words else asked.words(keys, key_count, "keys", "keys")
    query_names = asked.names(query_words)
    subject = Subject(
        trace=trace,
        index=asked.leading(index, trace),
        position=asked.position(query, query_words, query_names),
        query_names=query_names,
        key_names=asked.names(key_words),
        same_words=same_words,
        say=say,
        projection=projection,
        printed=printed,
    )
    steps = [tell(subject) for tell in TELLERS]
    return Explanation(
        title=say("Attention, step by step: “{query}”", query=subject.name),
        language=say.language,
        recipe=recipe_of(subject),
        tokens=query_words,
        keys=key_words,
        query=subject.position,
        index=subject.index,
        steps=tuple(step for step in steps if step is not None),
    )
