"""Running a model over a text while watching the attention of each layer."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

import glasshead as gh
from glasshead.statistics import Statistic
from glasshead.studio.background_jobs import Refusal, TooMuch, Work
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, StudioSubject
from glasshead.watching import UnseenError, Watched

if TYPE_CHECKING:
    from glasshead.tasks.readers.reader import Reader


# Forward hooks would turn off the fused path of these modules.
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
# Separates a module's name from the number of a further call of it.
_CALL_MARK = "#"


def run(
    reader: "Reader",
    tokens: Int[Tensor, " length"],
    statistics: Sequence[Statistic],
    *,
    budget: int,
    like: gh.Seen | None = None,
    work: Work | None = None,
) -> gh.Seen:
    """Run a model over tokens and record the attention of each layer, one call per entry.

    Args:
        reader: The model and its tokenizer.
        tokens: Token ids.
        statistics: Statistics of each layer, in addition to its weights.
        budget: Bytes that queries, keys and masks may take.
        like: The record of a shorter text, whose layers are used to report progress.
        work: Receives progress before each layer, and is checked for cancellation there.

    Errors: `TooMuch` beyond the budget; a ValueError if the attention cannot be seen;
    `Cancelled`.
    """
    progress = None if like is None or work is None else _LayerProgress(work, len(like))

    def forward() -> None:
        with _before_each(reader.model, like or (), progress):
            reader.read(tokens[None])

    return observed(reader, forward, len(tokens), statistics, budget, work)


def observed(
    reader: "Reader",
    forward: Callable[[], object],
    length: int,
    statistics: Sequence[Statistic],
    budget: int,
    work: Work | None = None,
) -> gh.Seen:
    """Record the attention of each layer while a function runs the model, one call per entry.

    Args:
        reader: The model.
        forward: Runs the model over a text, once.
        length: Tokens of the text.
        statistics: Statistics of each layer, in addition to its weights.
        budget: Bytes that queries, keys and masks may take.
        work: Checked for cancellation before the model runs.

    Errors: as of `run`.
    """
    if work is not None:
        work.check()
    try:
        with (
            torch.inference_mode(),
            gh.watch(reader.model, list(statistics), keep="weights", budget=budget) as seen,
        ):
            forward()
            if seen.missing:
                raise TooMuch(
                    "queries, keys and masks of this text would take more memory than is allowed. "
                    "Choose a shorter text."
                )
    except UnseenError as error:
        raise Refusal.of(error) from error
    return _one_call_each(seen, length)


def held_by(seen: gh.Seen) -> int:
    """Return the bytes of queries, keys and logsumexp; masks, shared by layers, do not count."""
    problems = [layer.weights._problem for layer in seen.values()]  # type: ignore[union-attr] - one call each  # noqa: SLF001
    return sum(
        problem.query.numel() * problem.query.itemsize
        + problem.key.numel() * problem.key.itemsize
        + problem.query[..., 0].numel() * problem.dtype.itemsize
        for problem in problems
    )


class _LayerProgress:
    """A forward pre-hook that reports each layer before it runs.

    Args:
        work: Receives the progress.
        count: Number of layers.
    """

    def __init__(self, work: Work, count: int) -> None:
        self._work, self._count, self._done = work, count, 0
        self._thread = threading.get_ident()

    def __call__(self, *hook_arguments: object) -> None:
        # Another thread may be running the same model on another text.
        if threading.get_ident() == self._thread:
            self._work.report("heads.reading", self._done, self._count)
            self._done += 1


@contextmanager
def _before_each(
    model: nn.Module, layers: Iterable[str], progress: _LayerProgress | None
) -> Iterator[None]:
    """Register a pre-hook on each of these attention modules while the block runs."""
    names = {name.split(_CALL_MARK)[0] for name in layers} if progress else ()
    modules = {model.get_submodule(name) for name in names}
    hooks = [
        module.register_forward_pre_hook(progress)
        for module in modules
        if progress and not isinstance(module, _FUSED)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _one_call_each(seen: gh.Seen, length: int) -> gh.Seen:
    """Return each call that is self-attention over the text as a layer of its own.

    A module that runs several times, as if layers share weights, is a layer per run; its runs are
    named as by `gh.Seen.layers`.

    Errors: a `Refusal` if none of them is a self-attention over the text.
    """
    named = (
        (f"{name}{_CALL_MARK}{number}" if len(watched) > 1 else name, call)
        for name, watched in seen.items()
        for number, call in enumerate(watched)
        if (call.queries, call.keys) == (length, length)
    )
    layers = {name: Watched(name, [call]) for name, call in named}
    if not layers:
        raise Refusal("the model has no self-attention over a text. Name another.")
    return gh.Seen(layers)


# Tokens of the trial run from which the memory of the whole text is estimated.
_TRIAL = 3


def read(
    studio: Studio,
    text: str,
    work: Work,
    most_tokens: int,
    statistics: Sequence[Statistic] = (),
    model: int = 0,
) -> ModelPass:
    """Run a model of the studio over a text; results are cached and shared by concurrent requests.

    Args:
        studio: The studio that holds the model, the texts and the cache.
        text: The name of a text that was sent.
        work: Receives progress; once it is cancelled, reading ends at the next layer.
        most_tokens: Maximum number of tokens, in addition to the model's context length: the
            first ones, or those that the model's own truncation selects.
        statistics: Statistics of each layer.
        model: Number of the model, as of `Studio.model`.

    Errors: a `Refusal` or a subclass if there is no such text or model, it has no token, or
    takes more memory than is allowed; a ValueError if the attention cannot be seen; `Cancelled`.
    """
    subject = studio.model(model)
    key = _key(subject, text, most_tokens, statistics)
    return studio.readings.get(
        key,
        lambda: _read(studio, subject, text, work, most_tokens, statistics),
        work.follow,
        work,
    )


def is_read(
    studio: Studio,
    text: str,
    most_tokens: int,
    statistics: Sequence[Statistic] = (),
    model: int = 0,
) -> bool:
    """Return whether the cache holds this reading."""
    return _key(studio.model(model), text, most_tokens, statistics) in studio.readings


def _key(
    subject: StudioSubject, text: str, most_tokens: int, statistics: Sequence[Statistic]
) -> tuple[Any, ...]:
    """Return the cache key of a reading, which changes when the model's files change."""
    return subject, subject.version, text, most_tokens, tuple(statistics)


