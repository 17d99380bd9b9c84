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
from glasshead.cli.attention_options import StatisticOption, default_statistics
from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.messages import quoted
from glasshead.cli.inputs.sentences import sentence_of
from glasshead.cli.inputs.tensors import is_tensors_file, read_attention
from glasshead.cli.observe_tables import (
    MAP,
    WeightsMap,
    check_place,
    counted,
    drawn_map,
    histogram_table,
    pooled_map,
    receiving_table,
)
from glasshead.drawing import Block, Document, Note, Paragraph, Table, number
from glasshead.explanation.choices import Band, build_mask
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.statistics import DistanceHistogram, Received, Statistic, TopK

if TYPE_CHECKING:
    from glasshead import Mask


# As `explain` has it, so that the same words have the same vectors.
_SEED = 123
_NOTES = {
    VectorSource.TEXTS: "The vectors are those of the worked example that the texts print.",
    VectorSource.MADE_UP: f"The vectors are made up from seed {_SEED} and mean nothing: what the "
    "words attend to here says nothing about the words. The computation is real.",
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
    return ObservedInputs(shown(vectors), inputs.query, inputs.key, inputs.value, note=note)


def _of_sentence(sentence: Sentence, text: str | None, vectors: Path | None) -> ObservedInputs:
    x = sentence.embeddings.vectors[None, None]
    title = text
    if text is None:
        title = " ".join(sentence.embeddings.tokens) if vectors is None else shown(vectors)
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
    bands: tuple[Band, ...],
    engine: str,
    head: int | None,
) -> ObservedAttention:
    """Observe the attention of some inputs.

    Args:
        subject: The inputs.
        asked: The statistics; the default ones if empty.
        bands: The mask.
        engine: Name of the engine.
        head: Head that the report draws; None: the mean over all heads.

    Errors: a ValueError where the head is not there, a statistic does not fit, the engine does not
    serve or would take more than 4 GiB, or numbers overflow.
    """
    check_place("head", head, subject.heads)
    queries, keys = subject.query.shape[-2], subject.key.shape[-2]
    asked = asked or default_statistics(keys)
    statistics = {one.name: one.build() for one in asked}
    statistics[MAP] = pooled_map(queries, keys)
    mask = build_mask(bands)
    attention = gh.Attention(mask=mask, engine=engine).eval()
    inputs = subject.query, subject.key, subject.value
    plan = attention.plan(*inputs, statistics=statistics)
    if plan.bytes > _MOST_BYTES:
        raise ValueError(
            f"the {plan.engine} engine would take {plan.bytes / 2**30:.1f} GiB for this, and may "
            f"take {_MOST_BYTES // 2**30}: leave --engine out, or give fewer tokens."
        )
    start = time.perf_counter()
    with torch.no_grad():
        seen = attention.observe(*inputs, statistics, budget=_MOST_BYTES)
    seconds = time.perf_counter() - start
    if not (seen.context.isfinite().all() and seen[MAP].isfinite().all()):
        raise ValueError("the scores grow beyond all numbers: give smaller vectors.")
    return ObservedAttention(subject, asked, mask, seen, plan, seconds)


def report(observed: ObservedAttention, head: int | None) -> Document:
    """Report the plan, the statistics of each head, the keys that receive most, and the map.

    Args:
        observed: The observation.
        head: Head whose keys and map are drawn; None: the mean over all heads.
    """
    blocks: list[Block] = [Paragraph(_inputs(observed)), Paragraph(_plan(observed))]
    if observed.subject.note is not None:
        blocks.append(Note(observed.subject.note))
    blocks += [*_statistics(observed), *_receiving(observed, head), _map(observed, head)]
    return Document(blocks, title=f"The attention of {observed.subject.title}")


def _inputs(observed: ObservedAttention) -> str:
    query, key = observed.subject.query, observed.subject.key
    batch, heads, queries, width = query.shape
    counts = [counted(heads, "head")]
    if key.shape[1] != heads:
        counts.append(f"on {key.shape[1]} of keys")
    if batch > 1:
        counts.append(f"in each of {batch:,} batch rows")
    mask = "no mask" if observed.mask is None else f"the mask {observed.mask}"
    return (
        f"{' '.join(counts)}, with {counted(queries, 'query', 'queries')} and "
        f"{counted(key.shape[-2], 'key')} of {width:,} {str(query.dtype).removeprefix('torch.')} "
        f"{'number' if width == 1 else 'numbers'} each: softmax(q·k/√d) with {mask}."
    )


