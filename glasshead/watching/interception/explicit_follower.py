"""Attention written by hand, softmax(Q·Kᵀ)·V, followed from one operator to the next.

Each operator of a watched model is looked at here once it has run. A tensor that may be a part of
attention has a record of its role (`explicit_records.py`); one without is any other tensor.

    x ──product with a parameter──▶ FEATURES q ─┐
                                                ├─product─▶ SCORES ──times 0.5, plus a mask─▶ SCORES
    x ──product with a parameter──▶ FEATURES k ─┘                                               │
                                                                                             softmax
    x ──product with a parameter──▶ FEATURES v ─┐                                               ▼
                                                ├─product─▶ output       WEIGHTS ◀─dropout─ WEIGHTS
                                     WEIGHTS ───┘  │
                                                   └─▶ `TakenWeights`: captured, and observed

What an operator does to roles:

- A product with a tensor of parameters alone, or a convolution by one, makes FEATURES. It mixes the
  heads of scores or weights that it is given, which keep their role.
- A product of any other two tensors makes SCORES. It is one of queries and keys if a softmax comes
  next, and of no concern if none does.
- A softmax of SCORES makes WEIGHTS, whether it is one operator or an exponential, a sum and a
  division (`explicit_normalized.py`). Its axis is that of the keys.
- A product of WEIGHTS takes them to values (`explicit_derived.py`).
- Any other operator hands on the greatest role among its inputs, with the axes as far as they can
  be told and its words, such as "times 0.5" (`explicit_derived.py`).

A softmax waits, open, until a product takes it. It closes unobserved when the memory of its weights
is gone, when `_WAITING` later ones wait, or when it does what no watch understands: then it keeps
the reason, and the end of the block gives it. A pass that began before operators were followed is
late: its softmaxes are of unknown scores, `LateWeights`, and one that is taken is refused.

What always holds:

- A record refers to the memory of its tensor weakly. What it keeps alive is scores: an open softmax
  those that it is of, an exponential those that its result does not show; and, where a trace was
  asked for, the operands of a product.
- A tensor made of several has the greatest of their roles: STATIC < FEATURES < SCORES < WEIGHTS.
- Products and softmaxes of a backward pass are not followed.
- An axis that cannot be told is None, never a guess; what needs it is refused by the name of the
  operator that lost it.
- After `stop` nothing has a record, and every softmax is reported with the reason.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from glasshead.watching.errors import (
    NOT_FOLLOWED,
    OF_A_PROJECTION,
    OVERWRITTEN,
)
from glasshead.watching.interception.axes import (
    Product,
    product,
    whole,
)
from glasshead.watching.interception.circumstances import in_backward
from glasshead.watching.interception.explicit_derived import (
    TOGETHER,
    are_heads,
    convolved_heads,
    derive,
    features_of,
    head_mixing,
    mixed_axes,
    mixes,
    steps_of_product,
    taken_by,
    tensors_among,
    weighed_values,
)
from glasshead.watching.interception.explicit_normalized import normalized
from glasshead.watching.interception.explicit_operators import Operator, operator_of
from glasshead.watching.interception.explicit_records import (
    MIXED,
    Change,
    HandWeights,
    LateWeights,
    Record,
    ScoreProduct,
    TakenWeights,
    TensorRecords,
    TensorRole,
)
from glasshead.watching.interception.session import Session
from glasshead.watching.missed import HandSoftmax
from glasshead.watching.module_calls import calling, calls_in_progress
from glasshead.watching.reasons import attends
from glasshead.watching.watcher import Watcher

_SOFTMAXES = {"aten::_softmax", "aten::softmax", "aten::special_softmax"}
# Softmaxes whose weights no product has taken so far; more are forgotten.
_WAITING = 4

_OF_NO_PRODUCT = "takes the softmax of what no product of queries and keys has made"
_OVER_ANOTHER_AXIS = (
    "takes its softmax over {}, which is neither the axis of keys nor that of queries"
)
_LATE = (
    "began within a pass, after one whose attention was left to functions, and "
    "needs a block of its own"
)


class HandFollower:
    """Follows matrix products and softmaxes, and reports those that are attention.

    Attributes:
        quiet: The modules that take exponentials of other numbers than scores.
    """

    def __init__(self) -> None:
        self.quiet: set[nn.Module] = set()
        self._needed = False
        # The pass that is not followed from its beginning: the outermost calls of the models.
        self._late: list[object] = []
        self._records = TensorRecords()
        self._watchers: tuple[Watcher, ...] = ()
        self._waiting: list[HandWeights | LateWeights] = []
        self._tracing = False
        self._stopped: str | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing was followed so far that only all operators would tell."""
        return self._records.follows and not self._needed

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
        self._stopped = why
        for weights in self._waiting:
            weights.close(why)
        self._waiting.clear()
        self._records.stop()
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
            record = self._records.of(scores)
        if record is None or record.kind is not TensorRole.SCORES or not output.ndim:
            if record is None and self._records.follows and self._is_late(session):
                self._remember_late(session, output)
            else:
                channels = _is_over_channels(record, args) and not _attend(session)
                session.record_softmax(1 if channels else output.ndim, self._why_not(record))
            return
        self._normalized(session, record, scores, args[1] % output.ndim, output)

    def _why_not(self, record: Record | None) -> str:
        """Return why a softmax is of no attention that is followed, a clause.

        Args:
            record: What is known of its input.
        """
        if not self._records.follows:
            return self._stopped or NOT_FOLLOWED
        of_features = record is not None and record.kind is TensorRole.FEATURES
        return OF_A_PROJECTION if of_features else _OF_NO_PRODUCT

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
                over = f"axis {axis} of {list(output.shape)}"
                session.record_softmax(output.ndim, _OVER_ANOTHER_AXIS.format(over))
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
        if self._records.of(output) is record is self._records.of(scores):
            found.waits, found.why = False, OVERWRITTEN
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
        self._records.remember(output, TensorRole.WEIGHTS, whole(output.shape), weights)
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
        if not self._records.follows:
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
            self._convolve(operator, args, kwargs, output)
            return None
        if operator.sums and not in_backward():
            session.record_mixing()
        records = [(self._records.of(one), one) for one in tensors_among(args)]
        known = [(record, one) for record, one in records if record is not None]
        alone = len(known) == len(records)
        if operator.exponential and all(one.kind is not TensorRole.SCORES for one, _ in known):
            self._exponentials(session, output)
        elif known and not self._normalizes(session, operator, known, args, output):
            derive(self._records, operator, known, args, output, alone=alone)
        return None

    def _exponentials(self, session: Session, output: Any) -> None:
        """Look at exponentials of what is not known as scores."""
        if self._is_late(session):
            step = Change("by exp", factor=None, exponential=True)
            self._records.remember(output, TensorRole.SCORES, steps=(step,))
        elif not self._needed and not in_backward():
            self.quiet |= {one for one in _modules(session) if one is not None}

    def _normalizes(
        self,
        session: Session,
        operator: Operator,
        known: Sequence[tuple[Record, Tensor]],
        args: Sequence[Any],
        output: Any,
    ) -> bool:
        """Follow a softmax that is written otherwise, if an operator completes one."""
        if not (
            operator.exponential or any(step.exponential for one, _ in known for step in one.steps)
        ):
            return False
        if in_backward():
            return False
        found = normalized(operator, known, args, output)
        if found is None:
            return False
        self._tidy()
        self._needed = True
        self._normalized(session, *found, output)
        return True

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
        records = [self._records.of(one) for one in found.operands]
        weights = [
            one for one in records if one and one.kind is TensorRole.WEIGHTS and one.origin.open
        ]
        static = [bool(one) and one.kind is TensorRole.STATIC for one in records]
        if weights and all(calling(one.names) is None for one in session.watchers):
            # A look at the weights, outside of the model.
            return None
        if len(weights) > 1:
            for one in weights:
                one.origin.close(TOGETHER)
        elif weights and isinstance(weights[0].origin, LateWeights):
            if not any(static):
                weights[0].origin.close(_LATE)
        elif weights:
            return self._take(operator, weights[0], records, found, args, output)
        elif any(static):
            # Of what is made of parameters, only all operators tell.
            own = found.operands[static.index(True)]
            self._needed |= not self._records.is_parameter(own)
            self._project(operator, records, found, int(static[1]), output)
        else:
            session.record_mixing()
            self._remember_scores(session, records, found, args, kwargs, output)
        return None

    def _remember_scores(
        self,
        session: Session,
        records: Sequence[Record | None],
        found: Product,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        output: Tensor,
    ) -> None:
        """Remember a product that may be one of queries and keys.

        Args:
            session: The session of this thread.
            records, found: What is known of both operands, and the product of them.
            args, kwargs, output: The operator.
        """
        for side, record in enumerate(records):
            if words := weighed_values(record, found, side):
                session.record_without_softmax(words)
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
        self._records.remember(output, TensorRole.SCORES, whole(output.shape), scores, steps)

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
        self._records.remember(output, TensorRole.WEIGHTS, axes, record.origin, steps)
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
            self._records.remember(
                output, TensorRole.SCORES, axes, scores.origin, steps, operator.name
            )
        else:
            places = found.places(side)
            self._records.remember(output, TensorRole.FEATURES, whole(output.shape), places)

    def _convolve(
        self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        """Remember a convolution by a parameter, which mixes heads, or whose channels are features.

        Args:
            operator, args, kwargs, output: The convolution.
        """
        kernel, given = self._records.of(args[1]), self._records.of(args[0])
        if kernel is None or kernel.kind is not TensorRole.STATIC:
            return
        channels = output.ndim - args[1].ndim + 1
        if given is None or given.kind < TensorRole.SCORES or given.origin is None:
            self._records.remember(
                output, TensorRole.FEATURES, whole(output.shape), frozenset({channels})
            )
            return
        mixing = convolved_heads(args, kwargs, output)
        axes = None if mixing is None else given.axes(args[0])
        if given.kind is TensorRole.WEIGHTS:
            mixes = axes is not None and are_heads(given.origin, axes[channels])
            steps = (*given.steps, Change(MIXED, mixing=mixing if mixes else None))
            axes = axes if mixes else None
        else:
            own = axes is not None and given.origin.side(axes[channels]) is None
            steps = (*given.steps, Change(MIXED, factor=None))
            axes = axes if own else None
        self._records.remember(output, given.kind, axes, given.origin, steps, operator.name)

    def _know_models(self, session: Session) -> None:
        """Remember the parameters of the watched models."""
        self._watchers = session.watches.every
        self._tracing = any(one.choice.keep == "trace" for one in self._watchers)
        for one in self._watchers:
            self._records.know(one.model.parameters())

    def _tidy(self) -> None:
        """Drop the softmaxes that wait for no product any more."""
        if not self._waiting:
            return
        for weights in self._waiting:
            if weights.open and all(one() is None for one in weights.made):
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
