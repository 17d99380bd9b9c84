"""Two readings compared head by head, and the roles of a model on repeated random tokens."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.message import Message
from glasshead.studio.background_jobs import Cache, Refusal, Work
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass
from glasshead.studio.views.heads import number, summary
from glasshead.watching import UnseenError

# Models whose roles are remembered.
_MODELS = 8


def no_difference(one: ModelPass, other: ModelPass) -> Message | None:
    """Return why the weights of two readings have no difference; None where they have one."""
    if one.length != other.length:
        return Message(
            "a difference takes two texts of as many tokens, and these have {count} and {other}: "
            "add words to one of them, or leave some out.",
            count=one.length,
            other=other.length,
        )
    if one.heads != other.heads:
        return Message(
            "a difference takes two models with as many layers and heads, and these have {count} "
            "and {other}: name another model.",
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
    of the first reading, None where one of them has no such number.

    Errors: as of `summary`.
    """
    first, second = summary(one), summary(other)
    return {
        "entropy": _subtracted(first["entropy"], second["entropy"]),
        "scores": {
            role: _subtracted(scores, second["scores"][role])
            for role, scores in first["scores"].items()
        },
    }


def _subtracted(
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

    Errors: a `Refusal` where they have none.
    """
    if (why := no_difference(one, other)) is not None:
        raise Refusal(why)


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

        Errors: a ValueError where two periods do not fit into the model's context; a `Refusal`
        where there is no such model, or its attention cannot be seen; `Cancelled`.
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
            raise Refusal(str(error)) from error
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
