"""The self-attention of a sentence: its vectors, its trace, and its explanation with notes."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from glasshead.explanation.choices import RecipeOptions
from glasshead.explanation.embeddings import (
    MADE_UP_SEED,
    Embeddings,
    Projection,
    in_heads,
    last_word,
)
from glasshead.explanation.explain_trace import explain
from glasshead.explanation.explanation import Explanation
from glasshead.explanation.translations import Say
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.recipe.problem import Trace


class VectorSource(Enum):
    """The origin of a sentence's vectors."""

    TEXTS = "the worked example of the texts"
    MADE_UP = "made up from a seed"
    FILE = "the user's file"


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence with its vectors and their origin."""

    embeddings: Embeddings
    source: VectorSource

    @property
    def default_query(self) -> int:
        """Position of the word explained where none is asked for: that of the texts, or the last.

        >>> Sentence(Embeddings.made_up(["A", "sun", "!"]), VectorSource.MADE_UP).default_query
        1
        """
        tokens = self.embeddings.tokens
        if self.source is VectorSource.TEXTS:
            return tokens.index(HELLO_SHINY_SUN.query)
        return last_word(tokens)


@dataclass(frozen=True, eq=False, kw_only=True)
class SentenceAttention:
    """The self-attention of a sentence.

    Attributes:
        sentence: The sentence.
        recipe: The attention; its heads divide the widths of queries, keys and values.
        projection: Projects the embeddings to queries, keys and values; None: they are all three.
        seed: Random seed of made-up vectors and parameters.
    """

    sentence: Sentence
    recipe: RecipeOptions
    projection: Projection | None = None
    seed: int = MADE_UP_SEED

    def trace(self) -> Trace:
        """Trace it: `[words, dim]`, or with heads `[1, heads, words, dim / heads]`."""
        inputs = (self.sentence.embeddings.vectors,) * 3
        if (projection := self.projection) is not None:
            inputs = (projection.queries, projection.keys, projection.values)
        query, key, value = (in_heads(vectors, self.recipe.heads) for vectors in inputs)
        return self.recipe.attention(query.shape[-1], self.seed).trace(query, key, value)

    def index(self, head: int) -> tuple[int, ...]:
        """Return the index of a head in the leading axes of the trace."""
        return () if self.recipe.heads == 1 else (0, head)

    def explain(self, trace: Trace, *, query: int, head: int, lang: str) -> Explanation:
        """Explain its trace for one word and one head, with notes on what is made up.

        The worked example, as it stands in the texts, is compared with the numbers printed there.
        """
        tokens = self.sentence.embeddings.tokens
        is_printed = (
            self.sentence.source is VectorSource.TEXTS
            and self.projection is None
            and self.recipe.is_the_texts_own()
            and tokens[query] == HELLO_SHINY_SUN.query
        )
        explanation = explain(
            trace,
            tokens=tokens,
            query=query,
            lang=lang,
            index=self.index(head),
            projection=self.projection,
            printed=HELLO_SHINY_SUN if is_printed else None,
        )
        for note in self._notes(Say(lang), head):
            explanation = explanation.with_note(note)
        return explanation

    def _notes(self, say: Say, head: int) -> Iterator[str]:
        if self.sentence.source is VectorSource.MADE_UP:
            yield say(
                "The embeddings are made up from seed {seed} and mean nothing: what the words "
                "attend to here says nothing about the words. How it is computed is real.",
                seed=self.seed,
            )
        if self.recipe.heads > 1:
            yield say(
                "Each vector is cut into {heads} parts of equal width, one for each head. What "
                "follows shows the part of head {head}, counted from 0.",
                heads=self.recipe.heads,
                head=head,
            )
        if self.recipe.score == "additive":
            yield say(
                "The parameters of the additive score are made up from seed {seed}; a model would "
                "learn them.",
                seed=self.seed,
            )
