"""Find what the attention heads of a model do: on repeated random tokens, or on texts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.message import Message
from glasshead.recipe.validation import whole_number
from glasshead.tasks.readers.distributed import default_device
from glasshead.tasks.readers.open_reader import reader_of_model
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.readers.text_stream import ChunkCounts, Length, TextStream, as_argument
from glasshead.tasks.readers.texts import FileName, Texts, load_texts
from glasshead.watching import Seen, watch
from glasshead.watching.analytics import HeadRoles, repeated_random_tokens
from glasshead.watching.analytics.role_scores import thresholds_of
from glasshead.watching.analytics.roles import NEAR, Masses, masses_of_layers, roles_of

# As Olsson et al. 2022 have it.
_PERIOD, _TIMES = 25, 4
_ROWS = 8


@dataclass(frozen=True, eq=False)
class Repeated:
    """Random tokens, repeated.

    Attributes:
        tokens: Input of the model.
        period: Number of random tokens before the first repetition.
        times: Number of periods in a row.
    """

    tokens: Int[Tensor, "rows length"]
    period: int
    times: int

    @property
    def description(self) -> str:
        """The texts, in words."""
        rows, length = self.tokens.shape
        return Message(
            "{rows} texts of {length} tokens: {period} at random, none of them special or twice, "
            "and the same again, {times} times in all.",
            rows=rows,
            length=length,
            period=self.period,
            times=self.times,
        )


def repeated(
    reader: Reader, asked: int | None, seed: int, spell: Callable[..., str] = as_argument
) -> Repeated:
    """Draw rows of repeated random tokens, within the vocabulary and context of the model.

    Args:
        reader: The model.
        asked: Number of random tokens before the first repetition; None: 25, or as many as fit.
        seed: Random seed.
        spell: Spells an option, for errors.

    Errors: a ValueError if there is no room for two periods, or too few tokens to draw from.
    """
    before, after = reader.around
    # Where a text begins with nothing of its own, another text has just ended.
    before = before or reader.ending[:1]
    room = None if reader.context is None else reader.context - len(before) - len(after)
    known = len(reader.ordinary)
    most = known if room is None else min(known, room // 2)
    if most < 2:
        reads: str = ""
        if room is not None:
            reads = Message(" and reads {context} at once", context=reader.context)
        raise ValueError(
            Message(
                "the test needs a model that knows and reads at least two tokens, but {name} "
                "knows {known}{reads}. Name another model.",
                name=reader.name,
                known=known,
                reads=reads,
            )
        )
    if asked is not None and asked > most:
        raise ValueError(
            Message(
                "{option} must be at most {most}, as {name} knows {known:,} tokens and must read "
                "two periods at once, got {asked}.",
                option=spell("period"),
                most=most,
                asked=asked,
                name=reader.name,
                known=known,
            )
        )
    period = asked or min(_PERIOD, most)
    times = _TIMES if room is None else min(_TIMES, room // period)
    places = repeated_random_tokens(known, period, _ROWS, seed, times=times)
    drawn = torch.tensor(reader.ordinary)[places]
    first, last = (
        torch.tensor(side, dtype=torch.long).expand(_ROWS, -1) for side in (before, after)
    )
    return Repeated(torch.cat([first, drawn, last], 1), period, times)


_LEAST = 3


class ChunksForRoles(NamedTuple):
    """The chunks of some texts, in memory.

    Attributes:
        counts: Their numbers.
        groups: Those of full length, and the last.
    """

    counts: ChunkCounts
    groups: tuple[Int[Tensor, "chunks length"], ...]


def chunks_for_roles(
    reader: Reader,
    texts: Texts,
    length: Length = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> ChunksForRoles:
    """Cut texts into chunks that fit into the context of the model.

    Errors: those of `TextStream`, and a ValueError if a query has no choice.
    """
    stream = TextStream(reader, texts, length)
    counts = stream.new_counts()
    batches = [*stream.batches(counts, progress)]
    stream.check(counts)
    if counts.length < _LEAST:
        raise ValueError(
            Message(
                "a text must have at least {least} tokens to find roles, got {length} in {name}. "
                "Name a longer text.",
                least=_LEAST,
                name=texts.name,
                length=counts.length,
            )
        )
    lengths = dict.fromkeys(batch.shape[1] for batch in batches)
    of_length = ([batch for batch in batches if batch.shape[1] == one] for one in lengths)
    return ChunksForRoles(counts, tuple(map(torch.cat, of_length)))


# Queries and keys of every layer are kept until their roles are found.
_TOKENS_AT_ONCE = 1024
_BUDGET = 2**34


class RolesOnTexts(NamedTuple):
    """The roles of the heads on some texts.

    Attributes:
        roles: Scores and roles.
        sees_later: Whether a query sees keys after it.
    """

    roles: HeadRoles
    sees_later: bool


def score_roles(
    reader: Reader,
    groups: Sequence[Int[Tensor, "texts length"]],
    *,
    near: int = NEAR,
    thresholds: Mapping[str, float] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> RolesOnTexts:
    """Score the roles of all heads on texts, in groups of one length.

    Args:
        reader: The model.
        groups: The tokens.
        near, thresholds: As of `head_roles`.
        progress: Called with the number of batches done, and the total.

    Errors: an `UnseenError` if an attention cannot be seen, a ValueError if numbers overflow.
    """
    required = thresholds_of(thresholds)
    batches = [
        batch
        for group in groups
        for batch in group.split(max(1, _TOKENS_AT_ONCE // group.shape[1]))
    ]
    masses: dict[str, Masses] = {}
    sees_later = False
    for done, batch in enumerate(batches):
        if progress is not None:
            progress(done, len(batches))
        with torch.inference_mode():
            tokens = batch.to(reader.device)
            with watch(reader.model, keep="weights", budget=_BUDGET) as seen:
                reader.read(tokens)
            sees_later = sees_later or _sees_later(seen)
            for name, one in masses_of_layers(seen, tokens, near).items():
                masses[name] = masses[name] + one if name in masses else one
    if any(one.sums.isnan().any() for one in masses.values()):
        raise ValueError(
            Message("the scores overflow to infinity. Train the model again, or name another.")
        )
    return RolesOnTexts(roles_of(masses, required), sees_later)


def _sees_later(seen: Seen) -> bool:
    """Return whether the first query of a text puts weight on any key but the first."""
    weights = next(iter(seen.values())).weights
    return bool(weights[..., 0, 1:].any())


def find_roles(
    model: nn.Module | FileName,
    texts: FileName | Iterable[FileName] | None = None,
    *,
    tokenizer: Any = None,
    length: Length = None,
    period: int | None = None,
    seed: int = 0,
    near: int = NEAR,
    thresholds: Mapping[str, float] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> HeadRoles:
    """Find the role of every head of a model: on texts, or on repeated random tokens.

    It scores the heads as `head_roles` does, summed over all chunks of the texts. Without texts the
    model reads eight rows of random tokens, none of them special, that are repeated up to four
    times: there a head can only find the next token by looking it up, as an induction head does.

    Args:
        model, tokenizer: As of `observe_texts`.
        texts: As of `observe_texts`; None: repeated random tokens.
        length: Tokens per chunk of the texts, or "whole"; None: the context of the model, at most
            1024. It takes texts.
        period: Number of random tokens that are repeated, without texts; None: 25, or as many as
            fit twice into the context.
        seed: Random seed of these tokens.
        near, thresholds: As of `head_roles`.
        progress: Called with the number of batches done, and the total.

    Errors: a TypeError or ValueError if an argument is invalid, the texts have fewer than three
    tokens, or two periods do not fit into the context; an OSError if a file cannot be read; and
    those of `watch`.

    Source: Olsson et al. 2022 (In-context learning and induction heads), for the random tokens.

    >>> import glasshead as gh
    >>> from glasshead.tasks.tokenizers import words
    >>> tokenizer = words(["the cat sat on the mat"], vocab_size=11)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, context_length=8)
    >>> model = gh.LanguageModel(config).eval()
    >>> roles = gh.find_roles(model, tokenizer=tokenizer, period=3)
    >>> roles.names[0], roles.scores["induction"].shape
    ('blocks.0.attention', torch.Size([4, 3]))
    """
    near, required = whole_number(near, "near"), thresholds_of(thresholds)
    if texts is None and length is not None:
        raise ValueError(
            "length needs texts to cut into chunks, got none. Pass texts, or use period."
        )
    if texts is not None and period is not None:
        raise ValueError("period needs random tokens, got texts. Omit one of them.")
    reader = reader_of_model(model, tokenizer, default_device())
    if texts is None:
        if period is not None:
            period = whole_number(period, "period", least=2)
        groups = (repeated(reader, period, whole_number(seed, "seed")).tokens,)
    else:
        groups = chunks_for_roles(reader, load_texts(texts, reader.field), length).groups
    return score_roles(reader, groups, near=near, thresholds=required, progress=progress).roles
