"""Subject: whose attention is observed, and where its vectors come from."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from glasshead.cli.explaining.sentence import Sentence, Source, sentence_of
from glasshead.cli.inputs.attention_file import read_attention
from glasshead.cli.inputs.reading import shown
from glasshead.cli.inputs.tensors_file import is_tensors_file
from glasshead.cli.inputs.wording import quoted

# As `explain` has it, so that the same words have the same vectors.
_SEED = 123
_NOTES = {
    Source.TEXTS: "The vectors are those of the worked example that the texts print.",
    Source.MADE_UP: f"The vectors are made up from seed {_SEED} and mean nothing: what the words "
    "attend to here says nothing about the words. How it is computed is real.",
}


@dataclass(frozen=True, eq=False)
class Subject:
    """What an attention is computed from, and what must be said of it.

    Attributes:
        title: What is observed, in few words.
        query, key, value: `[batch, heads, length, dim]`.
        tokens: What the queries and the keys are called, where they have names.
        note: What the reader has to know of where the numbers come from.
    """

    title: str
    query: Float[Tensor, "batch heads queries dim"]
    key: Float[Tensor, "batch kv_heads keys dim"]
    value: Float[Tensor, "batch kv_heads keys value_dim"]
    tokens: tuple[str, ...] | None = None
    note: str | None = None

    @property
    def heads(self) -> int:
        """How many heads look."""
        return self.query.shape[1]


def subject_of(text: str | None, vectors: Path | None) -> Subject:
    """What the command line asks to be observed.

    Args:
        text: A sentence; None: all of `vectors`, or else the worked example of the texts.
        vectors: A file of tensors, or one of tokens and their vectors.

    Errors: a ValueError where the text is empty, a word has no vector, or the file is malformed; an
    OSError where it cannot be read.
    """
    if vectors is None or not is_tensors_file(vectors):
        return _of_sentence(sentence_of(text, vectors, dim=None, seed=_SEED), text, vectors)
    if text is not None:
        raise ValueError(
            f"TEXT is looked up in a file of tokens and their vectors, and {shown(vectors)} has "
            f"queries and keys without names: leave TEXT out."
        )
    inputs = read_attention(vectors)
    note = None
    if not inputs.has_value:
        note = "The file has no value: the context, which --save writes, is one of its keys."
    return Subject(shown(vectors), inputs.query, inputs.key, inputs.value, note=note)


def _of_sentence(sentence: Sentence, text: str | None, vectors: Path | None) -> Subject:
    x = sentence.embeddings.vectors[None, None]
    title = text
    if text is None:
        title = " ".join(sentence.embeddings.tokens) if vectors is None else shown(vectors)
    return Subject(
        # As a title it is not to be longer than a line or two.
        quoted(title, 100) if text is not None else title or "",
        x,
        x,
        x,
        tokens=sentence.embeddings.tokens,
        note=_NOTES.get(sentence.source),
    )
