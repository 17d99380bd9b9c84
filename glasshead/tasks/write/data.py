"""Data: what a language model is trained on, in words that JSON holds."""

from dataclasses import dataclass
from typing import ClassVar

from glasshead.tasks.runs import RunData

TOKENIZERS = ("characters", "bpe", "wordpiece", "gpt2")


@dataclass(frozen=True, kw_only=True)
class WriteData(RunData):
    """Which texts, in which tokens; without files, little stories that are made up.

    Attributes:
        field: The column of tables that holds the text.
        tokenizer: "characters", "bpe" or "wordpiece", made from the texts; or "gpt2".
        vocabulary: How many tokens bpe and wordpiece make, at most; 2²⁰ is the most.
        gpt2: The folder with GPT-2's encoder.json and vocab.bpe.
        stories: How many stories are made up, 10⁶ at most.
        batch_size: How many pieces of `context_length` tokens make one step.
        texts: How many there are to train on; of several, each is ended.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "texts")

    field: str | None = None
    tokenizer: str = "characters"
    vocabulary: int = 4096
    gpt2: str | None = None
    stories: int = 20_000
    batch_size: int = 12
    texts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(
                f"tokenizer takes one of {', '.join(TOKENIZERS)}, and got {self.tokenizer!r}."
            )
        if self.tokenizer == "gpt2" and not self.gpt2:
            raise ValueError(
                "tokenizer=gpt2 takes the folder with encoder.json and vocab.bpe too: add "
                "--set gpt2=FOLDER."
            )
        if not isinstance(self.field, str | None):
            raise TypeError(f"field takes the name of a column, and got {self.field!r}.")
        self.check_whole(("vocabulary", "stories", "batch_size"), least=1)
