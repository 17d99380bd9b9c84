"""A layer of the ladder at work on one word of a sentence, for the explanations of its step."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.drawing import HeatMap, Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.figures import Figures
from glasshead.explanation.subject import aligned
from glasshead.explanation.translations import Say
from glasshead.ladder import GroupedQueryAttention, rotated
from glasshead.ladder.worked_example import JOURNEY

Layer_co = TypeVar("Layer_co", bound=nn.Module, covariant=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Working(Generic[Layer_co]):
    """A layer of the ladder at work on “Your journey starts with one step”, seen from one word.

    Attributes:
        layer: The layer, in float64.
        position: Position of the explained word.
        say: Translator to the requested language; it knows the explained word.
        write: Writes numbers.
    """

    layer: Layer_co
    position: int
    say: Say
    write: Figures

    @cached_property
    def x(self) -> Float[Tensor, "1 tokens d_in"]:
        """The embeddings of the words."""
        return torch.tensor(JOURNEY.embeddings, dtype=torch.float64)[None]

    @property
    def names(self) -> tuple[str, ...]:
        """The words."""
        return JOURNEY.tokens

    @property
    def name(self) -> str:
        """The explained word."""
        return self.names[self.position]

    @property
    def before(self) -> list[int]:
        """The positions up to the explained word: what a causal mask lets it see."""
        return list(range(self.position + 1))

    def here(self, tensor: Float[Tensor, "1 *heads tokens width"]) -> Float[Tensor, "*heads width"]:
        """Return what a tensor has of the explained word."""
        return tensor[0, ..., self.position, :]

    def vector(
        self, sign: str, values: Sequence[float], name: str | None = None
    ) -> tuple[str, str]:
        """Return the two sides of the line of a vector."""
        return f"{sign}({name or self.name})", self.write.vector(values)

    def product(
        self, sign: str, row: Sequence[float], matrix: Float[Tensor, "d_out d_in"]
    ) -> list[tuple[str, str]]:
        """Return the lines of a vector times a matrix: the first number's sum, and all numbers."""
        result = (matrix @ torch.tensor(row, dtype=matrix.dtype)).tolist()
        first = f"{self.write.products(row, matrix[0].tolist())} = {self.write.figure(result[0])}"
        return [(f"{sign}₁({self.name})", first), self.vector(sign, result)]

    def table(self, columns: dict[str, Float[Tensor, "tokens width"]]) -> Table:
        """Build a table with a row for each word, and a vector or a number in each column."""
        rows = [
            [name, *(self._cell(vectors[place].tolist()) for vectors in columns.values())]
            for place, name in enumerate(self.names)
        ]
        return Table([self.say("word"), *columns], rows, highlight_row=self.position)

    def _cell(self, values: list[float]) -> str:
        return self.write.vector(values) if len(values) > 1 else self.write.figure(values[0])

    def heads(self, weights: Float[Tensor, "heads tokens"], seen: Sequence[int]) -> HeatMap:
        """Draw the weights of the explained word, a row for each head, hidden words left empty."""
        say = self.say
        hidden = torch.ones(weights.shape[-1], dtype=torch.bool)
        hidden[list(seen)] = False
        return HeatMap(
            weights.masked_fill(hidden, torch.nan),
            tuple(say("head {head}", head=head) for head in range(len(weights))),
            self.names,
            caption=say("The weights of “{query}” in each head"),
        )


def explain_scores(
    working: Working[Any],
    queries: Float[Tensor, "heads width"],
    keys: Float[Tensor, "heads tokens width"],
    seen: Sequence[int],
    *,
    heads: Sequence[int] = (0,),
    intro: tuple[str, ...] = (),
    formula: str = "s[h] = q[h]·k[h] / √d",
    why: str = "",
) -> Step:
    """Explain the scaled scores of the explained word, written out for some of the heads."""
    say = working.say
    scores = (keys @ queries[..., None])[..., 0] / queries.shape[-1] ** 0.5  # [heads, tokens]
    lines = [line for head in heads for line in _score_lines(working, queries, keys, seen, head)]
    return Step(
        name="scores",
        title=say("Scores: how well does each key fit?"),
        intro=intro
        or (
            say(
                "The query of each head is compared with the keys that “{query}” may see. The "
                "scores of head 0 are written out."
            ),
        ),
        formula=formula,
        numbers=aligned(lines),
        why=why,
        data={"scores": scores},
    )


