"""Report: what was observed, as a document for the terminal and for a page."""

from collections.abc import Iterator

from torch import Tensor

from glasshead.cli.observing.observing import Observed
from glasshead.cli.observing.pooled import MAP, drawn_map
from glasshead.cli.observing.statistics import Asked
from glasshead.cli.observing.tables import counted, histogram_table, receiving_table
from glasshead.cli.observing.weights_map import WeightsMap
from glasshead.drawing import Block, Document, Note, Paragraph, Table, number
from glasshead.statistics import DistanceHistogram, Received, Statistic, TopK


def report(observed: Observed, head: int | None) -> Document:
    """The plan, the statistics of each head, the keys that receive most, and the map.

    Args:
        observed: What was seen.
        head: Whose keys and map are drawn; None: the mean over all heads.
    """
    blocks: list[Block] = [Paragraph(_inputs(observed)), Paragraph(_plan(observed))]
    if observed.subject.note is not None:
        blocks.append(Note(observed.subject.note))
    blocks += [*_statistics(observed), *_receiving(observed, head), _map(observed, head)]
    return Document(blocks, title=f"The attention of {observed.subject.title}")


def _inputs(observed: Observed) -> str:
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


def _plan(observed: Observed) -> str:
    plan = observed.plan
    return (
        f"Engine: {plan.engine}, {counted(plan.passes, 'pass', 'passes')} over the scores, "
        f"{plan.bytes / 1e6:,.3g} MB beyond the inputs, {observed.seconds:.3g} s."
    )


def _statistics(observed: Observed) -> Iterator[Table]:
    """One table of all statistics, or, of several heads, one for each."""
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


def _histogram(statistic: DistanceHistogram, value: Tensor, one: Asked) -> Table:
    """How much weight lies in each bin, a column a head."""
    means = value.double().mean(0)
    return histogram_table(
        statistic,
        means,
        [f"head {head}" for head in range(len(means))],
        one.written.partition(":")[0],
    )


def _label(one: Asked, statistic: Statistic) -> str:
    return f"{one.written}, summed" if isinstance(statistic, TopK) else one.written


def _numbers(value: Tensor | TopK | tuple[Tensor, ...]) -> Tensor:
    """`[batch, heads, …]`: a value as it is; of the largest weights, their sum."""
    return value if isinstance(value, Tensor) else value[0].sum(-1)  # type: ignore[index]


def _over(statistic: Statistic) -> str:
    """What the numbers of a head are counted over."""
    plurals = {("key",): "keys", (): "batch rows"}
    return plurals.get(statistic.axes, "queries")


def _spread(numbers: Tensor) -> list[str]:
    """The mean, the least and the largest, of what is finite: a query may see nothing."""
    finite = numbers.double()
    finite = finite[finite.isfinite()]
    if not len(finite):
        return ["–"] * 3
    return [number(x.item()) for x in (finite.mean(), finite.min(), finite.max())]


def _receiving(observed: Observed, head: int | None) -> Iterator[Table]:
    """The keys that receive most, where that was asked for."""
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


def _map(observed: Observed, head: int | None) -> WeightsMap:
    """The weights, pooled where they are many."""
    return drawn_map(
        observed.of_heads(observed.seen[MAP], head),
        observed.mask,
        (observed.subject.query.shape[-2], observed.subject.key.shape[-2]),
        observed.subject.tokens,
        f"Weights, {_whose(observed, head)}: a row a query, a column a key",
    )


def _whose(observed: Observed, head: int | None) -> str:
    """Of which heads, and of how many batch rows, something is the mean."""
    batch, heads = observed.subject.query.shape[:2]
    of = f"of head {head}" if head is not None else "of the one head"
    if head is None and heads > 1:
        of = f"mean over {heads} heads"
    return f"{of}, mean over {batch:,} batch rows" if batch > 1 else of
