"""A language model with its tokenizer: text streamed up to a stop, and its perplexity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from glasshead.drawing.printable import printable
from glasshead.models import LanguageModel
from glasshead.models.decoding import Beam, Strategy, generate, stream
from glasshead.models.language_model import LanguageModelSteps
from glasshead.models.pretrained import is_llama2c, load_pretrained
from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.batches import in_order, pad
from glasshead.tasks.data.tables import read_texts
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import StreamDecoder, Tokenizer
from glasshead.tasks.write.data import HeldOutWindows, tokenized
from glasshead.tasks.write.train import WRITE, LanguageModelObjective, WriteSettings


class StoppedText:
    """The text of tokens as they come, up to the first stop string, no part of which is shown.

    Of several stop strings it is the one that is complete first, of those the longest: the same in
    whatever pieces the text comes. What may become one is held back until it cannot.

    Args:
        tokenizer: What makes text of tokens.
        before: Tokens that were shown already.
        stop: The stop strings; a part of one among the tokens shown already does not count.

    Attributes:
        stopped: Whether a stop string has come.

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
        """What is sure to be shown with this token."""
        return self._shown(self._stream.add(token))

    def rest(self) -> str:
        """What was held back, where no stop string became of it."""
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
        """Where a stop string begins, or what may become one."""
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
    """The stop strings, or an error where they are none."""
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise TypeError(f"stop takes several texts, and got {stop!r}: put one into a list.")
    for one in stop:
        if not isinstance(one, str):
            raise TypeError(f"stop takes texts, and got {type(one).__name__} {one!r}.")
        if not one:
            raise ValueError("stop takes texts of a character at least, and got ''.")
    return tuple(stop)


Loaded = tuple[LanguageModel, Tokenizer, WriteSettings | None]


def loaded(path: str | Path) -> Loaded:
    """The model of a run folder, of a folder of Hugging Face, or of a file of llama2.c.

    Errors: an OSError or ValueError where it is none of these, is not whole, or does not write.
    """
    place = Path(path)
    file = llama2c_file(place)
    if file is not None:
        return _pretrained(file, llama2c_tokenizer(_beside(file)))
    if is_of_huggingface(place):
        return _pretrained(place, None)
    return WRITE.load(RunFolder(place).path)


def _pretrained(place: Path, tokenizer: Tokenizer | None) -> Loaded:
    model: Any = load_pretrained(place)
    name = printable(str(place))
    if not isinstance(model, LanguageModel):
        raise ValueError(  # noqa: TRY004 - what the folder has is a value
            f"{name} has an encoder, which reads a text and does not go on with it: name a model "
            "such as GPT-2 or Llama."
        )
    tokenizer = huggingface_tokenizer(place) if tokenizer is None else tokenizer
    # A vocabulary is often filled up to a round number.
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {name} has {tokenizer.vocab_size} tokens, and the model "
            f"{model.config.vocab_size}: take the one that it was trained with."
        )
    return model, tokenizer, None


def llama2c_file(place: Path) -> Path | None:
    """The model of llama2.c that a file is, or that a folder holds; None where there is none.

    Errors: a ValueError where a folder holds several.
    """
    if place.exists() and not place.is_dir():
        return place if place.suffix == ".bin" else None
    if not place.is_dir() or (place / "config.json").exists():
        return None
    found = [file for file in sorted(place.glob("*.bin")) if is_llama2c(file)]
    if len(found) > 1:
        raise ValueError(
            f"{printable(str(place))} has several models, {found[0].name} and {found[1].name} "
            "among them: name one."
        )
    return found[0] if found else None


def _beside(file: Path) -> Path:
    """The tokenizer beside a file of llama2.c."""
    found = [one for one in sorted(file.parent.glob("tok*.bin")) if one != file]
    if len(found) == 1:
        return found[0]
    there = f"there are {', '.join(one.name for one in found)}" if found else "there is none"
    raise FileNotFoundError(
        f"{printable(str(file))} takes one tokenizer beside it, such as tok512.bin, and {there}: "
        "put the one there that it was trained with."
    )


