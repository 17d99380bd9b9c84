"""Attention that ran and was not observed, as far as it is known when the block ends."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch import nn

from glasshead.watching.errors import NOT_TAKEN, NUMBERLESS, OF_A_PROJECTION, TRACED, UnseenError
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.module_calls import attention_name, calling, calls_in_progress
from glasshead.watching.other_mixers import OtherMixers, Unobserved, named
from glasshead.watching.reasons import (
    LoneSoftmax,
    attends,
    described,
    is_a_head,
    lone_softmax,
    not_run,
    own_names,
    unfollowed,
    without_attention,
    without_softmax,
)


@dataclass(eq=False)
class HandSoftmax:
    """A softmax of a product, which may belong to attention written by hand.

    Attributes:
        waits: Whether a product may still take its weights.
        taken: Whether one did, so that it was observed.
        why: Why one that took them could not be observed, a clause.
    """

    waits: bool = True
    taken: bool = False
    why: str | None = None


class MissedAttention:
    """Attention of a model that ran and was not observed.

    Args:
        model: The model.
        names: Its modules, and their names.
        layers: The layers that were selected.

    Attributes:
        ran: Whether a module of the model was called in this thread.
        others: The attentions that ran and were not selected, in order of execution.
    """

    def __init__(self, model: nn.Module, names: dict[nn.Module, str], layers: Layers) -> None:
        self._model, self._names, self._layers = model, names, layers
        self.ran, self._elsewhere = False, False
        self.others: dict[str, None] = {}
        self._why: dict[str, str] = {}
        self._compiled: dict[str, None] = {}
        # Modules that have mixed tokens by a product of two tensors, or a sum along a text.
        self._mixed: set[str] = set()
        # Softmaxes by hand: those that may still be observed, those that were not, and of these
        # the ones of attention by its name, and the ones that were followed and given up.
        self._waiting: list[tuple[str, int, HandSoftmax, bool]] = []
        self._softmaxes: dict[str, LoneSoftmax] = {}
        self._own: dict[str, LoneSoftmax] = {}
        self._unfollowed: dict[str, LoneSoftmax] = {}
        self._without_softmax: dict[str, str] = {}

    def update_running(self, *, elsewhere: bool = False) -> bool:
        """Update whether a module of the model was called, and return it.

        Args:
            elsewhere: Whether this is another thread than that of the block.
        """
        if not self.ran and calling(self._names) is not None:
            self.ran, self._elsewhere = not elsewhere, self._elsewhere or elsewhere
        return self.ran

    def record_unobserved(
        self, why: str, module: nn.Module | None, *, within: bool = False
    ) -> None:
        """Record an attention that cannot be observed, to report it at the end of the block.

        Args:
            why: The message, with {module} for its class and name.
            module: The module of the attention; None: the innermost module in progress.
            within: Whether it may be one of a module within that one.
        """
        module = module if module in self._names else calling(self._names)
        if module is None:
            return
        name = attention_name(self._names, module)
        if name in self._layers or (within and self._layers.touch(name)):
            self.record_named(name, why)

    def record_named(self, name: str, why: str) -> None:
        """Record an attention that cannot be observed, by its name."""
        self._why.setdefault(name, why)

    def record_mixing(self) -> None:
        """Record that the module in progress has mixed tokens by a product or a sum."""
        module = calling(self._names)
        if module is not None:
            self._mixed.add(self._names[module])

    def record_compiled(self) -> None:
        """Record that a module is being compiled."""
        module = calling(self._names)
        # A model compiled as a whole calls none of its modules.
        name = "" if module is None else self._names[module]
        if self._layers.touch(name):
            self._compiled[name] = None

    def record_softmax(self, axes: int, found: HandSoftmax | str) -> None:
        """Record a module that computes a softmax by hand.

        Args:
            axes: Number of axes of the softmax. With two or more it is taken for attention if the
                name of the module, of its class, or of the class that lists it as a head says so.
            found: What becomes of it, where it may be observed yet; else why it is not, a clause.
        """
        module = calling(self._names)
        if module is None:
            return
        name = self._names[module]
        calls = calls_in_progress(self._names)
        asked = any(call.arguments.get("output_attentions") is True for call in calls)
        if isinstance(found, str):
            self._record_unobserved(name, axes, LoneSoftmax(found, asked))
            return
        self._settle(at_end=False)
        self._waiting.append((name, axes, found, asked))

    def record_without_softmax(self, words: str) -> None:
        """Record that a module weighs values by scores without a softmax.

        Args:
            words: The steps from the queries to the values.
        """
        module = calling(self._names)
        if module is not None:
            self._without_softmax.setdefault(self._names[module], words)

    def _settle(self, *, at_end: bool) -> None:
        """Record the softmaxes that were not observed and will not be."""
        waiting, self._waiting = self._waiting, []
        for name, axes, found, asked in waiting:
            if found.waits and not at_end:
                self._waiting.append((name, axes, found, asked))
            elif not found.taken:
                softmax = LoneSoftmax(found.why or NOT_TAKEN, asked, found.why is not None)
                self._record_unobserved(name, axes, softmax)
                if found.why is not None:
                    self._unfollowed.setdefault(name, softmax)

    def _record_unobserved(self, name: str, axes: int, softmax: LoneSoftmax) -> None:
        self._softmaxes.setdefault(name, softmax)
        # A gate of an attention takes the softmax of a projection, too.
        named = attends(own_names(self._model, name, within=softmax.why != OF_A_PROJECTION))
        if axes > 1 and (named or is_a_head(self._model, name)):
            self._own.setdefault(name, softmax)

    def mixers(self, seen: Iterable[str]) -> dict[str, Unobserved]:
        """Return the layers that mix tokens by other means than attention, by their names.

        Args:
            seen: Names of the attentions that were observed.
        """
        found = OtherMixers(self._names).found([*seen, *self.others], self._mixed)
        return {name: Unobserved(kind, name in self._layers) for name, kind in found.items()}

    def check(self, seen: Collection[str]) -> None:
        """Check that no attention was missed.

        Args:
            seen: Names of the attentions that were observed.

        Errors: an `UnseenError` for one that cannot be seen.
        """
        if self._compiled:
            raise UnseenError(
                f"watch could not observe {described(self._model, [*self._compiled])}, because it "
                "was compiled inside the block. Watch the model uncompiled; for generate, pass "
                "disable_compile=True."
            )
        self._settle(at_end=True)
        self._check_softmaxes(seen)
        for name, why in self._why.items():
            if why in (NUMBERLESS, TRACED) and _saw(seen, name):
                # The model was also traced, and ran for real besides.
                continue
            raise UnseenError(why.format(module=described(self._model, [name])))
        bare = {n: one for n, one in self._without_softmax.items() if n in self._layers}
        if bare and not seen:
            raise UnseenError(without_softmax(self._model, bare))

    def check_mixers(self, seen: Collection[str]) -> None:
        """Check that no layer that mixes tokens without attention was missed.

        Args:
            seen: Names of the layers that were observed.

        Errors: an `UnseenError` for one that was selected.
        """
        found = {name: one.kind for name, one in self.mixers(seen).items() if one.selected}
        if found:
            raise UnseenError(
                f"mixers=True needs layers that call a reference kernel of transformers, but "
                f"{named(found)} did not. Run the model without fast kernels, or exclude this "
                "layer with layers=."
            )

    def _check_softmaxes(self, seen: Collection[str]) -> None:
        """Check that no softmax by hand was missed that is attention.

        Errors: an `UnseenError` for one.
        """
        for name, softmax in self._unfollowed.items():
            if name in self._layers:
                raise UnseenError(unfollowed(self._model, name, softmax))
        hidden = [
            n
            for n in self._own
            if n in self._layers and not (_saw(seen, n) or _is_within(n, self._why))
        ]
        if hidden:
            why = lone_softmax(self._model, hidden, self._own, "exclude these with layers=")
            raise UnseenError(
                "watch observes F.scaled_dot_product_attention, the attention interface of "
                "transformers, and explicit attention (two matrix products with a softmax between "
                f"them), but {why}"
            )

    def in_place_of_attention(self) -> str:
        """Return what a pattern may have met where it saw no attention, in sentences."""
        softmaxes = self._selected_softmaxes()
        return lone_softmax(self._model, [*softmaxes], softmaxes) if softmaxes else ""

    def nothing_seen(self) -> UnseenError:
        """Return the error for a model of which no attention was observed."""
        return UnseenError(
            without_attention(self._model, self._selected_softmaxes())
            if self.ran
            else not_run(self._model, elsewhere=self._elsewhere)
        )

    def _selected_softmaxes(self) -> dict[str, LoneSoftmax]:
        return {name: one for name, one in self._softmaxes.items() if name in self._layers}


def _saw(seen: Iterable[str], name: str) -> bool:
    """Return whether a module was observed, itself, within it, or as a part of another."""
    return any(f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in seen)


def _is_within(name: str, others: Iterable[str]) -> bool:
    """Return whether a module is one of others, or a part of one."""
    return any(name == one or name.startswith(f"{one}.") for one in others)
