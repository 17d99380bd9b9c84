"""Writer: a trained language model with its tokenizer, as a run folder holds it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from glasshead.models import LanguageModel
from glasshead.models.decoding import Beam, Strategy, generate, stream
from glasshead.models.stepping import LanguageModelSteps
from glasshead.tasks.tokenizing import StreamDecoder, Tokenizer
from glasshead.tasks.write.job import WRITE
from glasshead.tasks.write.settings import WriteSettings


@dataclass(frozen=True, eq=False)
class Writer:
    """A language model that writes.

    Attributes:
        model: What tells the next token.
        tokenizer: What makes tokens of a text, and text of tokens.
        settings: What it was trained on, and how.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    settings: WriteSettings

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a run folder.

        Errors: an OSError where the folder is none, or not whole; a ValueError where it is another
        task's, or its parts do not fit each other.
        """
        return cls(*WRITE.load(folder))

    def write(self, prompt: str, strategy: Strategy, *, max_tokens: int) -> Iterator[str]:
        """The text that follows a prompt, in pieces as they come.

        A beam gives it whole at the end.

        Errors: a ValueError where the prompt has something that no text of the run had.
        """
        shown = self.tokenizer.encode(prompt)
        self._check_known(prompt, shown)
        fed = torch.tensor([shown or [self._before_a_text()]])
        end = self.tokenizer.end_id
        unwritten = {
            self.tokenizer.pad_id,
            self.tokenizer.start_id,
            self.tokenizer.unknown_id,
        }
        asked: dict[str, Any] = {
            "max_tokens": max_tokens,
            "end": end,
            "never": sorted(unwritten - {end}),
        }
        steps = LanguageModelSteps(self.model)
        if isinstance(strategy, Beam):
            tokens: Iterator[int] = iter(generate(steps, fed, strategy, **asked).tokens[0])
        else:
            tokens = (chosen.token for chosen in stream(steps, fed, strategy, **asked))
        return self._text(shown, tokens)

    def _text(self, shown: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
        text = StreamDecoder(self.tokenizer, shown)
        for token in tokens:
            yield text.add(token)
        yield text.rest()

    def _check_known(self, prompt: str, tokens: Sequence[int]) -> None:
        unknown = self.tokenizer.unknown_id
        if unknown == self.tokenizer.end_id or unknown not in tokens:
            return
        parts = [*dict.fromkeys(prompt), *prompt.split()]
        wrong = next((part for part in parts if unknown in self.tokenizer.encode(part)), prompt)
        raise ValueError(
            f"the prompt has {wrong!r}, which the texts of this run never had: leave it out."
        )

    def _before_a_text(self) -> int:
        """What a text is begun after: the end of another, or of a line."""
        line = self.tokenizer.encode("\n")
        known = len(line) == 1 and line[0] != self.tokenizer.unknown_id
        several = (self.settings.data.texts or 1) > 1
        return self.tokenizer.end_id if several or not known else line[0]