# How many tokens are written at once, those of the prompts with them, where texts are short.
_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Writer:
    """A language model that writes.

    Attributes:
        model: What tells the next token.
        tokenizer: What makes tokens of a text, and text of tokens.
        settings: What it was trained on, and how; None where no run of ours tells it.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    settings: WriteSettings | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model of a run folder, of a folder of Hugging Face, or of a file of llama2.c.

        A folder of Hugging Face has config.json, safetensors, and tokenizer.json or GPT-2's
        vocab.json and merges.txt. Beside a file of llama2.c, such as stories260K.bin, lies its
        tokenizer, such as tok512.bin. Nothing is unpickled, and no code is run.

        Errors: an OSError where it is none of these, or not whole; a ValueError where it is another
        task's, does not write, or its parts do not fit each other.
        """
        return cls(*loaded(path))

    def write(
        self, prompt: str, strategy: Strategy, *, max_tokens: int, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        r"""The text that follows a prompt, in pieces as they come.

        A beam gives it whole at the end, and is cut at a stop string then.

        Args:
            prompt: How the text begins.
            strategy: How tokens are chosen.
            max_tokens: How many at most.
            stop: Texts before the first of which it ends, such as "\n\n"; nothing is computed after
                one has come, and no part of it is given.

        Errors: a ValueError where the prompt has something that the tokenizer does not know.
        """
        shown = [self._encoded(prompt)]
        pieces = self._pieces(shown, strategy, (0,), max_tokens, checked_stop(stop))
        return (piece for _, piece in pieces)

    def write_all(
        self,
        prompts: Sequence[str],
        strategy: Strategy,
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """The text that follows each prompt, which are written side by side.

        A prompt has the text that it has alone. Where tokens are drawn, the prompt's place among
        the others decides what is drawn for it, so that equal prompts have texts of their own.

        Args:
            prompts: How the texts begin, in any lengths.
            strategy, max_tokens, stop: As of `write`.

        Errors: as of `write`; a TypeError for one prompt alone.
        """
        if isinstance(prompts, str):
            raise TypeError("prompts takes several texts, and got one: put it into a list.")
        shown = [self._encoded(prompt) for prompt in prompts]
        stop = checked_stop(stop)
        texts = [""] * len(shown)
        for places in self._batches(shown, whole_number(max_tokens, "max_tokens", least=1)):
            some = [shown[place] for place in places]
            for row, piece in self._pieces(some, strategy, places, max_tokens, stop):
                texts[places[row]] += piece
        return texts

    def _batches(self, shown: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """The places of prompts that are written together, and of those that are alone.

        Beyond the model's context it is seen from some place on, which is another among others.
        """
        lengths = [len(self._fed(one)) + max_tokens for one in shown]
        most = self.model.config.context_length
        within = [place for place, length in enumerate(lengths) if length <= most]
        batches = in_order([lengths[place] for place in within], _AT_ONCE)
        alone = [[place] for place, length in enumerate(lengths) if length > most]
        return [[within[at] for at in batch] for batch in batches] + alone

    def _pieces(
        self,
        shown: Sequence[Sequence[int]],
        strategy: Strategy,
        rows: Sequence[int],
        max_tokens: int,
        stop: Sequence[str],
    ) -> Iterator[tuple[int, str]]:
        """The text that follows each prompt, in pieces, each with the place of the prompt."""
        fed = [self._fed(one) for one in shown]
        device = next(self.model.parameters()).device
        padding = torch.tensor([max(map(len, fed)) - len(one) for one in fed], device=device)
        tokens = _chosen(
            LanguageModelSteps(self.model, padding if len(fed) > 1 else None),
            pad(fed, self.tokenizer.pad_id, side="left").to(device),
            strategy,
            max_tokens=max_tokens,
            end=self.tokenizer.special.ends,
            never=self._never(),
            rows=rows,
            padding=padding,
        )
        texts = {row: StoppedText(self.tokenizer, one, stop) for row, one in enumerate(shown)}
        return _written(texts, tokens)

    def _fed(self, shown: Sequence[int]) -> list[int]:
        return [*self.tokenizer.special.before, *shown] or [self._before_a_text()]

    def _never(self) -> list[int]:
        """What is not to be written."""
        tokenizer = self.tokenizer
        if self.settings is None:
            # As others write: all that the tokenizer has.
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
        raise ValueError(f"the prompt has {wrong!r}, which {lacking}: leave it out.")

    def _before_a_text(self) -> int:
        """What a text is begun after: the end of another, or of a line."""
        if self.settings is None:
            return self.tokenizer.start_id
        line = self.tokenizer.encode("\n")
        known = len(line) == 1 and line[0] != self.tokenizer.unknown_id
        several = (self.settings.data.texts or 1) > 1
        return self.tokenizer.end_id if several or not known else line[0]


def _chosen(
    steps: LanguageModelSteps, prompt: torch.Tensor, strategy: Strategy, **asked: Any
) -> Iterator[tuple[int, int]]:
    """The tokens that follow, each with its row; those of a beam once all are there."""
    if isinstance(strategy, Beam):
        rows = generate(steps, prompt, strategy, **asked).tokens
        return ((row, token) for row, tokens in enumerate(rows) for token in tokens)
    return ((row, token) for row, token, _ in stream(steps, prompt, strategy, **asked))


def _written(
    texts: dict[int, StoppedText], tokens: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, str]]:
    """The text of the tokens of each row; no token is asked for once all have stopped."""
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
    """Loss in nats a token, perplexity, bits a character; over files, or over what was held out.

    The text is told in pieces of the model's context, each from its own beginning.

    Args:
        writer: The model.
        files: The texts; none: those that the run held out.
        field: The column of tables that holds the text; that of the run if not given.
        progress: Is told how many batches are done, and of how many.

    Errors: an OSError or ValueError where a file cannot be read, has less than two tokens, is not
    the one that the run held a part of out, or there is neither a file nor a run.
    """
    data = None if writer.settings is None else writer.settings.data
    if files:
        texts = tuple(read_texts(files, field or (None if data is None else data.field)))
    elif data is None:
        raise ValueError("a model of others has held out no text: name a FILE to evaluate on.")
    else:
        texts = WRITE.held_out(data)
    tokens = tokenized(writer.tokenizer, texts)
    if len(tokens.ids) < 2:
        raise ValueError(f"a text takes at least two tokens, and has {len(tokens.ids)}: give more.")
    length = writer.model.config.context_length
    windows = HeldOutWindows(tokens.ids, length)
    task = LanguageModelObjective(writer.model, tokens.characters)
    batches, sums = windows.batches(), {"loss": 0.0, "targets": 0.0}
    with torch.inference_mode():
        for done, batch in enumerate(batches, 1):
            for name, value in task.validate(windows.collate(batch)).items():
                sums[name] += float(value)
            if progress is not None:
                progress(done, len(batches))
    return {**task.metrics(sums), "tokens": sums["targets"], "characters": float(task.characters)}
