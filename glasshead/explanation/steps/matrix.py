"""All queries at once: the matrix of weights."""

from glasshead.explanation.maps import heat_map, shown_weights
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject


def tell_matrix(subject: Subject) -> Step:
    """The weights of every query, as a heat map with the row that was told."""
    say = subject.say
    return Step(
        name="matrix",
        title=say("All words at once"),
        intro=(
            say(
                "So far it was one word. Every other word is treated in just the same way, and "
                "together all the weights make a matrix P: a row for each query, a column for each "
                "key. The row of “{query}” is marked; it is the one explained above. P times the "
                "matrix V of all values gives all context vectors C at once.",
                query=subject.name,
            ),
        ),
        formula="C = P·V",
        numbers=(_shapes(subject),),
        figures=(
            heat_map(
                subject,
                shown_weights(subject),
                subject.query_names,
                highlight=subject.position,
                caption=say("The weights: rows look, columns are looked at"),
            ),
        ),
        why=say(
            "Why at once: no row depends on another, so a computer finds them all together with a "
            "few matrix products. Nothing has to be read word by word, and that is what made "
            "transformers fast to train."
        ),
        data={"weights": subject.matrix("weights"), "context": subject.context},
    )


def _shapes(subject: Subject) -> str:
    queries, keys = len(subject.query_names), len(subject.key_names)
    width = subject.values.shape[-1]
    return f"[{queries}, {width}] = [{queries}, {keys}]·[{keys}, {width}]"
