"""A language model with its tokenizer: text generation with stop strings, and perplexity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from glasshead.models import LanguageModel
from glasshead.models.decoding import Beam, Strategy, generate, stream
from glasshead.models.language_model import LanguageModelSteps
from glasshead.models.pretrained import llama2c_file, load_pretrained
from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.batches import in_order, pad
from glasshead.tasks.data.files import shown
from glasshead.tasks.data.texts import read_texts
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import StreamDecoder, Tokenizer
from glasshead.tasks.train_writer import (
    PRESETS,
    WRITE,
    HeldOutWindows,
    LanguageModelObjective,
    WriteSettings,
    tokenized,
)

__all__ = [
    "PRESETS",
    "WRITE",
    "WriteSettings",
    "Writer",
    "evaluate",
]


class StoppedText:
    """Incremental decoding up to the first stop string, no part of which is emitted.

    Of several stop strings the one that is complete first counts, of those the longest, however the
    text is divided into tokens. Text that may become a stop string is held back.

    Args:
        tokenizer: The tokenizer.
        before: Preceding tokens.
        stop: The stop strings; preceding tokens do not count as part of one.

    Attributes:
        stopped: Whether a stop string has occurred.

    >>> from glasshead.tasks.tokenizers import characters
    >>> tokenizer = characters(["one two"])
    >>> text = StoppedText(tokenizer, stop=["two"])
    >>> [text.add(token) for token in tokenizer.encode("one to two")], text.stopped
    (['o', 'n', 'e', ' ', '', 'to', ' ', '', '', ''], True)
    """

    def __init__(
        self, tokenizer: Tokenizer, before: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self._stream = StreamDecoder(tokenizer, before)
        self._stop = stop
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Add a token and return the text that can be emitted."""
        return self._shown(self._stream.add(token))

    def rest(self) -> str:
        """Return the text held back at the end, if it did not become a stop string."""
        if self.stopped:
            return ""
        shown = self._shown(self._stream.rest())
        return shown if self.stopped else shown + self._held

    def _shown(self, text: str) -> str:
        if not self._stop:
            return text
        self._held += text
        begins = self._begins()
        shown, self._held = self._held[:begins], self._held[begins:]
        return shown

    def _begins(self) -> int:
        """Return the index where a stop string, or a prefix of one at the end, begins."""
        held = self._held
        found = [(at + len(one), at) for one in self._stop if (at := held.find(one)) >= 0]
        if found:
            self.stopped = True
            return min(found)[1]
        longest = max(map(len, self._stop)) - 1
        first = max(0, len(held) - longest)
        places = range(first, len(held))
        return next((at for at in places if self._may_become(held[at:])), len(held))

    def _may_become(self, text: str) -> bool:
        return any(one.startswith(text) for one in self._stop)


def checked_stop(stop: Any) -> tuple[str, ...]:
    """Check stop strings and return them as a tuple.

    Errors: a TypeError or ValueError if they are not a sequence of non-empty texts.
    """
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise TypeError(f"stop must be a list of strings, got {stop!r}. Put the text into a list.")
    for one in stop:
        if not isinstance(one, str):
            raise TypeError(f"stop must be a list of strings, got {type(one).__name__} {one!r}.")
        if not one:
            raise ValueError("stop must be a list of non-empty strings, got ''.")
    return tuple(stop)


Loaded = tuple[LanguageModel, Tokenizer, WriteSettings | None]


def loaded(path: str | Path) -> Loaded:
    """Load a language model from a run folder, a Hugging Face folder or a llama2.c file.

    Errors: an OSError or ValueError if it is none of these, incomplete, or no language model.
    """
    place = Path(path)
    file = llama2c_file(place)
    if file is not None:
        return _pretrained(file, llama2c_tokenizer(_tokenizer_next_to(file)))
    if is_of_huggingface(place):
        return _pretrained(place, None)
    return WRITE.load(RunFolder(place).path)


def _pretrained(place: Path, tokenizer: Tokenizer | None) -> Loaded:
    model: Any = load_pretrained(place)
    name = shown(place)
    if not isinstance(model, LanguageModel):
        raise ValueError(  # noqa: TRY004 - the folder's content is wrong, not an argument's type
            f"{name} must be a model that continues a text, such as GPT-2 or Llama, got one with "
            "an encoder."
        )
    of_llama2c = tokenizer is not None
    tokenizer = huggingface_tokenizer(place) if tokenizer is None else tokenizer
    own, tokens = model.config.vocab_size, tokenizer.vocab_size
    # Vocabularies of Hugging Face models are often padded to a round number.
    if tokens > own or (of_llama2c and tokens < own):
        raise ValueError(
            f"the tokenizer of {name} has {tokens} tokens, and the model {own}. Use the tokenizer "
            "that it was trained with."
        )
    return model, tokenizer, None