def _score_lines(
    working: Working[Any],
    queries: Float[Tensor, "heads width"],
    keys: Float[Tensor, "heads tokens width"],
    seen: Sequence[int],
    head: int,
    sign: str = "s",
) -> list[tuple[str, str]]:
    """Return the lines of the scaled scores of a head."""
    write, query, width = working.write, queries[head], queries.shape[-1]
    lines = []
    for key in seen:
        sum_ = write.products(query.tolist(), keys[head, key].tolist())
        score = write.figure((keys[head, key] @ query).item() / width**0.5)
        lines.append((f"{sign}[{head}]({working.names[key]})", f"({sum_})/√{width} = {score}"))
    return lines


def explain_weights(
    working: Working[Any],
    scores: Float[Tensor, "heads tokens"],
    weights: Float[Tensor, "heads tokens"],
    seen: Sequence[int],
    *,
    sink: float | None = None,
    intro: tuple[str, ...] = (),
    why: str = "",
) -> Step:
    """Explain the weights of the explained word, written out for head 0; a sink counts too."""
    say, write = working.say, working.write
    of_head = [scores[0, key].item() for key in seen]
    counted = of_head if sink is None else [*of_head, sink]
    powers = [write.figure(torch.tensor(s, dtype=torch.float64).exp().item()) for s in counted]
    total = write.figure(torch.tensor(counted, dtype=torch.float64).exp().sum().item())
    whole = [
        ("Σ", write.total([f"e^{write.factor(s)}" for s in counted])),
        ("", f"{write.total(powers)} = {total}"),
    ]

    def share(key: int, score: float, power: str) -> tuple[str, str]:
        weight = write.figure(weights[0, key].item())
        sum_ = f"e^{write.factor(score)} / Σ = {power} / {total} = {weight}"
        return f"p[0]({working.names[key]})", sum_

    shares = [share(*each) for each in zip(seen, of_head, powers, strict=False)]
    return Step(
        name="weights",
        title=say("Weights (soft attention): how much of each?"),
        intro=intro
        or (
            say(
                "The softmax turns the scores of a head into weights that sum to 1. Those of head "
                "0 are written out."
            ),
        ),
        formula="p[h]_j = e^s[h]_j / Σ"
        + (",   Σ = Σ_k e^s[h]_k" if sink is None else ",   Σ = Σ_k e^s[h]_k + e^b[h]"),
        numbers=(*aligned(whole), "", *aligned(shares)),
        figures=(working.heads(weights, seen),),
        why=why,
        data={"weights": weights},
    )


def explain_contexts(
    working: Working[Any],
    weights: Float[Tensor, "heads tokens"],
    values: Float[Tensor, "heads tokens width"],
    seen: Sequence[int],
    *,
    result: Float[Tensor, " d_in"] | None = None,
) -> Step:
    """Explain the contexts of the explained word, and what the output matrix makes of them.

    Args:
        working: The layer at work.
        weights, values: Of each head.
        seen: The positions of the words that it sees.
        result: What the layer returns for it; None: something else follows first.
    """
    say, write = working.say, working.write
    contexts = (weights[:, None] @ values)[:, 0]  # [heads, width]
    terms = [
        f"{write.figure(weights[0, key].item())}·{write.vector(values[0, key].tolist())}"
        for key in seen
    ]
    sign = f"c[0]({working.name}) = "
    indent = " " * (len(sign) - 2)
    mixture = [sign + terms[0], *(f"{indent}+ {term}" for term in terms[1:])]
    others = [working.vector(f"c[{head}]", row.tolist()) for head, row in enumerate(contexts)][1:]
    side_by_side = contexts.flatten().tolist()
    lines = [*others, working.vector("c", side_by_side)]
    intro = [
        say(
            "Each head adds up the values, multiplied by its weights. The contexts of the heads "
            "then stand side by side, as one vector c."
        )
    ]
    formula, data = "c[h] = Σ_j p[h]_j·v[h]_j", {"contexts": contexts}
    if result is not None:
        intro.append(say("The output matrix mixes them: that is what the layer returns."))
        lines += working.product("o", side_by_side, working.layer.out_proj.weight)
        formula += ",   o = c·W_out"
        data["result"] = result
    return Step(
        name="context",
        title=say("Context: the mixture"),
        intro=(say.after_each_other(*intro),),
        formula=formula,
        numbers=(
            *mixture,
            f"{indent}= {write.vector(contexts[0].tolist())}",
            "",
            *aligned(lines),
        ),
        data=data,
    )


