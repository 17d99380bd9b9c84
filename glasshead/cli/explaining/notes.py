"""Notes: what an explanation must say about where its numbers come from."""

from collections.abc import Iterator

from glasshead.cli.explaining.recipe import Recipe
from glasshead.cli.explaining.sentence import Sentence, Source
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
        yield say(
            "The embeddings are made up from seed {seed} and mean nothing: what the words attend "
            "to here says nothing about the words. How it is computed is real.",
            seed=seed,
        )
    if recipe.heads > 1:
        yield say(
            "Each vector is cut into {heads} parts of equal width, one for each head. What follows "
            "shows the part of head {head}, counted from 0.",
            heads=recipe.heads,
            head=head,
        )
    if recipe.score == "additive":
        yield say(
            "The parameters of the additive score are made up from seed {seed}; a model would "
            "learn them.",
            seed=seed,
        )