def _tokenizer_next_to(file: Path) -> Path:
    """Return the tokenizer file beside a llama2.c model file."""
    found = [one for one in sorted(file.parent.glob("tok*.bin")) if one != file]
    if len(found) == 1:
        return found[0]
    there = ", ".join(one.name for one in found) or "none"
    raise FileNotFoundError(
        f"{shown(file)} must have one tokenizer next to it, such as tok512.bin, got {there}. Put "
        "the one there that it was trained with."
    )


# Tokens of a generation batch, including prompts.
_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Writer:
    """A language model for text generation.

    Attributes:
        model: The language model.
        tokenizer: Its tokenizer.
        settings: The settings of its training run; None for published models.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    settings: WriteSettings | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a language model from a run folder, a Hugging Face folder or a llama2.c file.

        A Hugging Face folder has config.json, safetensors, and tokenizer.json or GPT-2's
        vocab.json and merges.txt. A llama2.c file, such as stories260K.bin, has its tokenizer next
        to it, such as tok512.bin. Nothing is unpickled, and no remote code is run.

        Errors: an OSError if it is none of these, or incomplete; a ValueError if it is of
        another task, no language model, or its parts do not fit each other.
        """
        return cls(*loaded(path))

    def write(
        self, prompt: str, strategy: Strategy, *, max_tokens: int, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        r"""Generate the continuation of a prompt, streamed in pieces.

        Beam search returns all of it at the end, truncated at a stop string.

        Args:
            prompt: The prompt.
            strategy: Decoding strategy.
            max_tokens: Maximum number of new tokens.
            stop: Stop strings, such as "\n\n"; generation ends at the first, which is not included.

        Errors: a ValueError if the prompt contains unknown tokens.
        """
        encoded = [self._encoded(prompt)]
        pieces = self._pieces(encoded, strategy, (0,), max_tokens, checked_stop(stop))
        return (piece for _, piece in pieces)

    def write_all(
        self,
        prompts: Sequence[str],
        strategy: Strategy,
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """Generate the continuations of several prompts in batches.

        A result does not depend on the other prompts, except that sampling depends on a prompt's
        position, so that equal prompts have different continuations.

        Args:
            prompts: Prompts of any lengths.
            strategy, max_tokens, stop: As for `write`.

        Errors: as of `write`; a TypeError for one prompt alone.
        """
        if isinstance(prompts, str):
            raise TypeError("prompts must be several texts, got one. Put it into a list.")
        encoded = [self._encoded(prompt) for prompt in prompts]
        stop = checked_stop(stop)
        texts = [""] * len(encoded)
        for places in self._batches(encoded, whole_number(max_tokens, "max_tokens", least=1)):
            some = [encoded[place] for place in places]
            for row, piece in self._pieces(some, strategy, places, max_tokens, stop):
                texts[places[row]] += piece
        return texts

    def _batches(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """Group prompts into batches; those that exceed the context are batches of their own.

        Beyond the context the window slides, by an offset that would differ within a batch.
        """
        lengths = [len(self._inputs(prompt)) + max_tokens for prompt in prompts]
        most = self.model.config.context_length
        within = [place for place, length in enumerate(lengths) if length <= most]
        batches = in_order([lengths[place] for place in within], _AT_ONCE)
        alone = [[place] for place, length in enumerate(lengths) if length > most]
        return [[within[at] for at in batch] for batch in batches] + alone

    def _pieces(
        self,
        prompts: Sequence[Sequence[int]],
        strategy: Strategy,
        rows: Sequence[int],
        max_tokens: int,
        stop: Sequence[str],
    ) -> Iterator[tuple[int, str]]:
        """Generate continuations in pieces, each with the index of its prompt."""
        inputs = [self._inputs(prompt) for prompt in prompts]
        device = next(self.model.parameters()).device
        longest = max(map(len, inputs))
        padding = torch.tensor([longest - len(row) for row in inputs], device=device)
        tokens = _generated(
            LanguageModelSteps(self.model, padding if len(inputs) > 1 else None),
            pad(inputs, self.tokenizer.pad_id, side="left").to(device),
            strategy,
            max_tokens=max_tokens,
            end=self.tokenizer.special.ends,
            never=self._suppressed_tokens(),
            rows=rows,
            padding=padding,
        )
        texts = {row: StoppedText(self.tokenizer, x, stop) for row, x in enumerate(prompts)}
        return _decoded(texts, tokens)

    def _inputs(self, prompt: Sequence[int]) -> list[int]:
        return [*self.tokenizer.special.before, *prompt] or [self._first_token()]

    def _suppressed_tokens(self) -> list[int]:
        """Return the tokens that are never generated."""
        tokenizer = self.tokenizer
        if self.settings is None:
            # Published models generate any token of the tokenizer.
            return list(range(tokenizer.vocab_size, self.model.config.vocab_size))
        unwritten = {tokenizer.pad_id, tokenizer.start_id, tokenizer.unknown_id}
        return sorted(unwritten - {tokenizer.end_id})

    def _encoded(self, prompt: str) -> list[int]:
        tokens, unknown = self.tokenizer.encode(prompt), self.tokenizer.unknown_id
        if unknown == self.tokenizer.end_id or unknown not in tokens:
            return tokens
        parts = [*dict.fromkeys(prompt), *prompt.split()]
        wrong = next((part for part in parts if unknown in self.tokenizer.encode(part)), prompt)
        lacking = "the texts of this run never had" if self.settings else "no token stands for"
        raise ValueError(f"the prompt has {wrong!r}, which {lacking}. Omit it.")

    def _first_token(self) -> int:
        """Return the token that stands for an empty prompt: an end token or a line break."""
        if self.settings is None:
            return self.tokenizer.start_id
        line = self.tokenizer.encode("\n")
        known = len(line) == 1 and line[0] != self.tokenizer.unknown_id
        several = (self.settings.data.texts or 1) > 1
        return self.tokenizer.end_id if several or not known else line[0]


def _generated(
    steps: LanguageModelSteps, prompt: torch.Tensor, strategy: Strategy, **options: Any
) -> Iterator[tuple[int, int]]:
    """Generate tokens with their rows; a beam returns all of them at the end."""
    if isinstance(strategy, Beam):
        rows = generate(steps, prompt, strategy, **options).tokens
        return ((row, token) for row, tokens in enumerate(rows) for token in tokens)
    return ((row, token) for row, token, _ in stream(steps, prompt, strategy, **options))


def _decoded(
    texts: dict[int, StoppedText], tokens: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, str]]:
    """Decode the tokens of each row until all have stopped."""
    for row, token in tokens:
        if row not in texts:
            continue
        yield row, texts[row].add(token)
        if texts[row].stopped:
            del texts[row]
            if not texts:
                return
    for row, text in texts.items():
        yield row, text.rest()


def evaluate(
    writer: Writer,
    files: Sequence[str] = (),
    field: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Compute loss, perplexity and bits per character on files, or on the held-out text.

    The text is divided into windows of the context length, without overlap. The loss is in nats per
    token.

    Args:
        writer: The model.
        files: Text files; none: the texts that the run held out.
        field: The column of tables that holds the text; by default that of the run.
        progress: Called with the number of batches done and in all.

    Errors: an OSError or ValueError if a file cannot be read or has less than two tokens, the
    held-out text has changed, or there is neither a file nor a run.
    """
    data = None if writer.settings is None else writer.settings.data
    if files:
        texts = tuple(read_texts(files, field or (None if data is None else data.field)))
    elif data is None:
        raise ValueError("only the runs of glasshead hold out a text. Name a FILE to evaluate on.")
    else:
        texts = WRITE.held_out(data)
    tokens = tokenized(writer.tokenizer, texts)
    if len(tokens.ids) < 2:
        raise ValueError(f"a text must have at least two tokens, got {len(tokens.ids)}.")
    length = writer.model.config.context_length
    windows = HeldOutWindows(tokens.ids, length)
    task = LanguageModelObjective(writer.model, tokens.characters)
    batches, sums = windows.batches(), dict[str, float]()
    with torch.inference_mode():
        for done, batch in enumerate(batches, 1):
            for name, value in task.validate(windows.collate(batch)).items():
                sums[name] = sums.get(name, 0.0) + float(value)
            if progress is not None:
                progress(done, len(batches))
    return {**task.metrics(sums), "tokens": sums["targets"], "characters": float(task.characters)}
