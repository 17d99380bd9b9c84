"""The worked example of rung 1, as plain data: importing it costs nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """A sentence worked by hand in a text: what goes in, and what was printed as coming out.

    Attributes:
        tokens: the words.
        embeddings: one vector a word, in the order of ``tokens``.
        query: the word whose context is worked out.
        printed_terms: one row a dimension, one column a word: weight × embedding, as printed.
        printed_context: the sum of each of those rows, as printed.

    The printed numbers were rounded on the way; rung 1 gives the exact ones to set beside them,
    and ``docs/errata.md`` says where the two part.

    >>> " ".join(HELLO_SHINY_SUN.tokens), HELLO_SHINY_SUN.query
    ('Hello shiny sun', 'shiny')
    """

    text: str
    tokens: tuple[str, ...]
    embeddings: tuple[tuple[float, ...], ...]
    query: str
    printed_terms: tuple[tuple[float, ...], ...]
    printed_context: tuple[float, ...]


HELLO_SHINY_SUN = WorkedExample(
    text="Hello shiny sun!",
    tokens=("Hello", "shiny", "sun"),
    embeddings=((0.34, 0.22, 0.54), (0.53, 0.34, 0.98), (0.29, 0.54, 0.93)),
    query="shiny",
    printed_terms=((0.0779, 0.2156, 0.1057), (0.0504, 0.1382, 0.1972), (0.1237, 0.3983, 0.3390)),
    printed_context=(0.3992, 0.3858, 0.8610),
)


def is_the_texts_own(text: str | None) -> bool:
    """Whether a sentence is the worked example's; no sentence stands for it.

    >>> is_the_texts_own("Hello shiny sun"), is_the_texts_own("Hello shiny moon!")
    (True, False)
    """
    return text is None or text.strip().removesuffix("!") == HELLO_SHINY_SUN.text.removesuffix("!")
