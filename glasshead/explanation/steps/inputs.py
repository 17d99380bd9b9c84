"""Steps before the scores: the opening, the projection, the queries, keys and values."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.printed_numbers import printed_vectors
from glasshead.explanation.subject import (
    Subject,
    aligned,
    formula_of,
    heat_map,
    part_name,
    shown_weights,
)

if TYPE_CHECKING:
    from glasshead.explanation.embeddings import Projection


_MOST_WORDS = 40


def explain_opening(subject: Subject) -> Step:
    """Introduce the explanation and its words."""
    return Step(
        name="opening",
        title=_title(subject),
        intro=(_whom(subject), _how(subject)),
        figures=(_result(subject), *_recipe(subject)),
        data={"query_names": subject.query_names, "key_names": subject.key_names},
    )


def _title(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say("What self-attention does")
    return say("What cross-attention does")


def _whom(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say(
            "Self-attention lets every word look at the words of its own sentence, itself "
            "included, and take from each as much as it needs. Here it is shown for one word, "
            "“{query}”, with every number."
        )
    return say(
        "Cross-attention lets a word of one text look at the words of another, and take from each "
        "as much as it needs: queries and keys come from two different lists of words. Here it is "
        "shown for one query, “{query}”, with every number."
    )


def _how(subject: Subject) -> str:
    return subject.say(
        "It takes three steps. First, comparing: what “{query}” is looking for, its query, is "
        "compared with what every word has to offer, its key, and each comparison gives a score. "
        "Second, sharing out: the scores become weights, which say how much to take of each word. "
        "Third, mixing: what the words hand over, their values, is multiplied by these weights and "
        "added up. The result is the context vector of “{query}”."
    )


def _result(subject: Subject) -> Block:
    """Show the weights of the explained word, before their derivation."""
    here = slice(subject.position, subject.position + 1)
    caption = subject.say("What “{query}” looks at, and how much")
    return heat_map(subject, shown_weights(subject)[here], (subject.name,), caption=caption)


def _recipe(subject: Subject) -> tuple[Block, ...]:
    say, write, problem = subject.say, subject.write, subject.problem
    choices = [
        (say("words"), _words(subject.query_names)),
        *([] if subject.same_words else [(say("words looked at"), _words(subject.key_names))]),
        (say("explained word"), subject.name),
        (say("score"), _part(problem.score)),
        (say("inverse temperature β"), _beta(subject)),
        *([] if problem.softcap is None else [(say("softcap"), write.figure(problem.softcap))]),
        *((say("bias"), part_name(bias)) for bias in problem.biases),
        (say("mask"), say("none") if problem.mask is None else repr(problem.mask)),
        (say("weights"), _part(problem.normalizer)),
        *([(say("dropout"), write.figure(problem.dropout))] if problem.dropout else []),
        (say("dimension d"), _widths(subject)),
        *_place(subject),
    ]
    return (
        Table([say("setting"), say("value")], choices, caption=say("Attention settings")),
        Paragraph(
            say(
                "Numbers are computed with more digits than are shown, so a sum of shown numbers "
                "may differ in its last digit."
            )
        ),
    )


def _part(part: nn.Module) -> str:
    """Format a score or normalizer: its name, and its formula where it has one."""
    name, formula = type(part).__name__, formula_of(part)
    return name if name == formula else f"{name}: {formula}"


def _beta(subject: Subject) -> str:
    """Format β, with its formula where it is 1/√d."""
    write = subject.write
    if subject.is_scaled_by_width:
        return f"1/√{subject.queries.shape[-1]} = {write.figure(subject.beta)}"
    return write.figure(subject.beta)


def _widths(subject: Subject) -> str:
    """Format the widths of the vectors."""
    width, value_width = subject.keys.shape[-1], subject.values.shape[-1]
    if width == value_width:
        return str(width)
    return subject.say("{width}; in a value {value_width}", width=width, value_width=value_width)


def _place(subject: Subject) -> list[tuple[str, str]]:
    """Name the explained head and batch row, where there are several."""
    say, rows = subject.say, []
    batch = subject.index[:-1] if subject.problem.axes > 3 else subject.index
    if math.prod(subject.problem.query.shape[:-3]) > 1:
        where = ", ".join(map(str, batch))
        rows.append((say("row of the batch"), say("{place}, counted from 0", place=where)))
    if subject.heads > 1:
        explained = say(
            "{count}; explained here: head {head}", count=subject.heads, head=subject.head
        )
        rows.append((say("heads, counted from 0"), explained))
    return rows


def _words(names: tuple[str, ...]) -> str:
    """Join the words; of many only the first."""
    more = [f"… ({len(names)})"] if len(names) > _MOST_WORDS else []
    return " · ".join([*names[:_MOST_WORDS], *more])


_MOST_NUMBERS = 3
_SUBSCRIPTS = "₁₂₃"


def explain_projection(subject: Subject) -> Step | None:
    """Explain the query, key and value of the word, number by number."""
    projection, say = subject.projection, subject.say
    if projection is None:
        return None
    x = projection.inputs.detach().cpu()
    made = {role: _Made.of(subject, projection, role) for role in ("query", "key", "value")}
    position = subject.position
    explained = ["query", "key", "value"] if subject.same_words else ["query"]
    numbers = [
        line for role in explained for line in made[role].lines(subject, x[position].tolist())
    ]
    return Step(
        name="projection",
        title=say("From embeddings to queries, keys and values"),
        intro=(
            say(
                "A word comes in as an embedding x, a list of {width} numbers that stands for it. "
                "Three matrices, learned in training, turn it into the word's query q, key k and "
                "value v: each number of the result is the embedding times one column of the "
                "matrix, multiplied number by number and added up.",
                width=x.shape[-1],
            ),
        ),
        formula=_formula(projection),
        numbers=(f"x({subject.name}) = {subject.write.vector(x[position].tolist())}", "", *numbers),
        why=say(
            "Why three matrices: if the embedding itself were query, key and value, a word could "
            "only look for words like itself. With matrices it can learn to look for something "
            "else, as a verb for its subject or a pronoun for the noun it stands for."
        ),
        data={
            "inputs": x,
            **{f"W_{role}": part.matrix for role, part in made.items()},
            **{f"b_{role}": part.bias for role, part in made.items()},
        },
    )


@dataclass(frozen=True, eq=False)
class _Made:
    """The queries, keys or values, and the columns of the matrix that gave them."""

    letter: str
    result: Tensor
    matrix: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, subject: Subject, projection: "Projection", role: str) -> "_Made":
        letter, result, head, heads = {
            "query": ("q", subject.queries, subject.head, subject.heads),
            "key": ("k", subject.keys, subject.key_head, subject.key_heads),
            "value": ("v", subject.values, subject.key_head, subject.key_heads),
        }[role]
        matrix = getattr(projection, f"W_{role}").detach().cpu()
        bias = getattr(projection, f"b_{role}")
        width = result.shape[-1]
        if matrix.shape[-1] not in (width, heads * width):
            raise ValueError(
                f"projection.W_{role} must have {width} columns, one for each number of a {role}, "
                f"or {heads * width} for {heads} heads, got {matrix.shape[-1]}."
            )
        columns = slice(head * width, (head + 1) * width)
        if matrix.shape[-1] == width:
            columns = slice(width)
        bias = None if bias is None else bias.detach().cpu()[columns]
        made = cls(letter, result, matrix[:, columns], bias)
        if role == "query" or subject.same_words:
            made.check(projection.inputs.detach().cpu(), role)
        return made

    def check(self, inputs: Float[Tensor, "tokens d_in"], role: str) -> None:
        """Raise a ValueError where the projection does not give the vectors of the trace."""
        result = inputs @ self.matrix.to(inputs.dtype)
        if self.bias is not None:
            result = result + self.bias
        if not bool(result.isfinite().all()):
            raise ValueError(
                f"projection must have finite inputs and matrices; its W_{role} gives NaN or "
                f"infinity."
            )
        if result.shape != self.result.shape or not torch.allclose(
            result.double(), self.result.double(), rtol=1e-2, atol=1e-3
        ):
            raise ValueError(
                "projection must have the inputs and matrices that the trace was made from, but "
                f"W_{role} does not produce the {role} vectors of the trace."
            )

    def lines(self, subject: Subject, x: list[float]) -> tuple[str, ...]:
        """Write out the first numbers of the word's vector, each as a sum."""
        write = subject.write
        result = self.result[subject.position].tolist()
        lines = []
        for place in range(min(len(result), _MOST_NUMBERS)):
            column = self.matrix[:, place].tolist()
            bias = "" if self.bias is None else f" + {write.factor(self.bias[place].item())}"
            written = f"{write.products(x, column)}{bias} = {write.figure(result[place])}"
            lines.append((f"{self.letter}{_SUBSCRIPTS[place]}({subject.name})", written))
        whole = (f"{self.letter}({subject.name})", write.vector(result))
        return (*aligned([*lines, whole]), "")


