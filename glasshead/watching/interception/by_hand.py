"""Attention written by hand: the softmax between a product of queries and keys and one with values.

Every operator of a watched model passes by. Matrix products, softmaxes and what is made of them are
remembered by the memory of their results, weakly, so that a tensor lives no longer than it would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.private_names import private
from glasshead.watching.errors import WEAK_STORAGE, attends
from glasshead.watching.interception.axes import (
    Axis,
    AxisLayout,
    Product,
    broadcast,
    product,
    reshaped,
    whole,
)
from glasshead.watching.interception.by_hand_capture import step_of, steps_of_product
from glasshead.watching.interception.by_hand_operators import Operator, operator_of
from glasshead.watching.interception.by_hand_parts import (
    MIXED,
    Change,
    HandWeights,
    LateWeights,
    Record,
    ScoreProduct,
    TakenWeights,
    TensorRole,
)
from glasshead.watching.interception.by_hand_products import (
    features_of,
    head_mixing,
    mixed_axes,
    mixes,
    taken_by,
)
from glasshead.watching.interception.circumstances import in_backward
from glasshead.watching.interception.session import Session
from glasshead.watching.module_calls import calling, calls_in_progress
from glasshead.watching.watcher import HandSoftmax, Watcher

_SOFTMAXES = {"aten::_softmax", "aten::softmax", "aten::special_softmax"}
# Softmaxes whose weights no product has taken so far; more are forgotten.
_WAITING = 4
# Records of what is no parameter that are kept, besides those of memory that is in use.
_PASSING = 16

_TOGETHER = "combines the weights of several softmaxes"
_OVERWRITTEN = "writes its weights over its scores"
_LATE = (
    "began in the midst of a pass, after one whose attention was left to functions: run what it "
    "does by hand in a block of its own"
)


class HandFollower:
    """Follows matrix products and softmaxes, and reports those that are attention.

    Attributes:
        quiet: The modules that take exponentials of other numbers than scores.
    """

    def __init__(self) -> None:
        self.quiet: set[nn.Module] = set()
        # The storages of parameters, which last as long as the watch.
        self._parameters: set[int] = set()
        self._needed = False
        # The pass that is not followed from its beginning: the outermost calls of the models.
        self._late: list[object] = []
        self._records: dict[int, Record] = {}
        # The keys of all records but those of parameters.
        self._passing: list[int] = []
        self._limit = _PASSING
        self._watchers: tuple[Watcher, ...] = ()
        self._waiting: list[HandWeights | LateWeights] = []
        self._tracing = False
        self._weak: Any = private(WEAK_STORAGE)

    @property
    def idle(self) -> bool:
        """Whether nothing was followed so far that only all operators would tell."""
        return self._weak is not None and not self._needed

    def passes_over_exponentials(self, session: Session) -> bool:
        """Return whether exponentials are of no concern where they are computed now."""
        return all(one is None or one in self.quiet for one in _modules(session))

    def follow_late(self, session: Session) -> None:
        """Refuse softmaxes of what ran earlier in the pass in progress, which was not followed."""
        self._late = _passes(session)

    def _is_late(self, session: Session) -> bool:
        """Return whether the pass in progress was not followed from its beginning."""
        if self._late and not any(one in self._late for one in _passes(session)):
            self._late = []
        return bool(self._late)

    def stop(self, why: str | None = None) -> None:
        """Follow nothing any more, and give up what waits for a product."""
        self._weak = None
        for weights in self._waiting:
            weights.close(why)
        self._waiting.clear()
        self._records.clear()
        self._passing.clear()
        self._watchers = ()

    def softmax(self, session: Session, func: Any, args: Sequence[Any], output: Any) -> None:
        """Look at a softmax that has run."""
        if in_backward() or not isinstance(output, Tensor):
            return
        self._tidy()
        self._needed = self._needed or any(_modules(session))
        if session.band is not None:
            session.band.softmax(args[0], output)
            return
        scores, record = args[0], None
        if operator_of(func).name in _SOFTMAXES and len(args) > 1 and isinstance(args[1], int):
            record = self._record(scores)
        if record is None or record.kind is not TensorRole.SCORES or not output.ndim:
            if record is None and self._is_late(session):
                self._remember_late(session, output)
            else:
                channels = _is_over_channels(record, args) and not _attend(session)
                session.record_softmax(1 if channels else output.ndim)
            return
        self._normalized(session, record, scores, args[1] % output.ndim, output)

    def _normalized(
        self, session: Session, record: Record, scores: Tensor, axis: int, output: Tensor
    ) -> None:
        """Remember the weights of a softmax of scores.

        Args:
            session: The session of this thread.
            record: What is known of the scores.
            scores, axis, output: The softmax.
        """
        if record.origin is None:
            self._remember_late(session, output)
            return
        axes = record.axes(scores)
        queries, features = None, [False]
        if axes is not None and scores.shape[axis] > 1:
            side = record.origin.side(axes[axis])
            if side is None:
                # Over heads or a batch.
                session.record_softmax(output.ndim)
                return
            others = [n for n, one in enumerate(axes) if record.origin.side(one) == 1 - side]
            queries = others[0] if len(others) == 1 else None
            features = [
                any(part.axis in record.origin.features for part in axes[place])
                for place in (axis, queries)
                if place is not None
            ]
        found = HandSoftmax()
        session.record_softmax(output.ndim, found)
        if self._record(output) is record:
            found.waits, found.why = False, _OVERWRITTEN
            return
        made = HandWeights(
            scores,
            scores.shape,
            axis,
            queries,
            axes,
            any(features),
            all(features) and queries is not None,
            record.origin,
            record.steps,
            found,
        )
        self._wait(output, made)

    def _remember_late(self, session: Session, output: Tensor) -> None:
        """Remember a softmax of what was not followed, which may be attention."""
        found = HandSoftmax()
        session.record_softmax(output.ndim, found)
        self._wait(output, LateWeights(found))

    def _wait(self, output: Tensor, weights: HandWeights | LateWeights) -> None:
        """Wait for a product that takes the weights of a softmax."""
        self._remember(output, TensorRole.WEIGHTS, whole(output.shape), weights)
        self._waiting.append(weights)
        while len(self._waiting) > _WAITING:
            self._waiting.pop(0).close()

    def follow(
        self,
        session: Session,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        output: Any,
    ) -> TakenWeights | None:
        """Follow an operator that has run; return the weights that it took, if any.

        Args:
            session: The session of this thread.
            func, args, kwargs, output: An operator that is no attention itself, and no softmax.
        """
        if self._weak is None:
            return None
        if self._watchers != session.watches.every:
            self._know_models(session)
        operator = operator_of(func)
        if session.band is not None:
            session.band.follow(operator.name, args)
            return None
        if operator.product:
            return None if in_backward() else self._product(session, operator, args, kwargs, output)
        if operator.convolution:
            self._convolve(args[1], output)
            return None
        known, alone = [], True
        for one in _tensors(args):
            record = self._record(one)
            if record is None:
                alone = False
            else:
                known.append((record, one))
        if operator.exponential and all(one.kind is not TensorRole.SCORES for one, _ in known):
            self._exponentials(session, output)
        elif known and not self._divides_exponentials(session, operator, known, args, output):
            self._follow_known(operator, known, args, output, alone=alone)
        return None

    def _exponentials(self, session: Session, output: Any) -> None:
        """Look at exponentials of what is not known as scores."""
        if self._is_late(session):
            step = Change("by exp", factor=None, exponential=True)
            self._remember(output, TensorRole.SCORES, steps=(step,))
        elif not self._needed and not in_backward():
            self.quiet |= {one for one in _modules(session) if one is not None}

    def _divides_exponentials(
        self,
        session: Session,
        operator: Operator,
        known: Sequence[tuple[Record, Tensor]],
        args: Sequence[Any],
        output: Any,
    ) -> bool:
        """Follow a softmax that is written as exponentials divided by their sum, if it is one."""
        record, powers = known[0]
        if operator.name != "aten::div" or operator.mutates or powers is not args[0]:
            return False
        step = record.steps[-1] if record.kind is TensorRole.SCORES and record.steps else None
        if step is None or not step.exponential or not isinstance(args[1], Tensor):
            return False
        axis = _axis_of_sum(powers, args[1])
        if axis is None or in_backward():
            return False
        self._tidy()
        self._needed = True
        record = replace(record, steps=record.steps[:-1])
        self._normalized(session, record, powers.detach().log(), axis, output)
        return True

    def _follow_known(
        self,
        operator: Operator,
        known: Sequence[tuple[Record, Tensor]],
        args: Sequence[Any],
        output: Any,
        *,
        alone: bool,
    ) -> None:
        """Follow an operator on tensors of which something is known.

        Args:
            operator, args, output: The operator.
            known: What is known of its inputs.
            alone: Whether that is all of them.
        """
        record, source = max(known, key=lambda one: (one[0].kind, one[0].layout is not None))
        if record.kind is TensorRole.WEIGHTS:
            softmaxes = {one.origin for one, _ in known if one.kind is TensorRole.WEIGHTS}
            for origin in softmaxes if len(softmaxes) > 1 else ():
                origin.close(_TOGETHER)
        if _goes_on(operator, record, source, output, alone=alone):
            self._derive(operator, record, source, args, output)

    def _derive(
        self,
        operator: Operator,
        record: Record,
        source: Tensor,
        args: Sequence[Any],
        output: Any,
    ) -> None:
        """Remember the results of an operator as made of one of its inputs."""
        step = _steps(operator, args, source, output) if record.kind >= TensorRole.SCORES else ()
        for made in _tensors((output,)):
            if self._record(made) is record:
                # A view, or the same tensor with other numbers.
                record.steps += step if operator.mutates else ()
                continue
            axes = record.axes(source)
            if axes is not None:
                if operator.copies or operator.elementwise:
                    axes = broadcast(axes, source.shape, made.shape)
                    # A part of a larger tensor is written to.
                    axes = axes if not operator.mutates or _fills(made) else None
                else:
                    axes = reshaped(axes, source.shape, made.shape) if operator.reshapes else None
            lost = record.lost or ("" if axes is not None else operator.name)
            self._remember(made, record.kind, axes, record.origin, record.steps + step, lost)

    def _product(
        self,
        session: Session,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        output: Tensor,
    ) -> TakenWeights | None:
        """Look at a matrix product that has run; return the weights that it took, if any."""
        self._tidy()
        found = product(operator.name, args)
        if found is None:
            return None
        records = [self._record(one) for one in found.operands]
        weights = [
            one for one in records if one and one.kind is TensorRole.WEIGHTS and one.origin.open
        ]
        static = [bool(one) and one.kind is TensorRole.STATIC for one in records]
        if weights and all(calling(one.names) is None for one in session.watchers):
            # A look at the weights, outside of the model.
            return None
        if len(weights) > 1:
            for one in weights:
                one.origin.close(_TOGETHER)
        elif weights and isinstance(weights[0].origin, LateWeights):
            if not any(static):
                weights[0].origin.close(_LATE)
        elif weights:
            return self._take(operator, weights[0], records, found, args, output)
        elif any(static):
            # Of what is made of parameters, only all operators tell.
            own = found.operands[static.index(True)]
            self._needed |= own.untyped_storage()._cdata not in self._parameters  # noqa: SLF001
            self._project(operator, records, found, int(static[1]), output)
        else:
            features = frozenset(
                found.made.index(label)
                for side, record in enumerate(records)
                for label in features_of(record, found, side)
                if label in found.made
            )
            sides = found.places(0), found.places(1)
            kept = found if self._tracing else None
            scores = ScoreProduct(sides, output.dtype, features, kept)
            steps = steps_of_product(found, args, kwargs)
            self._remember(output, TensorRole.SCORES, whole(output.shape), scores, steps)
        return None

    def _take(
        self,
        operator: Operator,
        record: Record,
        records: Sequence[Record | None],
        found: Product,
        args: Sequence[Any],
        output: Tensor,
    ) -> TakenWeights | None:
        """Return the weights that a product took to values; follow those whose heads it mixes.

        Args:
            operator, args, output: The product.
            record: What is known of the weights.
            records, found: What is known of both operands, and the product of them.
        """
        mixed = head_mixing(operator.name, record, records, found, args)
        if mixed is None:
            return taken_by(record, records, found, output)
        axes, mixing = mixed
        steps = (*record.steps, Change(MIXED, mixing=mixing))
        self._remember(output, TensorRole.WEIGHTS, axes, record.origin, steps)
        return None

    def _project(
        self,
        operator: Operator,
        records: Sequence[Record | None],
        found: Product,
        side: int,
        output: Tensor,
    ) -> None:
        """Remember a product with a parameter, which stands on one side."""
        scores = records[1 - side]
        if scores and scores.kind is TensorRole.SCORES and mixes(scores, found, 1 - side):
            steps = (*scores.steps, Change(MIXED, factor=None))
            axes = mixed_axes(scores, found, 1 - side)
            self._remember(output, TensorRole.SCORES, axes, scores.origin, steps, operator.name)
        else:
            places = found.places(side)
            self._remember(output, TensorRole.FEATURES, whole(output.shape), places)

    def _convolve(self, kernel: Tensor, output: Tensor) -> None:
        """Remember a convolution by a parameter, whose channels are features."""
        record = self._record(kernel)
        if record is not None and record.kind is TensorRole.STATIC:
            channels = output.ndim - kernel.ndim + 1
            self._remember(output, TensorRole.FEATURES, whole(output.shape), frozenset({channels}))

    def _know_models(self, session: Session) -> None:
        """Remember the parameters of the watched models."""
        self._watchers = session.watches.every
        self._tracing = any(one.choice.keep == "trace" for one in self._watchers)
        for one in self._watchers:
            for parameter in one.model.parameters():
                if self._record(parameter) is None:
                    self._remember(parameter, TensorRole.STATIC)
        # Parameters last as long as the watch.
        self._parameters.update(self._passing)
        self._passing.clear()

    def _record(self, tensor: Tensor) -> Record | None:
        """Return what is known of a tensor."""
        try:
            return self._records.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - no other name
        except (RuntimeError, NotImplementedError):
            # A sparse or a nested tensor has no memory of one layout.
            return None

    def _remember(
        self,
        tensor: Any,
        kind: TensorRole,
        axes: Sequence[Axis] | None = None,
        origin: Any = None,
        steps: tuple[Change, ...] = (),
        lost: str = "",
    ) -> None:
        """Remember what a tensor is, as long as its memory lasts."""
        try:
            storage = self._weak(tensor.untyped_storage())
            layout = None if axes is None else AxisLayout(axes, tensor.stride())
        except (RuntimeError, NotImplementedError):
            return
        self._records[storage.cdata] = Record(storage, kind, layout, origin, steps, lost)
        if kind is TensorRole.WEIGHTS:
            origin.made.append(storage)
        self._passing.append(storage.cdata)
        if len(self._passing) > self._limit:
            self._forget()

    def _forget(self) -> None:
        """Drop the records of memory that is gone.

        Soon: what is left of a storage stands in the way of malloc, which cannot join the free
        memory on both sides of it.
        """
        kept = []
        for key in dict.fromkeys(self._passing):
            if self._records[key].storage.expired():
                del self._records[key]
            else:
                kept.append(key)
        self._passing, self._limit = kept, 2 * len(kept) + _PASSING

    def _tidy(self) -> None:
        """Drop the softmaxes that wait for no product any more."""
        if not self._waiting:
            return
        for weights in self._waiting:
            if weights.open and all(one.expired() for one in weights.made):
                weights.close()
        self._waiting = [weights for weights in self._waiting if weights.open]


def _modules(session: Session) -> list[nn.Module | None]:
    """Return the module of each watched model that runs, innermost; None outside of the model."""
    return [calling(one.names) for one in session.watchers]


def _attend(session: Session) -> bool:
    """Return whether a module that runs, innermost, is of a class that attends by its name."""
    return any(attends(type(one).__name__) for one in _modules(session) if one is not None)


def _is_over_channels(record: Record | None, args: Sequence[Any]) -> bool:
    """Return whether a softmax is over features of a projection, such as parallel streams."""
    if record is None or record.kind is not TensorRole.FEATURES or len(args) < 2:
        return False
    axes = record.axes(args[0])
    if axes is None or not isinstance(args[1], int):
        return False
    parts = axes[args[1]]
    return bool(parts) and all(part.axis in record.origin for part in parts)


def _passes(session: Session) -> list[object]:
    """Return what identifies the pass of each watched model that runs."""
    return [one.identity for w in session.watchers for one in calls_in_progress(w.names)[-1:]]


def _axis_of_sum(powers: Tensor, total: Tensor) -> int | None:
    """Return the axis along which a tensor is the sum of another; None where it is none."""
    if total.ndim not in (0, powers.ndim):
        return None
    shape = total.shape if total.ndim else [1] * powers.ndim
    axes = [n for n, size in enumerate(powers.shape) if size > 1 and shape[n] == 1]
    if len(axes) != 1:
        return None
    dtype = torch.promote_types(powers.dtype, torch.float32)
    sums = powers.detach().to(dtype).sum(axes[0], keepdim=True)
    total, rounding = total.detach().to(dtype), 64 * torch.finfo(powers.dtype).eps
    return axes[0] if torch.allclose(sums, total, rtol=rounding, atol=0.0) else None


def _goes_on(
    operator: Operator, record: Record, source: Tensor, output: Any, *, alone: bool
) -> bool:
    """Return whether the result of an operator is of the kind of its input.

    Args:
        operator: The operator.
        record: What is known of the greatest of its inputs.
        source: That input.
        output: The result.
        alone: Whether something is known of all of them.
    """
    if record.kind is TensorRole.STATIC:
        return alone
    if record.kind is TensorRole.FEATURES:
        # Normalized, too, and with a learned bias.
        moves = operator.copies or operator.reshapes or operator.scales
        return moves or (alone and operator.elementwise)
    if record.kind is TensorRole.SCORES:
        # Sums and norms of scores are none.
        return operator.copies or operator.reshapes or operator.moves or operator.elementwise
    if isinstance(record.origin, LateWeights) and not _keeps_all(operator, source, output):
        # A router chooses experts by its largest weights, and scales their outputs by them.
        return False
    return record.origin.open


def _keeps_all(operator: Operator, source: Tensor, output: Any) -> bool:
    """Return whether the result of an operator may still be weights for a product with values."""
    if operator.view or operator.copies or operator.reshapes:
        return True
    if not isinstance(output, Tensor):
        return False
    if operator.moves:
        return output.numel() >= source.numel()
    return output.numel() == source.numel()


def _steps(
    operator: Operator, args: Sequence[Any], source: Tensor, output: Any
) -> tuple[Change, ...]:
    """Describe what an operator does to scores or weights; nothing for a copy of the same type."""
    if operator.copies or operator.reshapes:
        same = not isinstance(output, Tensor) or output.dtype == source.dtype
        return () if same else (Change(f"in {str(output.dtype)[6:]}", keeps=True),)
    step = step_of(operator.name.rpartition("::")[2], args, source)
    return () if step is None else (step,)


def _tensors(given: Sequence[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results, those of lists included."""
    for one in given:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            for part in one:
                if isinstance(part, Tensor):
                    yield part


def _fills(tensor: Tensor) -> bool:
    """Return whether a tensor is all of its memory."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()