def _read(
    studio: Studio,
    subject: StudioSubject,
    text: str,
    work: Work,
    most_tokens: int,
    statistics: Sequence[Statistic],
) -> ModelPass:
    content = studio.texts[text]
    work.report("heads.opening", 0, 1)
    reader = subject.reader()
    work.report("heads.encoding", 0, 1)
    numbers, of = tokens_of(reader, content, most_tokens)
    # Each id is decoded once.
    written = {number: reader.token(number) for number in set(numbers)}
    tokens, words = torch.tensor(numbers), tuple(written[number] for number in numbers)
    work.report("heads.reading", 0, 1)
    trial = run(reader, tokens[:_TRIAL], (), budget=studio.limits.memory)
    size = held_by(trial) * len(tokens) // len(tokens[:_TRIAL])
    with studio.readings.reserved(size):
        seen = run(reader, tokens, statistics, budget=studio.limits.memory, like=trial, work=work)
    return ModelPass(tokens, words, of, seen, held_by(seen))


def tokens_of(reader: "Reader", text: str, most_tokens: int) -> tuple[list[int], int]:
    """Tokenize and truncate a text; return the ids to read and how many the text has in all.

    Errors: a `Refusal` if it has none.
    """
    # Tokenizers refuse lone surrogates.
    (own,) = reader.encode([text.encode(errors="surrogatepass").decode(errors="replace")])
    before, after = reader.around
    around = len(before) + len(after)
    room = min(most_tokens, reader.context or most_tokens) - around
    if not own or room < 1:
        raise Refusal("the model finds no token in this text that it reads. Choose another text.")
    kept = own if len(own) <= room or reader.shorten is None else reader.shorten(own)
    return [*before, *kept[:room], *after], len(own) + around
