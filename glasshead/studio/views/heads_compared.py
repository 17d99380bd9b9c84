"""Two readings compared head by head, and the roles of a model on repeated random tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from jaxtyping import Float
from torch import Tensor

from glasshead.explanation.translations import Say
from glasshead.message import Message, _
from glasshead.studio.background_jobs import Cache, Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import TEXT_NAME, HeadPlace
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass
from glasshead.studio.views.heads import (
    ModelNumber,
    ReadText,
    along,
    is_there,
    number,
    reading_of,
    small_maps,
    summary,
    whole_map,
)
from glasshead.watching import UnseenError

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


WORDS = {
    "heads.test": _("Run the induction test on repeated random tokens"),
    "heads.testing": _("The model is reading repeated random tokens…"),
    "heads.test.on": _("Roles measured on"),
    "heads.test.text": _("this text"),
    "heads.test.random": _("random tokens"),
    "heads.test.told": _(
        "Induction test: {rows} texts of {length} tokens. In each, {period} random tokens "
        "stand {times} times. Only a head that finds the earlier occurrence can predict the "
        "next token. The maps still show your text."
    ),
    "heads.test.found": _(
        "On random tokens, layer {layer}, head {head} is an induction head: it gives {score} of "
        "its weight to the token after the earlier occurrence."
    ),
    "heads.test.open": _("Open layer {layer}, head {head}"),
    "heads.test.others": _("Other induction heads: {count}."),
    "heads.test.closest": _(
        "On random tokens, no head is an induction head. The closest is layer {layer}, head "
        "{head}: it gives {score} of its weight to the token after the earlier occurrence."
    ),
    "heads.compare": _("Compare with another text"),
    "heads.model": _("Model"),
    "heads.minus_model": _("Compared with"),
    "heads.alone": _("no other model"),
    "heads.stop": _("Stop comparing"),
    "heads.sides": _("Side shown"),
    "heads.side_map": _("Map of {side}"),
}


# Models whose roles are remembered.
_MODELS = 8


def no_difference(one: ModelPass, other: ModelPass) -> Message | None:
    """Return why the weights of two readings have no difference; None if they have one."""
    if one.length != other.length:
        return Message(
            "a difference needs two texts with the same number of tokens, got {count} and {other}. "
            "Add words to one of them, or omit some.",
            count=one.length,
            other=other.length,
        )
    if one.heads != other.heads:
        return Message(
            "a difference needs two models with the same number of layers and heads, got {count} "
            "and {other}. Name another model.",
            count=_shape(one),
            other=_shape(other),
        )
    return None


def _shape(reading: ModelPass) -> str:
    heads = dict.fromkeys(reading.heads)
    return f"{len(reading.heads)} × {'/'.join(map(str, heads))}"


def compared(one: ModelPass, other: ModelPass) -> dict[str, Any]:
    """Compare the heads of two readings of any length.

    Returns: the differences of mean `entropy` and of the `scores` of each role, by layer and head
    of the first reading, None if one of them has no such number.

    Errors: as of `summary`.
    """
    first, second = summary(one), summary(other)
    return {
        "entropy": _by_head(first["entropy"], second["entropy"]),
        "scores": {
            role: _by_head(scores, second["scores"][role])
            for role, scores in first["scores"].items()
        },
    }


def _by_head(
    rows: list[list[float | None]], others: list[list[float | None]]
) -> list[list[float | None]]:
    def at(layer: int, head: int) -> float | None:
        return others[layer][head] if layer < len(others) and head < len(others[layer]) else None

    return [
        [
            None if value is None or (less := at(layer, head)) is None else value - less
            for head, value in enumerate(row)
        ]
        for layer, row in enumerate(rows)
    ]


def difference(
    values: Float[Tensor, "*shape"], others: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Subtract weights; a pair that is hidden in both has −0, an equal one +0.

    >>> import torch
    >>> difference(torch.tensor([0.5, -0.0, 0.25]), torch.tensor([0.25, -0.0, 0.25]))
    tensor([0.2500, -0.0000, 0.0000])
    """
    hidden = (values == 0) & values.signbit() & (others == 0) & others.signbit()
    # Adding 0 makes a zero positive.
    return (values - others + 0.0).masked_fill(hidden, -0.0)


def check_difference(one: ModelPass, other: ModelPass) -> None:
    """Check that the weights of two readings have a difference.

    Errors: a `Refusal` if they have none.
    """
    if (why := no_difference(one, other)) is not None:
        raise Refusal(why)


def of_both(readings: Sequence[ModelPass], select: Callable[[ModelPass], Tensor]) -> Tensor:
    """Return numbers of a reading; of two, the first's less the second's.

    Errors: a `Refusal` if two readings have no difference.
    """
    if len(readings) == 1:
        return select(readings[0])
    check_difference(*readings)
    return difference(*map(select, readings))


