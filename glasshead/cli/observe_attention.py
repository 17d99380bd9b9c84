"""Observe one attention: inputs, statistics and report."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.attention import Observation, Plan
from glasshead.cli.inputs.files import shown, titled
from glasshead.cli.inputs.sentences import sentence_of
from glasshead.cli.inputs.settings import CommandSettings
from glasshead.cli.inputs.tensors import is_tensors_file, read_attention
from glasshead.cli.observe_tables import (
    MAP,
    WeightsMap,
    check_place,
    drawn_map,
    histogram_table,
    pooled_map,
    receiving_table,
)
from glasshead.cli.statistic_options import StatisticOption, default_statistics
from glasshead.drawing import Block, Document, Note, Paragraph, Table, number
from glasshead.drawing.printable import visible
from glasshead.explanation.choices import quoted
from glasshead.explanation.embeddings import GENERATED_SEED
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.message import Message, _
from glasshead.recipe.mask_text import parse_mask
from glasshead.statistics import DistanceHistogram, Received, Statistic, TopK

if TYPE_CHECKING:
    from glasshead import Mask


_NOTES = {
    VectorSource.TEXTS: Message(
        "The vectors are the ones of the worked example, as printed in the tutorials."
    ),
    VectorSource.GENERATED: Message(
        "The embeddings are random (seed {seed}) and have no meaning: what the words attend "
        "to here says nothing about the words. The computation is real.",
        seed=GENERATED_SEED,
    ),
}


@dataclass(frozen=True, eq=False)
class ObservedInputs:
    """Inputs of the observed attention.

    Attributes:
        title: Title of the report.
        query, key, value: `[batch, heads, length, dim]`.
        tokens: Names of the queries and keys, if any.
        note: Note on the origin of the numbers.
    """

    title: str
    query: Float[Tensor, "batch heads queries dim"]
    key: Float[Tensor, "batch kv_heads keys dim"]
    value: Float[Tensor, "batch kv_heads keys value_dim"]
    tokens: tuple[str, ...] | None = None
    note: str | None = None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.query.shape[1]


def subject_of(text: str | None, vectors: Path | None) -> ObservedInputs:
    """Read the inputs that the command line names.

    Args:
        text: A sentence; None: all of `vectors`, or else the worked example of the texts.
        vectors: A file of tensors, or one of tokens and their vectors.

    Errors: a ValueError if the text is empty, a word has no vector, or the file is malformed; an
    OSError if it cannot be read.
    """
    if vectors is None or not is_tensors_file(vectors):
        settings = CommandSettings(text=text, vectors=None if vectors is None else str(vectors))
        return _of_sentence(sentence_of(settings), text, vectors)
    if text is not None:
        raise ValueError(
            Message(
                "TEXT needs a file of tokens and their vectors, but {path} has queries and keys "
                "without names. Omit TEXT.",
                path=shown(vectors),
            )
        )
    inputs = read_attention(vectors)
    note = None
    if not inputs.has_value:
        note = Message(
            "The file has no value. The context that --save writes is a mixture of its keys."
        )
    return ObservedInputs(titled(shown(vectors)), inputs.query, inputs.key, inputs.value, note=note)


def _of_sentence(sentence: Sentence, text: str | None, vectors: Path | None) -> ObservedInputs:
    x = sentence.embeddings.vectors[None, None]
    title = text
    if text is None:
        title = " ".join(sentence.embeddings.tokens) if vectors is None else titled(shown(vectors))
    return ObservedInputs(
        # As a title it is not to be longer than a line or two.
        quoted(title, 100) if text is not None else title or "",
        x,
        x,
        x,
        tokens=sentence.embeddings.tokens,
        note=_NOTES.get(sentence.source),
    )


_MOST_BYTES = 2**32


@dataclass(frozen=True, eq=False)
class ObservedAttention:
    """Statistics of an attention, with the plan that computed them.

    Attributes:
        subject: The inputs.
        asked: The statistics; the pooled map is one more.
        mask: The mask; None: no mask.
        seen: Values of the statistics.
        plan: Engine and cost.
        seconds: Elapsed time.
    """

    subject: ObservedInputs
    asked: tuple[StatisticOption, ...]
    mask: "Mask | None"
    seen: Observation
    plan: Plan
    seconds: float

    def of_heads(self, value: Float[Tensor, "batch heads *rest"], head: int | None) -> Tensor:
        """Average a value over the batch, and over all heads if `head` is None."""
        return (value if head is None else value[:, head : head + 1]).double().mean((0, 1))


def observed(
    subject: ObservedInputs,
    asked: tuple[StatisticOption, ...],
    *,
    mask: str,
    engine: str,
    head: int | None,
) -> ObservedAttention:
    """Observe the attention of some inputs.

    Args:
        subject: The inputs.
        asked: The statistics; the default ones if empty.
        mask: The text of a mask, as of `parse_mask`.
        engine: Name of the engine.
        head: Head that the report draws; None: the mean over all heads.

    Errors: a ValueError if the head is not there, a statistic does not fit, the engine does not
    serve or would take more than 4 GiB, or numbers overflow.
    """
    check_place("head", head, subject.heads)
    queries, keys = subject.query.shape[-2], subject.key.shape[-2]
    asked = asked or default_statistics(keys)
    statistics = {one.name: one.build() for one in asked}
    statistics[MAP] = pooled_map(queries, keys)
    attention = gh.Attention(mask=parse_mask(mask), engine=engine).eval()
    inputs = subject.query, subject.key, subject.value
    plan = attention.plan(*inputs, statistics=statistics)
    if plan.bytes > _MOST_BYTES:
        raise ValueError(
            Message(
                "the {engine} engine may take {most} here, but would take {size:.1f} GiB. Omit "
                "--engine, or give fewer tokens.",
                engine=plan.engine,
                size=plan.bytes / 2**30,
                most=_MOST_BYTES // 2**30,
            )
        )
    start = time.perf_counter()
    with torch.no_grad():
        seen = attention.observe(*inputs, statistics, budget=_MOST_BYTES)
    seconds = time.perf_counter() - start
    if not (seen.context.isfinite().all() and seen[MAP].isfinite().all()):
        raise ValueError(Message("the scores overflow to infinity. Use smaller vectors."))
    return ObservedAttention(subject, asked, attention.mask, seen, plan, seconds)


def report(observed: ObservedAttention, head: int | None) -> Document:
    """Report the key that receives most, the plan, the statistics of each head, and the map.

    Args:
        observed: The observation.
        head: Head whose keys and map are drawn; None: the mean over all heads.
    """
    blocks: list[Block] = [*_finding(observed, head)]
    blocks += [Paragraph(_inputs(observed)), Paragraph(_plan(observed))]
    if observed.subject.note is not None:
        blocks.append(Note(observed.subject.note))
    blocks += [*_statistics(observed), *_receiving(observed, head), _map(observed, head)]
    return Document(blocks, title=Message("The attention of {text}", text=observed.subject.title))


def _finding(observed: ObservedAttention, head: int | None) -> Iterator[Paragraph]:
    """Name the key that receives most, if that was requested."""
    received = _received(observed, head)
    if received is None or not (total := float(received.sum())):
        return
    key = int(received.argmax())
    tokens = observed.subject.tokens
    yield Paragraph(
        Message(
            "The key that receives the most attention, {whose}: {key}, with {share} %.",
            whose=_whose(observed, head),
            key=f"{key}" if tokens is None else f"{visible(tokens[key])} ({key})",
            share=number(100 * float(received[key]) / total, 3),
        )
    )


def _received(observed: ObservedAttention, head: int | None) -> Float[Tensor, " keys"] | None:
    """Return the mass that keys receive; None if that was not requested."""
    statistics = observed.seen.statistics
    name = next((n for n, one in statistics.items() if isinstance(one, Received)), None)
    return None if name is None else observed.of_heads(observed.seen[name], head)


def _inputs(observed: ObservedAttention) -> str:
    query, key = observed.subject.query, observed.subject.key
    batch, heads, queries, width = query.shape
    mask = Message("no mask")
    if observed.mask is not None:
        mask = Message("the mask {mask}", mask=observed.mask)
    return Message(
        "Heads: {heads:,} (key heads: {key_heads:,}); batch rows: {batch:,}; queries: "
        "{queries:,}; keys: {keys:,}; dimension: {width:,} ({dtype}). softmax(q·k/√d) with "
        "{mask}.",
        heads=heads,
        key_heads=key.shape[1],
        batch=batch,
        queries=queries,
        keys=key.shape[-2],
        width=width,
        dtype=str(query.dtype).removeprefix("torch."),
        mask=mask,
    )


def _plan(observed: ObservedAttention) -> str:
    plan = observed.plan
    return Message(
        "Engine: {engine}; passes over the scores: {passes}; {megabytes:,.3g} MB beyond the "
        "inputs; {seconds:.3g} s.",
        engine=plan.engine,
        passes=plan.passes,
        megabytes=plan.bytes / 1e6,
        seconds=observed.seconds,
    )


def _statistics(observed: ObservedAttention) -> Iterator[Table]:
    """Yield one table of all statistics, or, for several heads, one per statistic."""
    heads, alone = observed.subject.heads, []
    for one in observed.asked:
        statistic, value = observed.seen.statistics[one.name], observed.seen[one.name]
        if isinstance(statistic, DistanceHistogram):
            yield _histogram(statistic, value, one)
        elif heads == 1:
            alone.append(
                [_label(one, statistic), *_spread(_numbers(value)[:, 0]), Message(statistic.unit)]
            )
        else:
            yield Table(
                [Message("head"), *_SPREAD],
                [[f"{head}", *_spread(_numbers(value)[:, head])] for head in range(heads)],
                caption=Message(
                    "{label}, {unit}: of each head over all {axis}",
                    label=_label(one, statistic),
                    unit=Message(statistic.unit),
                    axis=_over(statistic),
                ),
            )
    if alone:
        yield Table([Message("statistic"), *_SPREAD, Message("unit")], alone)


def _histogram(statistic: DistanceHistogram, value: Tensor, one: StatisticOption) -> Table:
    """Tabulate the weight in each distance bin, one column per head."""
    means = value.double().mean(0)
    return histogram_table(
        statistic,
        means,
        [Message("head {head}", head=head) for head in range(len(means))],
        one.written.partition(":")[0],
    )


def _label(one: StatisticOption, statistic: Statistic) -> str:
    if isinstance(statistic, TopK):
        return Message("{statistic}, summed", statistic=one.written)
    return one.written


def _numbers(value: Tensor | TopK | tuple[Tensor, ...]) -> Tensor:
    """Return a value as `[batch, heads, …]`; the largest weights are summed."""
    return value if isinstance(value, Tensor) else value[0].sum(-1)  # type: ignore[index]


def _over(statistic: Statistic) -> str:
    """Name the axis that the numbers of a head are averaged over."""
    plurals = {("key",): Message("keys"), (): Message("batch rows")}
    return plurals.get(statistic.axes, Message("queries"))


def _spread(numbers: Tensor) -> list[str]:
    """Format mean, minimum and maximum of the finite numbers: a query may see nothing."""
    finite = numbers.double()
    finite = finite[finite.isfinite()]
    if not len(finite):
        return ["–"] * 3
    return [number(x.item()) for x in (finite.mean(), finite.min(), finite.max())]


def _receiving(observed: ObservedAttention, head: int | None) -> Iterator[Table]:
    """Yield a table of the keys that receive most, if that statistic was requested."""
    received = _received(observed, head)
    if received is None:
        return
    yield receiving_table(
        received,
        observed.subject.tokens,
        Message(
            "Keys that receive the most attention, {whose}; each query gives 1 in total, and "
            "keys are counted from 0",
            whose=_whose(observed, head),
        ),
    )


def _map(observed: ObservedAttention, head: int | None) -> WeightsMap:
    """Draw the weights, pooled where they are many."""
    return drawn_map(
        observed.of_heads(observed.seen[MAP], head),
        observed.mask,
        (observed.subject.query.shape[-2], observed.subject.key.shape[-2]),
        observed.subject.tokens,
        Message(
            "Weights, {whose}: one row per query, one column per key",
            whose=_whose(observed, head),
        ),
    )


def _whose(observed: ObservedAttention, head: int | None) -> str:
    """Describe the heads and batch rows that a value is the mean over."""
    batch, heads = observed.subject.query.shape[:2]
    of = Message("of the one head") if head is None else Message("of head {head}", head=head)
    if head is None and heads > 1:
        of = Message("mean over {heads} heads", heads=heads)
    if batch > 1:
        return Message("{of}, mean over {batch:,} batch rows", of=of, batch=batch)
    return of


_SPREAD = Message("mean"), Message("smallest"), Message("largest")
_UNITS = _("nats"), _("weight"), _("key"), _("score"), _("positions")
