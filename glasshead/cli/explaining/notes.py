"""Notes: which of them an explanation on the command line needs."""

from collections.abc import Iterator

from glasshead.cli.explaining.recipe import Recipe
from glasshead.cli.explaining.sentence import Sentence, Source
from glasshead.explanation.explanation import (
    on_made_up_embeddings,
    on_made_up_score,
    on_one_of_heads,
)
from glasshead.explanation.language import Say


def notes(sentence: Sentence, recipe: Recipe, seed: int, head: int, language: str) -> Iterator[str]:
    """What was made up, in the language of the explanation.

    >>> import torch
    >>> from glasshead.explanation.embeddings import Embeddings
    >>> own = Sentence(Embeddings(("sun",), torch.ones(1, 2)), Source.FILE)
    >>> list(notes(own, Recipe(), 123, 0, "en"))
    []
    """
    say = Say(language)
    if sentence.source is Source.MADE_UP:
        yield on_made_up_embeddings(say, seed)
    if recipe.heads > 1:
        yield on_one_of_heads(say, recipe.heads, head)
    if recipe.score == "additive":
        yield on_made_up_score(say, seed)