class InductionTests:
    """Finds the roles of a studio's models on repeated random tokens, as `gh.find_roles` does.

    Args:
        studio: The studio that holds the models.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._found: Cache[dict[str, Any]] = Cache(_MODELS)

    def roles(self, model: int, work: Work) -> dict[str, Any]:
        """Return the roles of a model, computed once.

        Args:
            model: Number of the model, as of `Studio.model`.
            work: Receives progress; once it is cancelled, the test ends at the next batch.

        Returns: `roles` and `scores` by layer and head, as of `summary`; `layers`, their names; and
        of the test its `rows` and `length` in tokens, its `period`, and how many `times` that is
        repeated.

        Errors: a ValueError if two periods do not fit into the model's context; a `Refusal`
        if there is no such model, or its attention cannot be seen; `Cancelled`.
        """
        subject = self._studio.model(model)
        key = subject, subject.version
        return self._found.get(key, lambda: self._test(model, work), work.follow, work)

    def _test(self, model: int, work: Work) -> dict[str, Any]:
        from glasshead.tasks.readers.find_roles import repeated, score_roles

        work.report("heads.opening", 0, 1)
        reader = self._studio.model(model).reader()
        test = repeated(reader, None, 0)
        try:
            found = score_roles(
                reader,
                (test.tokens,),
                progress=lambda done, of: work.report("heads.testing", done, of),
            ).roles
        except UnseenError as error:
            raise Refusal.of(error) from error
        rows, length = test.tokens.shape
        return {
            "layers": list(found.names),
            "roles": [list(row) for row in found.roles],
            "scores": {
                role: [[*map(number, row)] for row in scores.tolist()]
                for role, scores in found.scores.items()
            },
            "rows": rows,
            "length": length,
            "period": test.period,
            "times": test.times,
        }


@dataclass(frozen=True, kw_only=True)
class _Compared(ReadText):
    """A text that a model has read, and perhaps another one to subtract, or that of another."""

    minus: Annotated[str | None, TEXT_NAME | {"description": "The name of a text to subtract."}] = (
        None
    )
    minus_model: ModelNumber = 0

    @property
    def named(self) -> list[tuple[str, int]]:
        """The text, or both, each with the number of its model."""
        one = (self.text, self.model)
        return [one] if self.minus is None else [one, (self.minus, self.minus_model)]

    def readings(self, studio: Studio, work: Work) -> list[ModelPass]:
        """Read the text, or both."""
        return [reading_of(studio, text, work, model) for text, model in self.named]


@dataclass(frozen=True, kw_only=True)
class _ComparedHead(_Compared, HeadPlace):
    """A head of a layer that has read a text, and perhaps of another reading to subtract."""


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio
    tests = InductionTests(studio)

    def is_read(of: _Compared) -> bool:
        return all(is_there(studio, *one) for one in of.named)

    def shown(of: _Compared, work: Work, select: Callable[[ModelPass], Tensor]) -> Tensor:
        return of_both(of.readings(studio, work), select)

    @routes.numbers("/maps", is_read=is_read)
    def maps(work: Work, of: _Compared) -> Tensor:
        """Return pooled maps of all heads, and the weight of the first token in a last column.

        400 if two readings have no difference, 413 if the text takes too much memory.
        """
        return shown(of, work, small_maps)

    @routes.numbers("/weights", is_read=is_read)
    def weights(work: Work, of: _ComparedHead) -> Tensor:
        """Return the weights of one head; rows are queries, columns are keys.

        400 if there is no such layer or head, or two readings have no difference; 413 if the
        text takes too much memory.
        """
        return shown(of, work, lambda one: whole_map(one, of.layer, of.head))

    @routes.numbers("/along", is_read=is_read)
    def along_the_text(work: Work, of: _ComparedHead) -> Tensor:
        """Return entropy and mean distance of each query of a head, and mass received per key.

        400 if there is no such layer or head, or two readings have no difference; 413 if the
        text takes too much memory.
        """
        return shown(of, work, lambda one: along(one, of.layer, of.head))

    @routes.json("/compared", is_read=is_read)
    def compared_heads(work: Work, say: Say, of: _Compared) -> dict[str, Any]:
        """Return differences of entropy and scores, and why the weights have none: `refused`.

        400 if no text to subtract is named.
        """
        if of.minus is None:
            raise Refusal("a comparison needs two texts, got one. Name `minus`, too.")
        pair = of.readings(studio, work)
        why = no_difference(*pair)
        return compared(*pair) | {"refused": why and say.translated(why)}

    @routes.lines("/roles")
    def roles(work: Work, model: ModelNumber = 0) -> dict[str, Any]:
        """Find the roles of the heads on repeated random tokens, as `find_roles` does."""
        return tests.roles(model, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