def explain_rotation(
    working: Working[GroupedQueryAttention], seen: Sequence[int], model: str
) -> Step:
    """Explain what changes if queries and keys are turned by the position of their word.

    Args:
        working: The layer at work, which turns nothing.
        seen: The positions of the words that the explained word sees.
        model: A sentence that names the model with this layer.
    """
    layer, say, write, place = copy(working.layer), working.say, working.write, working.position
    layer.turn = rotated
    still = [part[0] for part in layer.project(working.x)[:2]]
    queries, keys = (rotated(part) for part in still)
    of_heads = keys.repeat_interleave(layer.group, dim=0)
    scores = queries @ of_heads.mT / layer.head_dim**0.5
    weights = layer.weigh(scores[None])[0, :, place]
    result = working.here(layer(working.x))
    lines = [
        *turn_lines(working, "q'[0]", still[0][0, place], queries[0, place]),
        *turn_lines(working, "k'[0]", still[1][0, place], keys[0, place]),
        *_score_lines(working, queries[:, place], of_heads, seen, 0, sign="s'"),
        *((f"p'[0]({working.names[key]})", write.figure(weights[0, key].item())) for key in seen),
        working.vector("o'", result.tolist()),
    ]
    columns = {f"k[{head}]": part for head, part in enumerate(still[1])}
    columns |= {f"k'[{head}]": part for head, part in enumerate(keys)}
    return Step(
        name="rotation",
        title=say("The position: a rotation"),
        intro=(
            say.after_each_other(
                say(
                    "So far, the score of two words does not depend on their positions. With "
                    "turn=rotated, each query and each key is turned by the angle t, the position "
                    "of its word counted from 0, and the values stay. “{query}” stands at t = "
                    "{place}.",
                    place=place,
                ),
                model,
            ),
            say(
                "The next steps are the same: the scores s' of head 0, its weights p', and what "
                "the layer returns, o'."
            ),
        ),
        formula="[a, b] → [a·cos t - b·sin t, a·sin t + b·cos t],   s'[h] = q'[h]·k'[g] / √d",
        numbers=aligned(lines),
        figures=(working.table(columns), working.heads(weights, seen)),
        why=say.after_each_other(
            say(
                "Why turn: queries are turned in the same way, and the product of two turned "
                "vectors depends on the difference of their angles alone. So a score depends on "
                "the distance of two words, not on their positions."
            ),
            say(
                "The score of “{query}” with itself does not change, because both are turned by "
                "the same angle."
            ),
        ),
        data={"turned_scores": scores[:, place], "turned_weights": weights, "turned": result},
    )


def turn_lines(
    working: Working[Any], sign: str, still: Float[Tensor, "2"], turned: Float[Tensor, "2"]
) -> list[tuple[str, str]]:
    """Return the lines of a pair of numbers that is turned by the position of the word."""
    write, place = working.write, working.position
    (a, b), (first, second) = map(write.factor, still.tolist()), map(write.figure, turned.tolist())
    return [
        (f"{sign}₁({working.name})", f"{a}·cos {place} - {b}·sin {place} = {first}"),
        (f"{sign}₂({working.name})", f"{a}·sin {place} + {b}·cos {place} = {second}"),
    ]


def explain_memory(working: Working[Any], lines: Sequence[tuple[str, str]], why: str = "") -> Step:
    """Explain how many numbers a model keeps while it writes, next to another step's."""
    say = working.say
    return Step(
        name="memory",
        title=say("Memory: what is kept of each word"),
        intro=(
            say(
                "A model that writes word by word keeps these numbers of all words so far, in each "
                "layer. For the {tokens} words:",
                tokens=len(working.names),
            ),
        ),
        numbers=aligned(lines),
        why=why,
        data={},
    )
