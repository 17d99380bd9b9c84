"""Cards: short lists of facts side by side, each with a title and bars."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, line
from glasshead.drawing.page import rendered
from glasshead.drawing.printable import folded


@dataclass(frozen=True)
class Card:
    """A card.

    Args:
        title: Its title.
        mark: What stands out in it; None: nothing.
        bars: Names and shares from 0 to 1, drawn as bars.
        rows: Names and texts.
    """

    title: str
    mark: str | None
    bars: Sequence[tuple[str, float]]
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Cards(Block):
    """Cards side by side on a page, and below each other in a terminal.

    Args:
        cards: The cards.

    Example:
        >>> card = Card("head 0", "induction", [("induction", 0.93)], [("looks at", "cat, dog")])
        >>> print(Cards([card]).as_text(width=30))
        head 0: induction
          induction 0.93
          looks at: cat, dog
    """

    cards: Sequence[Card]

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the cards one below the other."""
        for place, card in enumerate(self.cards):
            if place:
                yield line()
            yield line(f"{card.title}: {card.mark}" if card.mark else card.title, "bold")
            bars = ", ".join(f"{name} {share:.2f}" for name, share in card.bars)
            for text in [*([bars] if bars else []), *(f"{name}: {x}" for name, x in card.rows)]:
                for part in folded(text, canvas.width - 2):
                    yield line(f"  {part}")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the cards as a grid of lists."""
        return rendered("cards.html", cards=self.cards)
