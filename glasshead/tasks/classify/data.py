"""Data: what a classifier is trained on, in words that JSON holds."""

from dataclasses import dataclass
from typing import ClassVar

from glasshead.tasks.runs import RunData

TOKENIZERS = ("words", "bpe", "wordpiece")


@dataclass(frozen=True, kw_only=True)
class ClassifyData(RunData):
    """Which texts with which labels, in which tokens; without files, made-up reviews.

    Of a long text, the first and the last tokens are read: it says at its ends what it is about.

    Attributes:
        text: The column that holds the text.
        label: The column that holds what it is.
        tokenizer: "words", "bpe" or "wordpiece", made from the texts.
        vocabulary: How many tokens it makes, at most; 2²⁰ is the most.
        lowercase: Whether texts are put into small letters.
        first: How many tokens are read from the beginning of a text.
        last: How many from the end of a longer one.
        batch_tokens: How many tokens a batch takes at most, padding included.
        blocks: In how many runs of neighbouring texts the held-out share is taken, for files whose
            neighbours are of one thing, as reviews of one film; 0: each text is drawn by itself.
        made_up: How many reviews are made up, 10⁶ at most.
        answers: The labels that there are.
        texts: How many texts there are to train on.

    Errors: a ValueError or TypeError that names what is wrong.

    Source: Sun et al. 2019 (How to fine-tune BERT for text classification), section 5.3.1, for the
    first and the last tokens.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "answers", "texts")

    text: str = "text"
    label: str = "label"
    tokenizer: str = "words"
    vocabulary: int = 30_000
    lowercase: bool = True
    first: int = 200
    last: int = 200
    batch_tokens: int = 6000
    blocks: int = 0
    made_up: int = 10_000
    answers: tuple[str, ...] = ()
    texts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "answers", tuple(self.answers))
        self.check_kinds(TOKENIZERS, ("text", "label"))
        self.check_whole(("vocabulary", "first", "batch_tokens", "made_up"), least=1)
        self.check_whole(("last", "blocks"), least=0)
