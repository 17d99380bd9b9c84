"""Writer: a language model with its tokenizer, of a run or of others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from glasshead.models import LanguageModel
from glasshead.models.decoding import Beam, Strategy, generate, stream
from glasshead.models.fast_decode import LanguageModelSteps
from glasshead.recipe.validation import whole_number
from glasshead.tasks.batching import in_order, pad
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.write.loading import loaded
from glasshead.tasks.write.settings import WriteSettings
from glasshead.tasks.write.stopping import StoppedText, checked_stop

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
