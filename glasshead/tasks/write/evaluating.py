"""Evaluating: how well a language model tells texts that it was not trained on."""

from collections.abc import Callable, Sequence

import torch

from glasshead.tasks.reading import read_texts
from glasshead.tasks.write.corpus import tokenized
from glasshead.tasks.write.job import WRITE
from glasshead.tasks.write.next_token import NextToken
from glasshead.tasks.write.windows import HeldOutWindows
from glasshead.tasks.write.writer import Writer


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
    task = NextToken(writer.model, tokens.characters)
    batches, sums = windows.batches(), {"loss": 0.0, "targets": 0.0}
    with torch.inference_mode():
        for done, batch in enumerate(batches, 1):
            for name, value in task.validate(windows.collate(batch)).items():
                sums[name] += float(value)
            if progress is not None:
                progress(done, len(batches))
    return {**task.metrics(sums), "tokens": sums["targets"], "characters": float(task.characters)}
