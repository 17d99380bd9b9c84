"""Observe a model over texts: statistics by layer and head, report and file."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import typer
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.attention.io import describe_values, write
from glasshead.cli.inputs.files import titled
from glasshead.cli.inputs.messages import as_option, print_stderr, unobserved_as_value_error
from glasshead.cli.observe_tables import (
    MAP,
    HeadsTable,
    WeightsMap,
    check_place,
    counted,
    drawn_map,
    histogram_table,
    pooled_map,
    receiving_table,
)
from glasshead.cli.output import Counter
from glasshead.cli.statistic_options import StatisticOption
from glasshead.drawing import (
    Block,
    Document,
    HeatMap,
    Note,
    Paragraph,
    number,
)
from glasshead.message import Message
from glasshead.recipe.masks import Mask
from glasshead.statistics import DistanceHistogram, Entropy, MaxScore, Received, Statistic
from glasshead.statistics.reductions import edges
from glasshead.tasks.readers.distributed import RankError, connected_ranks
from glasshead.tasks.readers.observe_texts import TextObserver
from glasshead.tasks.readers.open_reader import open_reader
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.readers.text_stream import ChunkCounts, Length, TextStream
from glasshead.tasks.readers.texts import load_texts
from glasshead.watching.corpus.result import OF_A_MODEL


@dataclass(frozen=True)
class HeadChoice:
    """The heads that the report draws: one head, one layer, or all.

    Attributes:
        layer: Layer index; None: the mean over all layers.
        head: Head index in the layer; None: the mean over all heads.
    """

    layer: int | None
    head: int | None

    def check(self, layers: int, heads: int) -> None:
        """Check the indices against the number of layers and heads."""
        check_place("layer", self.layer, layers)
        check_place("head", self.head, heads)

    def mean(self, values: Float[Tensor, "layers heads *rest"]) -> Float[Tensor, "*rest"]:
        """Average over the chosen heads."""
        return self.rows(values).mean(0)

    def rows(self, values: Float[Tensor, " layers heads *rest"]) -> Float[Tensor, " rows *rest"]:
        """Return one row per layer, the mean over its heads, or one per head of the one layer."""
        if self.layer is None:
            return values.mean(1)
        heads = values[self.layer]
        return heads if self.head is None else heads[self.head : self.head + 1]

    def names(self, layers: int, heads: int) -> list[str]:
        """Name the rows."""
        if self.layer is None:
            return [Message("layer {layer}", layer=layer) for layer in range(layers)]
        own = range(heads) if self.head is None else [self.head]
        return [Message("head {head}", head=head) for head in own]

    def said(self, layers: int, heads: int) -> str:
        """Describe the heads that the mean is over."""
        if self.head is not None or (self.layer is not None and heads == 1):
            return Message("of layer {layer}, head {head}", layer=self.layer, head=self.head or 0)
        if self.layer is not None:
            return Message(
                "mean over the {heads} heads of layer {layer}", heads=heads, layer=self.layer
            )
        if layers == heads == 1:
            return Message("of the one head")
        return Message("mean over all {heads} heads", heads=layers * heads)

    def said_of_rows(self) -> str:
        """Describe the heads that each row is the mean over."""
        if self.layer is None:
            return Message("in each layer, mean over its heads")
        if self.head is None:
            return Message("in each head of layer {layer}", layer=self.layer)
        return Message("in layer {layer}", layer=self.layer)


@dataclass(frozen=True, eq=False)
class ObservedModel:
    """Statistics of a model over texts.

    Attributes:
        reader: The model.
        pieces: The chunks that were read.
        asked: The statistics.
        result: Their values, by layer.
        values: Their values `[layers, heads, …]`; the pooled map is one more, unless lengths
            differ.
        choice: The heads whose keys and map are drawn.
        seconds: Elapsed time.
        remove_partial: Removes what was kept in case of an interruption.
    """

    reader: Reader
    pieces: ChunkCounts
    asked: tuple[StatisticOption, ...]
    result: gh.CorpusResult
    values: dict[str, Float[Tensor, "layers heads *rest"]]
    choice: HeadChoice
    seconds: float
    remove_partial: Callable[[], None]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of layers, and of heads per layer."""
        layers, heads = next(iter(self.values.values())).shape[:2]
        return layers, heads

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The tokens of the one chunk of full length; None where several have it."""
        if self.pieces.full > 1 or self.pieces.uneven:
            return None
        return tuple(map(self.reader.token, self.pieces.first_full))

    @property
    def mask(self) -> Mask | None:
        """The mask of the model, or the one that its weights show."""
        if self.reader.mask is not None:
            return self.reader.mask
        pooled = self.values[MAP]
        rows, columns = (edges(self.pieces.length, size) for size in pooled.shape[-2:])
        later = torch.tensor([[begin >= end for begin in columns[:-1]] for end in rows[1:]])
        return None if pooled[..., later].any() else gh.causal()


def places(observed: ObservedModel) -> Iterator[Message]:
    """Say where the model and the text are, if their names in the report do not."""
    names = _names(observed)
    if any(titled(name) != name for name in names.values()):
        yield Message("Model: {model}; text: {text}.", **names)


def _names(observed: ObservedModel) -> dict[str, str]:
    return {"model": observed.reader.name, "text": observed.result.source["text"]}


def report(observed: ObservedModel) -> Document:
    """Report the heads with extremes, each statistic of all layers and heads, and a map.

    Files are named without their folders, as the report is also a page for others.
    """
    short = {what: titled(name) for what, name in _names(observed).items()}
    findings: list[Block] = []
    blocks: list[Block] = [Paragraph(_inputs(observed)), *_notes(observed)]
    for one in observed.asked:
        statistic, value = observed.result.statistics[one.name], observed.values[one.name]
        if isinstance(statistic, DistanceHistogram):
            rows = observed.choice.rows(value)
            label = Message(
                "{statistic} {where}",
                statistic=one.written.partition(":")[0],
                where=observed.choice.said_of_rows(),
            )
            names = observed.choice.names(*observed.shape)
            blocks.append(histogram_table(statistic, rows, names, label))
        elif isinstance(statistic, Received):
            blocks += _received(observed, one, value)
        else:
            blocks.append(_heads(one, statistic, value))
            findings += _extremes(one, value)
            if isinstance(statistic, Entropy):
                findings[:0] = _finding(value)
    if MAP in observed.values:
        blocks.append(_map(observed))
    title = Message("The attention of {model} over {text}", **short)
    return Document([*findings, *blocks], title=title)


def _inputs(observed: ObservedModel) -> str:
    pieces, (layers, heads) = observed.pieces, observed.shape
    return Message(
        "Layers: {layers}; heads of each: {heads}; tokens: {tokens:,} in {read}; {seconds:.3g} s. "
        "Layers, heads and positions are counted from 0.",
        layers=layers,
        heads=heads,
        tokens=pieces.tokens,
        read=_cut(pieces),
        seconds=observed.seconds,
    )


def _cut(pieces: ChunkCounts) -> str:
    """Describe the number and length of the chunks."""
    if pieces.count == 1:
        return Message("1 text") if pieces.whole else Message("1 piece")
    said = Message("{count:,} texts", count=pieces.count)
    if not pieces.whole:
        said = Message("{count:,} pieces", count=pieces.count)
    if pieces.uneven:
        return Message(
            "{said} of {least:,} to {most:,}, each in one pass",
            said=said,
            least=pieces.shortest,
            most=pieces.length,
        )
    last = ""
    if pieces.shortest < pieces.length:
        last = Message(", the last of {length:,}", length=pieces.shortest)
    return Message(
        "{said} of {length:,}{last}, each read from its own beginning",
        said=said,
        length=pieces.length,
        last=last,
    )


def _notes(observed: ObservedModel) -> Iterator[Note]:
    pieces = observed.pieces
    unknown = pieces.unknown_tokens
    if unknown:
        yield Note(
            Message(
                "Unknown tokens, which the model reads as one and the same token: {count:,} "
                "({share} %).",
                count=unknown,
                share=number(100 * unknown / pieces.tokens, 3),
            )
        )
    if pieces.uneven:
        yield Note(
            Message(
                "Texts of different lengths have no common map. Use --length N to cut them "
                "to one length."
            )
        )
    for sentence in omitted(pieces, observed.reader):
        yield Note(sentence)


def omitted(pieces: ChunkCounts, reader: Reader) -> list[str]:
    """Describe the texts and tokens that were not read, in one sentence each."""
    out, sentences = pieces.omitted, []
    if out.texts:
        sentences.append(
            Message(
                "Texts truncated to the model's context of {context:,} tokens: {texts:,} of "
                "{count:,}; tokens omitted: {tokens:,}.",
                context=reader.context,
                texts=out.texts,
                count=pieces.count,
                tokens=out.tokens,
            )
        )
    if out.empty:
        sentences.append(Message("Texts without a token, skipped: {count:,}.", count=out.empty))
    return sentences


def _heads(
    one: StatisticOption, statistic: Statistic, value: Float[Tensor, "layers heads"]
) -> HeadsTable:
    """Tabulate a statistic by layer and head."""
    of = Message("mean over all tokens")
    if isinstance(statistic, MaxScore):
        of = Message("the largest of all pieces")
    caption = Message(
        "{label}, {unit}: {of}", label=one.written, unit=Message(statistic.unit), of=of
    )
    return HeadsTable(value.tolist(), caption)


def _extremes(one: StatisticOption, value: Float[Tensor, "layers heads"]) -> Iterator[Paragraph]:
    """Name the heads with the smallest and the largest value of a statistic."""
    if value.numel() > 1:
        least, largest = (_place(value, int(at)) for at in (value.argmin(), value.argmax()))
        yield Paragraph(
            Message(
                "Smallest {statistic}: {least}; largest: {largest}.",
                statistic=one.written,
                least=least,
                largest=largest,
            )
        )


def _finding(entropy: Float[Tensor, "layers heads"]) -> Iterator[Paragraph]:
    """State the heads with the narrowest and the broadest attention; n equal weights have ln n."""
    if entropy.numel() > 1:
        least, most = (
            divmod(int(at), entropy.shape[1]) for at in (entropy.argmin(), entropy.argmax())
        )
        yield Paragraph(
            Message(
                "The narrowest attention is in layer {layer}, head {head}, with the entropy of "
                "{least} equal weights; the broadest is in layer {broad_layer}, head {broad_head}, "
                "with the entropy of {most}.",
                layer=least[0],
                head=least[1],
                least=number(entropy[least].exp(), 3),
                broad_layer=most[0],
                broad_head=most[1],
                most=number(entropy[most].exp(), 3),
            )
        )


def _place(value: Float[Tensor, "layers heads"], at: int) -> str:
    layer, head = divmod(at, value.shape[1])
    return Message(
        "{value}, in layer {layer}, head {head}",
        value=number(value[layer, head]),
        layer=layer,
        head=head,
    )


def _received(
    observed: ObservedModel, one: StatisticOption, value: Float[Tensor, "layers heads keys"]
) -> Iterator[Block]:
    """Draw the received mass by position, and tabulate the positions that receive most."""
    said, over = observed.choice.said(*observed.shape), _over(observed)
    yield HeatMap(
        observed.choice.rows(value),
        observed.choice.names(*observed.shape),
        _positions(observed),
        caption=Message(
            "{label}, weight: attention that each position receives {where}{over}",
            label=one.written,
            where=observed.choice.said_of_rows(),
            over=over,
        ),
    )
    yield receiving_table(
        observed.choice.mean(value),
        observed.names,
        Message(
            "Positions that receive the most attention, {said}{over}; each query gives 1 in total",
            said=said,
            over=over,
        ),
    )


def _map(observed: ObservedModel) -> WeightsMap:
    """Draw the weights, pooled where they are many."""
    length = observed.pieces.length
    return drawn_map(
        observed.choice.mean(observed.values[MAP]),
        observed.mask,
        (length, length),
        observed.names,
        Message(
            "Weights, {said}{over}: one row per query, one column per key",
            said=observed.choice.said(*observed.shape),
            over=_over(observed),
        ),
    )


def _positions(observed: ObservedModel) -> Sequence[str]:
    return observed.names or [f"{place}" for place in range(observed.pieces.length)]


def _over(observed: ObservedModel) -> str:
    """Describe the chunks that a value is the mean over, if several."""
    pieces = observed.pieces
    if pieces.uneven:
        return Message(", mean over the texts that are as long")
    if pieces.full > 1:
        of = {"count": pieces.full, "length": pieces.length}
        if pieces.whole:
            return Message(", mean over {count:,} texts of {length:,}", **of)
        return Message(", mean over {count:,} pieces of {length:,}", **of)
    if pieces.count > 1:
        return Message(", over the first {length:,} tokens", length=pieces.length)
    return ""


def save(observed: ObservedModel, file: Path) -> None:
    """Write the means `[heads, …]` of each layer and statistic as safetensors, in float64.

    A tensor is called as its layer and its statistic, such as blocks.0.attention.entropy, and
    `safetensors.torch.load_file(file)` gives all by name. What each statistic is, of which text and
    of how many tokens, stands as JSON in the metadata, with the tokens where one text was read.
    `gh.load(file)` and `gh.CorpusResult.load(file)` read all of it.

    Errors: an OSError if the file cannot be written; then an older one is as it was.
    """
    result = observed.result
    written = {one.name: one.written for one in observed.asked} | {MAP: MAP}
    description: dict[str, Any] = {
        **result.source,
        "layers": list(result),
        "statistics": {
            name: {"written": written[name], "unit": one.unit, "axes": ["head", *_left(one.axes)]}
            for name, one in result.statistics.items()
        },
        "asked": describe_values(result.statistics, observed.values),
    }
    if result.tokens is not None:
        description["written_tokens"] = result.tokens
    tensors = {
        f"{layer}.{name}": result[layer][name] for name in result.statistics for layer in result
    }
    write(file, OF_A_MODEL, description, tensors)
    observed.remove_partial()


def _left(axes: tuple[str, ...]) -> list[str]:
    """Return the axes that remain after the mean over all queries."""
    return [axis for axis in axes if axis != "query"]


def observe_model(
    folder: Path,
    texts: Sequence[Path],
    checked_statistics: Callable[[], tuple[StatisticOption, ...]],
    *,
    length: Length,
    truncate: bool,
    choice: HeadChoice,
    partial: Path | None = None,
) -> ObservedModel | None:
    """Observe a model while it reads texts; of several processes, each reads its share.

    Args:
        folder: The folder of the run, or of the model.
        texts: Files, folders or patterns of texts.
        checked_statistics: Checks the options, and returns the statistics.
        length, truncate: As of `TextStream`.
        choice: The head that the report draws.
        partial: File of the sums so far, from which an interrupted run goes on.

    Returns: the observation; None in a process other than the first.

    Errors: a ValueError, TypeError or OSError in one sentence.
    """
    try:
        with unobserved_as_value_error(), connected_ranks() as ranks:
            with ranks.together():
                asked = checked_statistics()
                reader = open_reader(folder, ranks.device)
                stream = TextStream(
                    reader,
                    load_texts(texts, reader.field),
                    length,
                    truncate=truncate,
                    rank=ranks.rank,
                    world_size=ranks.world_size,
                    spell=as_option,
                )
                with Counter("reading texts", shown=ranks.is_rank_zero) as counter:
                    pieces = stream.counted(counter.show)
                statistics = {one.name: one.build() for one in asked}
                if not pieces.uneven:
                    statistics[MAP] = pooled_map(pieces.length, pieces.length)
                observer = TextObserver(reader, stream, pieces, statistics, ranks, partial)
            if observer.tokens_before and ranks.is_rank_zero:
                read = counted(observer.tokens_before, "token")
                print_stderr(f"Continuing after {read}, read by an earlier run.")
            start = time.perf_counter()
            with Counter("observing", shown=ranks.is_rank_zero) as counter:
                observer.read(counter.show, choice.check)
            result = observer.result()
            values = {name: result.stacked(name) for name in statistics}
            seconds = time.perf_counter() - start
            if not ranks.is_rank_zero:
                observer.remove_partial()
                return None
            return ObservedModel(
                reader, pieces, asked, result, values, choice, seconds, observer.remove_partial
            )
    except RankError:
        # The first process is given the time to say how it failed; this is the code of bad input.
        time.sleep(1.0)
        raise typer.Exit(2) from None
