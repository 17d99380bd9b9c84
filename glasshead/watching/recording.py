"""Record a call: what is known of it and what is kept, the last of the stages of a call."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from glasshead.engines import STREAMING
from glasshead.statistics import Statistic
from glasshead.watching.attention_map import Images
from glasshead.watching.captured_call import AttentionCall
from glasshead.watching.image_finder import ImageFinder, takes_pictures
from glasshead.watching.keeping import Keeper
from glasshead.watching.layer_record import Watched
from glasshead.watching.mask_checks import MaskChecks
from glasshead.watching.observing import ObservedCall
from glasshead.watching.placing import PlacedCall
from glasshead.watching.recorded_call import Call, CallInfo


class Recorder:
    """Recorder of observed calls.

    Args:
        names: The modules of the model, and their names.
        statistics: Statistics by name.
        keeper: Keeps what was asked for beside these; None: nothing was.
        masks: Checks the masks by which the model runs.
        settle: Computes the statistics that calls wait for.

    Attributes:
        watched: The records of the observed attentions, by name, in order of execution.
        keeper, masks: The same.
        images: Finds the pictures among the keys of a call; None: the model takes none.
    """

    def __init__(
        self,
        names: Mapping[nn.Module, str],
        statistics: dict[str, Statistic],
        keeper: Keeper | None,
        masks: MaskChecks,
        settle: Callable[[], None],
    ) -> None:
        self.watched: dict[str, Watched] = {}
        self._calls: dict[str, list[Any]] = {}
        self.keeper, self.masks = keeper, masks
        self.images = ImageFinder(names) if takes_pictures(names) else None
        self._statistics, self._settle = statistics, settle

    def info(self, placed: PlacedCall, observed: ObservedCall) -> CallInfo:
        """Return what is known of a call beside its statistics."""
        (call, place, _, whole, merged, _), captured = placed, placed.call.captured
        return CallInfo(
            position=place.position,
            first_key=place.first_key,
            keys=whole.scores_shape[-1],
            crossing=captured.crossing,
            compressed=captured.compressed,
            heads=observed.heads,
            real=observed.real,
            forward=call.run.forward,
            run=call.run.repeat,
            interleaved=call.run.interleaved,
            beside=call.run.beside,
            merged=merged,
            by_hand=captured.by_hand,
            images=self._images(call),
            shards=captured.shards,
            text=place.text,
            rows=place.rows,
            apart=place.apart,
            untold=observed.untold,
            kernel=None if captured.one_pass is None else STREAMING.name,
        )

    def _images(self, call: AttentionCall) -> Images | str | None:
        if call.captured.over_features:
            return "its keys are features, and not patches"
        return None if self.images is None else self.images.images(call)

    def call(
        self, placed: PlacedCall, observed: ObservedCall, info: CallInfo
    ) -> Callable[[], Call]:
        """Check the mask of a call, keep what was asked for, and return what makes its record."""
        call, place, problem, whole, *_ = placed
        if call.name not in self.masks.settled:
            self.masks.check(call.name, whole, info)
        kept: dict[str, Any] = {}
        if self.keeper is not None and not place.unplaced:
            kept = self.keeper.of_call(call, problem)
        return self.made(observed.shape, observed.values, info, **kept)

    def made(
        self,
        shape: tuple[int, ...],
        values: dict[str, Any],
        info: CallInfo,
        statistics: dict[str, Statistic] | None = None,
        **kept: Any,
    ) -> Callable[[], Call]:
        """Return what makes the record of a call, once it is read.

        Args:
            shape: The axes of its statistics before those of their own.
            values: Its statistics by name.
            info: What else is known of it.
            statistics: The statistics that it has, by name; None: all that were requested.
            kept: What is kept, by the names of `Call`.
        """
        known = self._statistics if statistics is None else statistics
        return partial(Call, shape, known, values, info, **kept)

    def add(self, name: str, make: Callable[[], Call]) -> None:
        """Add a call to the record of its attention.

        Args:
            name: Name of the attention.
            make: Makes the record of the call, once it is read.
        """
        calls = self._calls.get(name)
        if calls is None:
            calls = self._calls[name] = []
            self.watched[name] = Watched(name, calls, self._settle)
        calls.append(make)
