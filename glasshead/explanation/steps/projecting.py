"""The step before attention: embeddings become queries, keys and values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.explanation.figures import aligned, factor, figure, products, short_vector
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject

if TYPE_CHECKING:
    from glasshead.explanation.projection import Projection

_MOST_NUMBERS = 3
_SUBSCRIPTS = "₁₂₃"


def tell_projection(subject: Subject) -> Step | None:
    """The query of the word, its key and its value, number by number."""
    projection, say = subject.projection, subject.say
    if projection is None:
        return None
    x = projection.inputs.detach().cpu()
    made = {role: _Made.of(subject, projection, role) for role in ("query", "key", "value")}
    position = subject.position
    told = ["query", "key", "value"] if subject.same_words else ["query"]
    numbers = [line for role in told for line in made[role].lines(subject, x[position].tolist())]
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
        numbers=(f"x({subject.name}) = {short_vector(x[position].tolist())}", "", *numbers),
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
    """Queries, keys or values, and the columns of the matrix that made them."""

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
                f"projection.W_{role} takes {width} columns, one for each number of a {role}, or "
                f"{heads * width} for {heads} heads, and got {matrix.shape[-1]}."
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
        """Raise where the projection is not what made the trace."""
        result = inputs @ self.matrix.to(inputs.dtype)
        if self.bias is not None:
            result = result + self.bias
        if result.shape != self.result.shape or not torch.allclose(
            result.double(), self.result.double(), rtol=1e-2, atol=1e-3, equal_nan=True
        ):
            raise ValueError(
                f"projection takes the inputs and matrices that the trace was made from, and got "
                f"others: its W_{role} does not give the {role} vectors of the trace."
            )

    def lines(self, subject: Subject, x: list[float]) -> tuple[str, ...]:
        """The first numbers of the word's vector, each as a sum."""
        result = self.result[subject.position].tolist()
        lines = []
        for place in range(min(len(result), _MOST_NUMBERS)):
            column = self.matrix[:, place].tolist()
            bias = "" if self.bias is None else f" + {factor(self.bias[place].item())}"
            written = f"{products(x, column, subject.say)}{bias} = {figure(result[place])}"
            lines.append((f"{self.letter}{_SUBSCRIPTS[place]}({subject.name})", written))
        whole = (f"{self.letter}({subject.name})", short_vector(result))
        return (*aligned([*lines, whole]), "")


def _formula(projection: "Projection") -> str:
    """The three products, with what is added."""
    roles = (("q", "query"), ("k", "key"), ("v", "value"))
    parts = []
    for letter, role in roles:
        bias = "" if getattr(projection, f"b_{role}") is None else f" + b_{role}"
        parts.append(f"{letter} = x·W_{role}{bias}")
    return ",   ".join(parts)
