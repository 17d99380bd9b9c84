"""The worked examples of the texts, as plain data: importing them costs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

_Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededMatrices:
    """Random W_query, W_key and W_value of a text, by the seed and the classes that draw them.

    Attributes:
        seed: What `torch.manual_seed` gets.
        classes: Classes of the ladder that are built one after the other; the matrices are those
            of the last.
        d_out: The width of a query, a key and a value.
    """

    seed: int
    classes: tuple[str, ...]
    d_out: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """A sentence worked out in a tutorial: what goes in, and what was printed as coming out.

    Attributes:
        text: the sentence.
        tokens: the words.
        embeddings: one vector a word, in the order of ``tokens``.
        query: the word whose context is worked out.
        matrices: what makes queries, keys and values of the words; None: they are the words.
        score: the score by its option, "dot" or "scaled-dot".
        causal: whether no word sees the words after it.
        columns: whether the text writes words as columns, H = XA.
        by_code: the letter of the text whose code gives the numbers; empty: the text prints them.
        printed_terms: one row a dimension, one column a word: weight × embedding, as printed.
        printed_context: the context of the query, as printed.
        printed_query: its query vector; ``printed_scores`` and ``printed_weights``: a number a key.
        printed_keys, printed_values: one vector a word.

    What a text does not print is empty. The printed numbers were rounded on the way; step 1 gives
    the exact ones to compare with them, and ``docs/tutorials/errata.md`` says where the two part.

    >>> " ".join(HELLO_SHINY_SUN.tokens), HELLO_SHINY_SUN.query
    ('Hello shiny sun', 'shiny')
    """

    text: str
    tokens: tuple[str, ...]
    embeddings: tuple[_Row, ...]
    query: str
    matrices: SeededMatrices | None = None
    score: str = "scaled-dot"
    causal: bool = False
    columns: bool = False
    by_code: str = ""
    printed_terms: tuple[_Row, ...] = ()
    printed_context: _Row = ()
    printed_query: _Row = ()
    printed_keys: tuple[_Row, ...] = ()
    printed_values: tuple[_Row, ...] = ()
    printed_scores: _Row = ()
    printed_weights: _Row = ()

    @property
    def position(self) -> int:
        """The position of the query.

        >>> HELLO_SHINY_SUN.position
        1
        """
        return self.tokens.index(self.query)


HELLO_SHINY_SUN = WorkedExample(
    text="Hello shiny sun!",
    tokens=("Hello", "shiny", "sun"),
    embeddings=((0.34, 0.22, 0.54), (0.53, 0.34, 0.98), (0.29, 0.54, 0.93)),
    query="shiny",
    score="dot",
    printed_terms=((0.0779, 0.2156, 0.1057), (0.0504, 0.1382, 0.1972), (0.1237, 0.3983, 0.3390)),
    printed_context=(0.3992, 0.3858, 0.8610),
)

JOURNEY = WorkedExample(
    text="Your journey starts with one step",
    tokens=("Your", "journey", "starts", "with", "one", "step"),
    embeddings=(
        (0.43, 0.15, 0.89),
        (0.55, 0.87, 0.66),
        (0.57, 0.85, 0.64),
        (0.22, 0.58, 0.33),
        (0.77, 0.25, 0.10),
        (0.05, 0.80, 0.55),
    ),
    query="journey",
)
"""The vectors of six words that three texts share; each text goes on with matrices of its own."""

_LINEAR = replace(
    JOURNEY,
    matrices=SeededMatrices(seed=789, classes=("SelfAttention_v2",)),
    printed_context=(-0.0748, 0.0703),
)
_CAUSAL = replace(
    JOURNEY,
    matrices=SeededMatrices(seed=123, classes=("SelfAttention_v2",)),
    causal=True,
    printed_context=(-0.5874, 0.0058),
)
_RAND = replace(
    JOURNEY,
    matrices=SeededMatrices(seed=123, classes=("SelfAttention_v1",)),
    by_code="C",
    printed_query=(0.4306, 1.4551),
    printed_keys=(
        (0.3669, 0.7646),
        (0.4433, 1.1419),
        (0.4361, 1.1156),
        (0.2408, 0.6706),
        (0.1827, 0.3292),
        (0.3275, 0.9642),
    ),
    printed_values=(
        (0.1855, 0.8812),
        (0.3951, 1.0037),
        (0.3879, 0.9831),
        (0.2393, 0.5493),
        (0.1492, 0.3346),
        (0.3221, 0.7863),
    ),
)
_AFTER_RAND = replace(
    JOURNEY,
    matrices=SeededMatrices(seed=123, classes=("SelfAttention_v1", "SelfAttention_v2")),
    printed_query=(0.3558, 0.5643),
    printed_keys=(
        (-0.3132, -0.2272),
        (-0.1536, 0.2768),
        (-0.1574, 0.2865),
        (-0.0360, 0.1826),
        (-0.1805, 0.3798),
        (-0.0080, 0.0967),
    ),
    printed_values=(
        (0.4772, 0.1063),
        (0.6770, 0.4980),
        (0.6763, 0.4946),
        (0.3514, 0.3055),
        (0.4736, 0.2954),
        (0.3836, 0.3539),
    ),
    printed_scores=(-0.2396, 0.1015, 0.1057, 0.0902, 0.1501, 0.0518),
    printed_weights=(0.1359, 0.1730, 0.1735, 0.1716, 0.1790, 0.1670),
    printed_context=(0.5084, 0.3508),
)
_IN_COLUMNS = replace(
    HELLO_SHINY_SUN, score="scaled-dot", columns=True, printed_terms=(), printed_context=()
)


def _by_code_of(letter: str) -> tuple[WorkedExample, ...]:
    return tuple(replace(example, by_code=letter) for example in (_LINEAR, _CAUSAL))


TEXTS = MappingProxyType(
    {
        "A": "Dikkat Mekanizmaları",
        "B": "Mecanismos de Atención",
        "C": "Day 13. Scaled Dot-Product Attention",
        "D": "Dikkat ve Dönüştürücü",
        "E": "缩放点积注意力机制",
    }
)
"""The texts by a letter, with their titles."""

EXAMPLES: Mapping[str, Mapping[str, tuple[WorkedExample, ...]]] = MappingProxyType(
    {
        "shiny": {"A": (HELLO_SHINY_SUN,), "B": (HELLO_SHINY_SUN,), "D": (_IN_COLUMNS,)},
        "journey": {
            "A": _by_code_of("A"),
            "B": _by_code_of("B"),
            "C": (_RAND,),
            "D": (replace(JOURNEY, columns=True),),
            "E": (_AFTER_RAND,),
        },
    }
)
"""By its name and by the letter of a text, how that works an example, without a mask first."""

_FIRST = {"shiny": "A", "journey": "E"}


def example_of(sentence: str | None) -> str | None:
    """Return the name of the worked example whose sentence this is; no sentence is the first.

    >>> example_of("Hello shiny sun"), example_of(None), example_of("Hello shiny moon!")
    ('shiny', 'shiny', None)
    """
    if sentence is None:
        return "shiny"
    written = sentence.strip().removesuffix("!")
    known = {"shiny": HELLO_SHINY_SUN, "journey": JOURNEY}
    return next((n for n, one in known.items() if one.text.removesuffix("!") == written), None)


def text_of(example: str, text: str | None) -> str:
    """Return the letter of the text by which an example is worked, where none is asked for.

    >>> text_of("journey", None), text_of("journey", "C")
    ('E', 'C')
    """
    return _FIRST[example] if text is None else text


def worked_example(example: str, text: str | None = None, *, causal: bool = False) -> WorkedExample:
    """Return an example as a text works it.

    Args:
        example: "shiny" or "journey".
        text: The letter of a text in `EXAMPLES[example]`; by default the one that prints most.
        causal: Whether that with a causal mask is wanted, if the text has one.

    >>> worked_example("journey", "E").printed_query
    (0.3558, 0.5643)
    """
    ways = EXAMPLES[example][text_of(example, text)]
    return next((one for one in ways if one.causal == causal), ways[0])
