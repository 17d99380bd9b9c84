"""Data: what a language model is trained on, in words that JSON holds."""

from dataclasses import dataclass

from glasshead.recipe.numbers import whole_number

TOKENIZERS = ("characters", "bpe", "wordpiece", "gpt2")


@dataclass(frozen=True, kw_only=True)
class WriteData:
    """Which texts, in which tokens.

    Attributes:
        files: The texts; none: little stories that are made up.
        field: The column of tables that holds the text.
        tokenizer: "characters", "bpe" or "wordpiece", made from the texts; or "gpt2".
        vocabulary: How many tokens bpe and wordpiece make, at most.
        gpt2: The folder with GPT-2's encoder.json and vocab.bpe.
        held_out: The share of the text, its last part, that is never trained on.
        stories: How many stories are made up.
        batch_size: How many pieces of `context_length` tokens make one step.
        sha256: Of all texts; resuming sees by it that they are the same.
        texts: How many there are to train on; of several, each is ended.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    files: tuple[str, ...] = ()
    field: str | None = None
    tokenizer: str = "characters"
    vocabulary: int = 4096
    gpt2: str | None = None
    held_out: float = 0.1
    stories: int = 20_000
    batch_size: int = 12
    sha256: str | None = None
    texts: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))
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
        for name in ("vocabulary", "stories", "batch_size"):
            whole_number(getattr(self, name), name, least=1)
        if not isinstance(self.held_out, float) or not 0 < self.held_out < 1:
            raise ValueError(
                f"held_out takes a share between 0 and 1, as in 0.1, and got {self.held_out!r}."
            )
