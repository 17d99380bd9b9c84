"""Report: what was observed, as a document for the terminal and for a page."""

from collections.abc import Iterator
from itertools import pairwise

from torch import Tensor

from glasshead.cli.observing.observing import MAP, Observed
from glasshead.cli.observing.statistics import Asked
from glasshead.cli.observing.weights_map import WeightsMap
from glasshead.drawing import Block, Document, Note, Paragraph, Table, number
from glasshead.drawing.printable import visible
from glasshead.statistics import DistanceHistogram, Received, Statistic, TopK

_MOST_RECEIVING = 5


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
    counts = [_counted(heads, "head")]
    if key.shape[1] != heads:
        counts.append(f"on {key.shape[1]} of keys")
    if batch > 1:
        counts.append(f"in each of {batch:,} batch rows")
    mask = "no mask" if observed.mask is None else f"the mask {observed.mask}"
    return (
        f"{' '.join(counts)}, with {_counted(queries, 'query', 'queries')} and "
        f"{_counted(key.shape[-2], 'key')} of {width:,} {str(query.dtype).removeprefix('torch.')} "
        f"{'number' if width == 1 else 'numbers'} each: softmax(q·k/√d) with {mask}."
    )


def _plan(observed: Observed) -> str:
    plan = observed.plan
    return (
        f"Engine: {plan.engine}, {_counted(plan.passes, 'pass', 'passes')} over the scores, "
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
    rows = [
        [f"{low:g} to {high:g}", *(number(share) for share in means[:, place])]
        for place, (low, high) in enumerate(pairwise(statistic.edges))
    ]
    return Table(
        ["distance", *(f"head {head}" for head in range(len(means)))],
        rows,
        caption=f"{one.written.partition(':')[0]}, {statistic.unit}: the mean of a query, by the "
        f"distance of its keys, from the first number to below the second",
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
    mass = observed.of_heads(observed.seen[name], head)
    largest, keys = mass.topk(min(_MOST_RECEIVING, len(mass)))
    tokens, total = observed.subject.tokens, mass.sum().item()
    rows = []
    for weight, key in zip(largest.tolist(), keys.tolist(), strict=True):
        token = [] if tokens is None else [visible(tokens[key])]
        share = f"{number(100 * weight / total, 3)} %" if total else "–"
        rows.append([f"{key}", *token, number(weight), share])
    yield Table(
        ["key", *([] if tokens is None else ["token"]), "received", "share"],
        rows,
        caption=f"The keys that receive most, {_whose(observed, head)}; 1 is all that a query "
        f"gives, and keys are counted from 0",
    )


def _map(observed: Observed, head: int | None) -> WeightsMap:
    """The weights, pooled where they are many."""
    means = observed.of_heads(observed.seen[MAP], head).tolist()
    values = [
        [None if hides else weight for weight, hides in zip(row, hidden, strict=True)]
        for row, hidden in zip(means, observed.hidden(), strict=True)
    ]
    rows, columns = observed.map_edges
    caption = f"Weights, {_whose(observed, head)}: a row a query, a column a key"
    return WeightsMap(values, rows, columns, observed.subject.tokens, caption)


def _whose(observed: Observed, head: int | None) -> str:
    """Of which heads, and of how many batch rows, something is the mean."""
    batch, heads = observed.subject.query.shape[:2]
    of = f"of head {head}" if head is not None else "of the one head"
    if head is None and heads > 1:
        of = f"mean over {heads} heads"
    return f"{of}, mean over {batch:,} batch rows" if batch > 1 else of


def _counted(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
