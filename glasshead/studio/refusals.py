"""Refusals: what a request asks for that is not to be had, in one sentence each."""


class Refusal(ValueError):  # noqa: N818 - it is no fault of the studio's
    """What was asked for is not to be had.

    Attributes:
        status: As HTTP numbers it.
    """

    status = 400


class NotThere(Refusal):
    """There is no such thing, or none of it here."""

    status = 404


class NotYet(Refusal):
    """It takes something else that has to be made first."""

    status = 409


class Forgotten(Refusal):
    """It was there, and has to be sent again."""

    status = 410


class TooMuch(Refusal):
    """It is larger than the studio's limits."""

    status = 413


class Busy(Refusal):
    """As much is being done already as is allowed at once."""

    status = 429
