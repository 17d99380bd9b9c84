"""Atlas: the maps of as many heads as there is room for, down to a bounded depth."""

from glasshead.studio.report.answers import Answers
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.telling import told
from glasshead.studio.views.atlas import Atlases, stored
from glasshead.studio.views.heads import chosen_heads, reading_of

# Weights or blocks of all maps together, and of each of a few.
_NUMBERS = 500_000
_FEW_NUMBERS = 5 * 256**2
_TILES = 5
_SIDE = 256


def hold_atlas(answers: Answers, asked: Asked) -> list[str]:
    """Hold the heads that have a role, and more as long as there is room.

    Errors: a `Refusal` where the text cannot be read, or the attention not be seen.
    """
    atlases = Atlases(asked.studio)
    opened = atlases.opened(asked.name, asked.work)
    heads = _heads(asked, opened["length"])
    # One head as deep as two levels is worth less than two heads.
    tiles = _TILES if len(heads) * _FEW_NUMBERS <= _NUMBERS else 1
    answers.hold_all(stored(atlases, asked.name, heads, asked.work, tiles=tiles), asked.work)
    of = sum(layer["heads"] for layer in opened["layers"])
    return [] if len(heads) == of else told(asked, "heads", kept=len(heads), of=of)


def _heads(asked: Asked, length: int) -> list[tuple[int, int]]:
    """Those that are held: the coarsest tile of each has as many blocks as it needs."""
    blocks = length
    while blocks > _SIDE:
        blocks = -(-blocks // 2)
    reading = reading_of(asked.studio, asked.name, asked.work)
    return chosen_heads(reading, max(_NUMBERS // blocks**2, 1) * 4 * reading.length**2)