def _formula(projection: "Projection") -> str:
    """Format the three products, with their biases."""
    roles = (("q", "query"), ("k", "key"), ("v", "value"))
    parts = []
    for letter, role in roles:
        bias = "" if getattr(projection, f"b_{role}") is None else f" + b_{role}"
        parts.append(f"{letter} = x·W_{role}{bias}")
    return ",   ".join(parts)


def explain_inputs(subject: Subject) -> Step:
    """Explain queries, keys and values."""
    say, write = subject.say, subject.write
    alike, query = _alike(subject), subject.queries[subject.position].tolist()
    same = say(
        "Here all three are one and the same vector x, the embedding of the word: the numbers that "
        "stand for it. A trained model would make three different vectors from it."
    )
    return Step(
        name="inputs",
        title=say("Queries, keys and values"),
        intro=(_three_vectors(subject), same) if alike else (_three_vectors(subject),),
        formula="q = k = v = x" if alike else "",
        numbers=(f"{'x' if alike else 'q'}({subject.name}) = {write.vector(query)}",),
        figures=(_table(subject, alike=alike), *_remark(subject)),
        printed=printed_vectors(subject),
        why=say(
            "Why three: think of a library. You come with a question, the query; you compare it "
            "with the labels on the shelves, the keys; and what you carry home are the books, the "
            "values. Question, label and book are different things."
        ),
        data={"queries": subject.queries, "keys": subject.keys, "values": subject.values},
    )


