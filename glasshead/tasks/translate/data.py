"""Data: what a translator is trained on, in words that JSON holds."""

from dataclasses import dataclass
from typing import ClassVar

from glasshead.tasks.runs import RunData

TOKENIZERS = ("bpe", "wordpiece", "words")


@dataclass(frozen=True, kw_only=True)
class TranslateData(RunData):
    """Which texts and translations, in which tokens; without files, made-up German and English.

    Attributes:
        source: The column of tables that holds the text.
        target: The column that holds its translation.
        tokenizer: "bpe", "wordpiece" or "words": made from texts and translations together.
        vocabulary: How many tokens it makes, at most; 2²⁰ is the most.
        lowercase: Whether all is put into small letters.
        batch_tokens: How many tokens a batch takes at most, on each side, padding included.
        made_up: How many pairs are made up, 10⁶ at most.
        pairs: How many there are to train on.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "pairs")

    source: str = "source"
    target: str = "target"
    tokenizer: str = "bpe"
    vocabulary: int = 8000
    lowercase: bool = False
    batch_tokens: int = 3000
    made_up: int = 20_000
    pairs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_kinds(TOKENIZERS, ("source", "target"))
        self.check_whole(("vocabulary", "batch_tokens", "made_up"), least=1)