def _plan(observed: ObservedAttention) -> str:
    plan = observed.plan
    return (
        f"Engine: {plan.engine}, {counted(plan.passes, 'pass', 'passes')} over the scores, "
        f"{plan.bytes / 1e6:,.3g} MB beyond the inputs, {observed.seconds:.3g} s."
    )


def _statistics(observed: ObservedAttention) -> Iterator[Table]:
    """Yield one table of all statistics, or, for several heads, one per statistic."""
    heads, alone = observed.subject.heads, []
    for one in observed.asked:
        statistic, value = observed.seen.statistics[one.name], observed.seen[one.name]
        if isinstance(statistic, DistanceHistogram):
            yield _histogram(statistic, value, one)
        elif heads == 1:
            alone.append([_label(one, statistic), *_spread(_numbers(value)[:, 0]), statistic.unit])
        else:
            yield Table(
                ["head", "mean", "least", "largest"],
                [[f"{head}", *_spread(_numbers(value)[:, head])] for head in range(heads)],
                caption=f"{_label(one, statistic)}, {statistic.unit}: of each head over all "
                f"{_over(statistic)}",
            )
    if alone:
        yield Table(["statistic", "mean", "least", "largest", "unit"], alone)


def _histogram(statistic: DistanceHistogram, value: Tensor, one: StatisticOption) -> Table:
    """Tabulate the weight in each distance bin, one column per head."""
    means = value.double().mean(0)
    return histogram_table(
        statistic,
        means,
        [f"head {head}" for head in range(len(means))],
        one.written.partition(":")[0],
    )


def _label(one: StatisticOption, statistic: Statistic) -> str:
    return f"{one.written}, summed" if isinstance(statistic, TopK) else one.written


def _numbers(value: Tensor | TopK | tuple[Tensor, ...]) -> Tensor:
    """Return a value as `[batch, heads, …]`; the largest weights are summed."""
    return value if isinstance(value, Tensor) else value[0].sum(-1)  # type: ignore[index]


def _over(statistic: Statistic) -> str:
    """Name the axis that the numbers of a head are averaged over."""
    plurals = {("key",): "keys", (): "batch rows"}
    return plurals.get(statistic.axes, "queries")


def _spread(numbers: Tensor) -> list[str]:
    """Format mean, minimum and maximum of the finite numbers: a query may see nothing."""
    finite = numbers.double()
    finite = finite[finite.isfinite()]
    if not len(finite):
        return ["–"] * 3
    return [number(x.item()) for x in (finite.mean(), finite.min(), finite.max())]


def _receiving(observed: ObservedAttention, head: int | None) -> Iterator[Table]:
    """Yield a table of the keys that receive most, if that statistic was requested."""
    statistics = observed.seen.statistics
    name = next((n for n, one in statistics.items() if isinstance(one, Received)), None)
    if name is None:
        return
    yield receiving_table(
        observed.of_heads(observed.seen[name], head),
        observed.subject.tokens,
        f"The keys that receive most, {_whose(observed, head)}; 1 is all that a query gives, and "
        f"keys are counted from 0",
    )


def _map(observed: ObservedAttention, head: int | None) -> WeightsMap:
    """Draw the weights, pooled where they are many."""
    return drawn_map(
        observed.of_heads(observed.seen[MAP], head),
        observed.mask,
        (observed.subject.query.shape[-2], observed.subject.key.shape[-2]),
        observed.subject.tokens,
        f"Weights, {_whose(observed, head)}: one row per query, one column per key",
    )


def _whose(observed: ObservedAttention, head: int | None) -> str:
    """Describe the heads and batch rows that a value is the mean over."""
    batch, heads = observed.subject.query.shape[:2]
    of = f"of head {head}" if head is not None else "of the one head"
    if head is None and heads > 1:
        of = f"mean over {heads} heads"
    return f"{of}, mean over {batch:,} batch rows" if batch > 1 else of