def _three_vectors(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say(
            "Every word brings three vectors, lists of numbers. Its query q says what it is "
            "looking for. Its key k says what can be found there. Its value v is what it hands "
            "over to whoever looks at it."
        )
    return say(
        "Every word that looks brings a vector, a list of numbers: its query q, which says what it "
        "is looking for. Every word that is looked at brings two: its key k, which says what can "
        "be found there, and its value v, which it hands over to whoever looks at it."
    )


def _alike(subject: Subject) -> bool:
    """Return whether queries, keys and values are the same vectors."""
    q, k, v = subject.queries, subject.keys, subject.values
    return subject.same_words and torch.equal(q, k) and torch.equal(k, v)


def _table(subject: Subject, *, alike: bool) -> Table:
    """Build the table of keys and values."""
    say, write = subject.say, subject.write
    columns = [("x", subject.keys)] if alike else [("k", subject.keys), ("v", subject.values)]
    rows = [
        [
            subject.key_names[key],
            *(write.vector(v[key].tolist()) for _, v in columns),
        ]
        for key in subject.shown
    ]
    others = len(subject.key_names) - len(subject.shown)
    if others:
        rows.append([say("… and {count} more", count=others), *("" for _ in columns)])
    here = (
        subject.shown.index(subject.position)
        if alike and subject.position in subject.shown
        else None
    )
    return Table([say("word"), *(head for head, _ in columns)], rows, highlight_row=here)


def _remark(subject: Subject) -> tuple[Block, ...]:
    """Explain keys that are hidden from all queries, where there are any."""
    if subject.visible is None or bool(subject.visible.any(0).all()):
        return ()
    return (
        Paragraph(
            subject.say(
                "Some keys are hidden from every query. Whatever their numbers are, they change "
                "nothing; those that are not finite count as 0 from here on."
            )
        ),
    )
