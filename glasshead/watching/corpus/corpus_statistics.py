"""Corpus statistics: a metric that sums up what was seen of many batches, and of many processes."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.attention.attention import Statistics
from glasshead.extras import missing_for
from glasshead.recipe.validation import whole_number
from glasshead.statistics import Statistic, normalize_statistics
from glasshead.watching.corpus.accumulators import (
    Padding,
    Partial,
    Text,
    padding_of,
    sums_of,
    texts_of,
)
from glasshead.watching.corpus.result import CorpusLayout, CorpusResult, Layer
from glasshead.watching.seen import Seen

try:
    from torchmetrics import Metric
    from torchmetrics.utilities.distributed import gather_all_tensors
except ModuleNotFoundError as error:
    raise missing_for("CorpusStatistics", error) from error

_States = dict[str, Any]


class CorpusStatistics(Metric):
    """Attention statistics of a model over a corpus of documents, per layer.

    Statistics with one number per query are averaged over all real queries of all documents.
    `MaxScore` is the maximum. `Received` is, per position, the mean over the documents that are
    long enough. `DistanceHistogram` is the mean over all queries that see a key, `PooledMap` the
    mean over documents, which then must have equal length. Sums are kept in float64, so the split
    of documents into batches and ranks makes no difference.

    It is a `torchmetrics.Metric`: `compute` reduces over all ranks of `torch.distributed`, some of
    which may have read nothing; `reset`, `merge_state`, `persistent` and `to` work as usual.

    Args:
        statistics: A list, or a dict keyed by name.
        positions: Number of positions of a document for which `Received` is kept.
        options: Arguments of `torchmetrics.Metric`: sync_on_compute, process_group and so on.

    Errors: a TypeError or ValueError for an invalid argument, or for a statistic that does not
    add up over documents, such as `TopK`.

    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    >>> corpus = gh.CorpusStatistics([gh.Entropy(), gh.Received()], positions=7)
    >>> for batch in torch.randn(3, 2, 5, 12):
    ...     with gh.watch(model, corpus.statistics) as seen:
    ...         output = model(batch)
    ...     corpus.update(seen)
    >>> result = corpus.compute()
    >>> result["layers.1.self_attn"]["received"].shape
    torch.Size([3, 5])
    >>> result.documents
    6
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, statistics: Statistics, *, positions: int = 1024, **options: Any) -> None:
        super().__init__(**options)
        positions = whole_number(positions, "positions", least=1)
        requested = normalize_statistics(
            list(statistics) if isinstance(statistics, tuple) else statistics
        )
        if not requested:
            raise ValueError("CorpusStatistics needs statistics such as [gh.Entropy()], got none.")
        self._sums = {name: sums_of(one, positions) for name, one in requested.items()}
        self.layout: Tensor
        self.documents: Tensor
        self.add_state("layout", CorpusLayout().tensor("cpu"), dist_reduce_fx=_first)
        self.add_state("documents", torch.tensor(0), dist_reduce_fx="sum")
        for name, sums in self._sums.items():
            total = torch.zeros(0, *sums.rest, dtype=torch.float64)
            count = torch.zeros(0, *sums.counted, dtype=torch.float64)
            self.add_state(f"total_{name}", total, dist_reduce_fx=sums.reduction)
            self.add_state(f"count_{name}", count, dist_reduce_fx="sum")

    @property
    def statistics(self) -> dict[str, Statistic]:
        """Statistics to pass to `gh.watch`, by name."""
        return {name: sums.watched for name, sums in self._sums.items()}

    def statistics_of(
        self, attention_mask: Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"]
    ) -> dict[str, Statistic]:
        """Return the statistics to pass to `gh.watch` for a padded batch.

        Statistics that sum over queries while the model runs, such as `Received`, and `MassOn` with
        padding on the left, count real tokens only, starting from the first of them.

        Args:
            attention_mask: 1 or True for real tokens.

        Errors: a ValueError if a statistic needs documents of equal length.
        """
        padding = padding_of(attention_mask)
        if padding is None:
            return self.statistics
        return {name: sums.of_real(padding) for name, sums in self._sums.items()}

    def update(
        self,
        seen: Seen,
        attention_mask: Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"] | None = None,
    ) -> None:
        """Add the observations of one batch.

        Args:
            seen: The result of a watch with `statistics`; it may hold others too.
            attention_mask: 1 or True for real tokens; None: all are. With a mask, the block of the
                watch has to run the model once, or to extend one text with a cache.

        Errors: a TypeError if `seen` is not the result of a watch; a ValueError if a
        statistic is missing, the mask does not fit, or the layers differ from before. Nothing is
        added then.
        """
        padding = padding_of(attention_mask)
        texts = texts_of(seen, padding)
        parts = [
            (text.layer, {name: self._part(name, text) for name in self._sums}) for text in texts
        ]
        layout = self._layout.merged(self._layout_of(texts))
        self._lay_out(layout)
        places = layout.places
        for layer, own in parts:
            for name, part in own.items():
                self._add(name, places[layer], part)
        first = texts[0].layer if texts else None
        self.documents += sum(text.real_documents for text in texts if text.layer == first)

    def compute(self) -> CorpusResult:
        """Return the statistics of all documents, reduced over all ranks.

        Errors: a ValueError if there are no documents.
        """
        layout = self._layout
        if not layout.layers:
            raise ValueError("compute needs at least one document, got none. Call update first.")
        values = {
            layer: {
                name: sums.value(
                    self._state("total", name)[place], self._state("count", name)[place]
                )
                for name, sums in self._sums.items()
            }
            for layer, place in layout.places.items()
        }
        requested = {name: sums.statistic for name, sums in self._sums.items()}
        return CorpusResult(values, requested, int(self.documents))

    def _part(self, name: str, text: Text) -> Partial:
        """Return the contribution of a text to a statistic."""
        sums = self._sums[name]
        expected = sums.watched if text.padding is None else sums.of_real(text.padding)
        known = text.call.statistics.get(name)
        if text.omits_padding and known is not None and text.padding is not None:
            plain = sums.without_padding(text.padding)
            expected = plain if known == plain else expected
        if known is None or not _same(known, expected):
            how = "corpus.statistics" + ("" if text.padding is None else "_of(attention_mask)")
            raise ValueError(
                f"update needs what was watched as gh.watch(model, {how}), but {name!r} of "
                f"{text.layer!r} is {known!r}. Watch it that way."
            )
        return sums.part(text, text.rows(text.call.values[name])).to(self.device)

    def _add(self, name: str, place: slice, part: Partial) -> None:
        total, count = self._state("total", name), self._state("count", name)
        if self._sums[name].reduction == "max":
            total[place] = torch.maximum(total[place], part.total)
        else:
            total[place] += part.total
        count[place] += part.count

    def _state(self, kind: str, name: str) -> Tensor:
        return getattr(self, f"{kind}_{name}")

    @property
    def _layout(self) -> CorpusLayout:
        return CorpusLayout.of(self.layout)

    def _layout_of(self, texts: list[Text]) -> CorpusLayout:
        equal = any(sums.of_one_length for sums in self._sums.values())
        layouts = (
            CorpusLayout({text.layer: Layer(text.heads, text.lengths if equal else None)})
            for text in texts
        )
        return reduce(CorpusLayout.merged, layouts, CorpusLayout())

    def _lay_out(self, layout: CorpusLayout) -> None:
        """Resize the states to a layout."""
        resized = self._resized({name: getattr(self, name) for name in self._defaults}, layout)
        for name, state in resized.items():
            setattr(self, name, state)

    def _resized(self, states: Mapping[str, Any], layout: CorpusLayout) -> _States:
        """Return copies of the states, resized to the heads of a layout."""
        old = CorpusLayout.of(states["layout"])
        resized: _States = {**states, "layout": layout.tensor(states["layout"].device)}
        for name, sums in self._sums.items():
            for kind, fill in (("total", sums.neutral), ("count", 0.0)):
                state = f"{kind}_{name}"
                resized[state] = layout.moved(states[state], old, fill).clone()
        return resized

    def _sync_dist(
        self,
        dist_sync_fn: Callable[..., list[Tensor]] = gather_all_tensors,
        process_group: Any | None = None,
    ) -> None:
        """Merge the layouts first, as ranks may have seen different layers, or none."""
        layouts = dist_sync_fn(self.layout, group=process_group or self.process_group)
        self._lay_out(reduce(CorpusLayout.merged, map(CorpusLayout.of, layouts)))
        super()._sync_dist(dist_sync_fn, process_group)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        """Merge the layouts first, as the other metric may have seen other layers, or none."""
        layout = CorpusLayout.of(incoming_state["layout"]).merged(self._layout)
        self._lay_out(layout)
        super()._reduce_states(self._resized(incoming_state, layout))
        # What was merged was updated, or torchmetrics warns that nothing was.
        self._update_count = max(self._update_count, 1)


def _first(layouts: Tensor) -> Tensor:
    """Return the first of equal layouts."""
    return layouts[0]


def _same(known: Statistic, expected: Statistic) -> bool:
    """Return whether two statistics are equal; masked ones compare the values of their masks."""
    one, other = (getattr(statistic, "padding", None) for statistic in (known, expected))
    if not (isinstance(one, Padding) and isinstance(other, Padding)):
        return known == expected
    return (
        type(known) is type(expected)
        and vars(known) | {"padding": other} == vars(expected)
        and one.as_if(other)
    )
