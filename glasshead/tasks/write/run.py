"""Run: a trained language model with its tokenizer, as a run folder holds it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from glasshead.models import LanguageModel, LanguageModelConfig
from glasshead.models.decoding import Beam, Strategy, generate, stream
from glasshead.models.saving import read_weights
from glasshead.models.stepping import LanguageModelSteps
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.tokenizing import StreamDecoder, Tokenizer
from glasshead.tasks.write.settings import TASK


@dataclass(frozen=True, eq=False)
class Writer:
    """A language model that writes.

    Attributes:
        model: What tells the next token.
        tokenizer: What makes tokens of a text, and text of tokens.
        config: All that the run folder says of itself.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: dict[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a run folder.

        Errors: an OSError where the folder is none, or not whole; a ValueError where it is another
        task's, or its parts do not fit each other.
        """
        run = RunFolder(folder)
        config = run.read_config()
        if config.get("task") != TASK:
            raise ValueError(
                f"{run.path} takes a run of the task {TASK!r}, and has one of "
                f"{config.get('task')!r}: name another."
            )
        try:
            model_config = LanguageModelConfig.from_json(config.get("model"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{run.config}: {error}") from error
        weights = run.check_weights()
        tokenizer = Tokenizer.load(run.tokenizer)
        if tokenizer.vocab_size != model_config.vocab_size:
            raise ValueError(
                f"{run.tokenizer} has {tokenizer.vocab_size} tokens, and the model in {run.config} "
                f"{model_config.vocab_size}: take the tokenizer that it was trained with."
            )
        model = LanguageModel(model_config)
        read_weights(model, weights)
        return cls(model.eval(), tokenizer, config)

    def write(self, prompt: str, strategy: Strategy, *, max_tokens: int) -> Iterator[str]:
        """The text that follows a prompt, in pieces as they come.

        A beam gives it whole at the end.

        Errors: a ValueError where nothing of the prompt is in the vocabulary.
        """
        tokens = torch.tensor([self._tokens(prompt)])
        steps, end = LanguageModelSteps(self.model), self.tokenizer.end_id
        never = sorted(
            {self.tokenizer.pad_id, self.tokenizer.start_id, self.tokenizer.unknown_id} - {end}
        )
        asked = {"max_tokens": max_tokens, "end": end, "never": never}
        if isinstance(strategy, Beam):
            yield self.tokenizer.decode(generate(steps, tokens, strategy, **asked).tokens[0])
            return
        text = StreamDecoder(self.tokenizer)
        for chosen in stream(steps, tokens, strategy, **asked):
            yield text.add(chosen.token)
        yield text.rest()

    def _tokens(self, prompt: str) -> list[int]:
        tokens = self.tokenizer.encode(prompt)
        unknown = self.tokenizer.unknown_id
        if unknown != self.tokenizer.end_id and unknown in tokens:
            wrong = next(letter for letter in prompt if unknown in self.tokenizer.encode(letter))
            raise ValueError(
                f"the prompt has {wrong!r}, which the texts of this run never had: leave it out."
            )
        return tokens or self.tokenizer.encode("\n") or [self.tokenizer.end_id]
