"""Watches the model runner of a vLLM worker: copies queries, and settles them in time.

vLLM calls this in two places. `impl.forward` of each selected layer runs as it is, and its queries
are copied. Around `execute_model` the queries of the step go to their requests. Keys stay in the
paged cache until their request ends, so queries may wait: prompts until the end of their step,
generated tokens for many steps, and none until its blocks may be given to another request.

No error of this room reaches the engine: it ends the record of a request, in one sentence.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.serving.served_layers import ServedLayer, served_layers
from glasshead.serving.settling import Settler
from glasshead.serving.watched_request import Chunks, QueryRows, StepOutput, WatchedRequest
from glasshead.statistics import Entropy, MassOn, Statistic


@dataclass(frozen=True)
class ServedChoices:
    """The options of a watch of an engine.

    Attributes:
        statistics: Statistics by name.
        layers: Patterns of module names; None: all layers.
        keep: Whether the lazy weights are kept.
        budget: The most bytes of finished requests that nobody has read.
        expiry: The seconds after which these are dropped; None: never.
        asked_only: Whether only requests that ask for it by `vllm_xargs` are watched.
        every: How many steps of generated tokens wait for one another.
    """

    statistics: dict[str, Statistic]
    layers: str | list[str] | None = None
    keep: bool = False
    budget: int = 2**31
    expiry: float | None = None
    asked_only: bool = False
    every: int = 64


class _Step:
    """The copies of one step.

    Args:
        groups: The layers that are computed together.
        rows: The requests that are watched: name, first row, the row after the last, position of
            the first query, and whether it is the request's first step.
        tokens: The number of rows.
        like: The queries of a layer.
    """

    def __init__(
        self,
        groups: list[list[ServedLayer]],
        rows: list[tuple[str, int, int, int, bool]],
        tokens: int,
        like: Tensor,
    ) -> None:
        self.rows, self.tokens = rows, tokens
        self.ends: list[int] = []
        self.places: list[tuple[int, int]] = []
        for _, first, last, _, is_new in rows:
            opened = len(self.ends)
            self.ends += [first] if is_new and last - first > 1 else []
            self.places.append((opened, len(self.ends)))
            self.ends.append(last - 1)
        self._compared = torch.tensor(self.ends, device=like.device)
        self._every_row = self.ends == [*range(tokens)]
        sizes = [(len(one), one[0].heads * one[0].dim) for one in groups] if rows else []
        self.queries = [like.new_empty(many, tokens, width) for many, width in sizes]
        self.outputs = [like.new_empty(many, len(self.ends), width) for many, width in sizes]
        # Of each layer; a tensor is sliced faster at once than layer by layer.
        self._queries = [one.unbind() for one in self.queries]
        self._outputs = [one.unbind() for one in self.outputs]

    def copy(self, place: tuple[int, int], query: Tensor, output: Tensor) -> None:
        """Copy the queries of a layer, and those of its outputs that will be compared."""
        group, layer = place
        self._queries[group][layer].copy_(self._rows_of(query))
        made, into = self._rows_of(output), self._outputs[group][layer]
        if self._every_row:
            into.copy_(made)
        else:
            torch.index_select(made, 0, self._compared, out=into)

    def compared_queries(self) -> list[Tensor]:
        """Copy the queries whose outputs will be compared: a row that waits keeps no prompt."""
        if self._every_row:
            return self.queries
        return [one.index_select(1, self._compared) for one in self.queries]

    def _rows_of(self, numbers: Tensor) -> Tensor:
        """Return a row for each token, without those that pad a batch."""
        many = len(numbers)
        rows = numbers.view(many, -1)
        return rows if many == self.tokens else rows[: self.tokens]


class EngineWatcher:
    """A watch of the model runner of one worker.

    Args:
        runner: The model runner.
        choices: The options.

    Attributes:
        layers: The layers that are watched, by name.
        requests: The requests that were seen and not taken, by the engine's names.
        forgotten: How many finished requests were dropped, as nobody read them in time.
        sums: Of each layer: queries so far, and the sums of entropy and mass on the first key over
            them, each the mean of the heads.
        seconds: The processor time that the watch has taken, in all threads.

    Errors: as of `served_layers`.
    """

    def __init__(self, runner: Any, choices: ServedChoices) -> None:
        self.layers = served_layers(runner, choices.layers)
        self.choices, self._runner = choices, runner
        alike: dict[Any, list[ServedLayer]] = {}
        for one in self.layers.values():
            alike.setdefault(one.kind, []).append(one)
        self.groups = [*alike.values()]
        self._settler = Settler(self.groups, choices.statistics, keep=choices.keep)
        self.requests: dict[str, WatchedRequest] = {}
        self._ended: deque[WatchedRequest] = deque()
        self._unread = 0
        self.forgotten, self.seconds = 0, 0.0
        self.sums = {name: [0, 0.0, 0.0] for name in self.layers}
        # Windows give back a block as soon as no later query sees it.
        self._windows = {
            (one[0].before, one[0].layout.size * one[0].blocks)
            for one in self.groups
            if one[0].before is not None
        }
        self._step: _Step | None = None
        self._scheduled: Any = None
        self._execute = runner.execute_model
        for group, several in enumerate(self.groups):
            for place, one in enumerate(several):
                impl = one.layer.impl
                impl.forward = self._observed((group, place), impl.forward)
        runner.execute_model = self._observe_step

    def stop(self) -> None:
        """Settle what waits, and leave nothing wrapped."""
        for one in self.layers.values():
            vars(one.layer.impl).pop("forward", None)
        vars(self._runner).pop("execute_model", None)
        self._guarded(self._going(), self._close, self.requests.values())

    # The two places in which vLLM calls us.

    def _observe_step(self, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        self._guarded(self._going(), self._before, scheduled)
        self._scheduled = scheduled
        try:
            return self._execute(scheduled, *args, **kwargs)
        finally:
            step, self._step, self._scheduled = self._step, None, None
            if step is not None and step.rows:
                self._guarded([row[0] for row in step.rows], self._after, step)

    def _observed(self, place: tuple[int, int], forward: Callable[..., Any]) -> Callable[..., Any]:
        def observed(
            layer: Any,
            query: Tensor,
            key: Any,
            value: Any,
            cache: Any,
            metadata: Any,
            output: Any,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            result = forward(layer, query, key, value, cache, metadata, output, *args, **kwargs)
            # Outside of a step, such as while it warms up, the engine reads no request.
            if self._scheduled is not None and metadata is not None:
                names = self._scheduled.num_scheduled_tokens
                self._guarded(names, self._copy, place, query, metadata, output)
            return result

        return observed

    def _going(self) -> list[str]:
        """Return the requests that have not finished: of the others nothing is lost any more."""
        return [name for name, one in self.requests.items() if one.ended is None]

    def _guarded(self, names: Iterable[str], work: Callable[..., None], *arguments: Any) -> None:
        """Do some work of ours, whose errors end the records of the requests of these names."""
        started = time.process_time()
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - the engine goes on, whatever we did wrong
            # The rest of the step is passed over.
            self._step = self._scheduled = None
            for name in [*names]:
                if name in self.requests or not self.choices.asked_only:
                    self._request(name, 0).fail(_sentence(error))
        self.seconds += time.process_time() - started

    # What they do.

    def _before(self, scheduled: Any) -> None:
        """Settle what will not be there after this step."""
        finished, preempted = scheduled.finished_req_ids, scheduled.preempted_req_ids or ()
        going = [self.requests[name] for name in preempted if name in self.requests]
        self.settle(going)
        for one in going:
            one.preemptions += 1
            one.opened = one.latest = None
        self._finish(self.requests[name] for name in finished if name in self.requests)
        if self._windows:
            live = (self.requests.get(name) for name in scheduled.num_scheduled_tokens)
            self.settle([one for one in live if one is not None and self._loses_keys(one)])
        self._forget()

    def _loses_keys(self, request: WatchedRequest) -> bool:
        """Return whether the next step may give away keys that a waiting query sees."""
        return bool(request.waiting) and any(
            (request.end - before) // size > max(0, request.settled - before) // size
            for before, size in self._windows
        )

    def _copy(self, place: tuple[int, int], query: Tensor, metadata: Any, output: Tensor) -> None:
        if self._step is None:
            self._step = self._new_step(query)
        if not self._step.rows:
            return
        if getattr(metadata, "causal", True) is not True:
            raise ValueError("the attention of the request is not causal")
        self._step.copy(place, query, output)

    def _new_step(self, query: Tensor) -> _Step:
        """Find which rows of the batch belong to which request: those of row i to the i-th."""
        batch, counts = self._runner.input_batch, self._scheduled.num_scheduled_tokens
        rows, first = [], 0
        for place, name in enumerate(batch.req_ids):
            last = first + counts[name]
            if self._is_asked(name):
                known = self.requests.get(name)
                is_new = known is None or known.ended is not None
                position = int(batch.num_computed_tokens_cpu[place])
                rows.append((name, first, last, position, is_new))
            first = last
        return _Step(self.groups, rows, first, query)

    def _is_asked(self, name: str) -> bool:
        if not self.choices.asked_only:
            return True
        asked = getattr(self._runner.requests[name].sampling_params, "extra_args", None) or {}
        return bool(asked.get("glasshead"))

    def _request(self, name: str, position: int) -> WatchedRequest:
        """Return a request, which begins here if it is not known."""
        known = self.requests.get(name)
        if known is None or known.ended is not None:
            if known is not None:
                self._drop(known)
            chunks = [Chunks(self.choices.statistics) for _ in self.groups]
            known = self.requests[name] = WatchedRequest(name, position, chunks)
            known.kept_queries, known.kept_keys = ([[] for _ in self.groups] for _ in range(2))
        return known

    def _after(self, step: _Step) -> None:
        """Give the queries of a step to their requests, and settle what is not to wait."""
        now, compared = [], step.compared_queries()
        rows = zip(step.rows, step.places, strict=True)
        for (name, first, last, position, is_new), (opened, latest) in rows:
            request = self._request(name, position)
            # After a preemption queries are computed again.
            again = max(0, request.end - position)
            if request.error is not None or first + again >= last:
                continue
            if position > request.end:
                request.fail(
                    f"tokens {request.end} to {position - 1} of the request were not observed."
                )
                continue
            request.waiting.append(
                QueryRows(compared, latest, latest + 1)
                if last - first == 1
                else QueryRows(step.queries, first + again, last)
            )
            request.end = position + last - first
            if is_new:
                request.opened = StepOutput(position, opened, compared, step.outputs)
            request.latest = StepOutput(request.end - 1, latest, compared, step.outputs)
            if last - first > 1 or len(request.waiting) >= self.choices.every:
                now.append(request)
        self.settle(now)

    @torch.no_grad()
    def settle(self, requests: Iterable[WatchedRequest]) -> None:
        """Compute the statistics of all queries of some requests that wait."""
        several = [one for one in requests if one.error is None and one.waiting]
        self._compare([(one, one.opened) for one in several if one.opened is not None])
        for one in several:
            one.opened = None
        several = [one for one in several if one.error is None]
        if not several:
            return
        counts = [one.end - one.settled for one in several]
        try:
            found = self._settler.settle(several, self._runner.requests)
            self._add_to_sums(sum(counts), found)
        except Exception as error:  # noqa: BLE001 - the engine goes on, whatever we did wrong
            for one in several:
                one.fail(_sentence(error))

    def _compare(self, outputs: list[tuple[WatchedRequest, StepOutput]]) -> None:
        """Compare the engine's own outputs of queries with what follows from their inputs."""
        alike: dict[int, list[tuple[WatchedRequest, StepOutput]]] = {}
        for one in outputs:
            alike.setdefault(one[1].position, []).append(one)
        for position, several in alike.items():
            many = self._settler.at_a_time(position)
            for first in range(0, len(several), many):
                self._compare_alike(several[first : first + many])

    def _compare_alike(self, several: list[tuple[WatchedRequest, StepOutput]]) -> None:
        """Compare outputs at the same position: together, and if one differs, each by itself."""
        try:
            states = [self._runner.requests[one.name] for one, _ in several]
            name = self._settler.mismatch([output for _, output in several], states)
            said = name and (
                "watch_vllm needs attention that follows from its queries, keys and values, but "
                f"the output of {name!r} for token {several[0][1].position} does not. Omit it "
                "with layers=."
            )
        except Exception as error:  # noqa: BLE001 - the engine goes on, whatever we did wrong
            said = _sentence(error)
        if said and len(several) > 1:
            for one in several:
                self._compare_alike([one])
        elif said:
            several[0][0].fail(said)

    @torch.no_grad()
    def _close(self, requests: Iterable[WatchedRequest]) -> None:
        """Settle requests, and compare their last outputs."""
        several, known = [*requests], self._runner.requests
        self.settle(several)
        going = [one for one in several if one.error is None and one.name in known]
        self._compare([(one, one.latest) for one in going if one.latest is not None])
        for one in going:
            one.latest = None

    def _finish(self, requests: Iterable[WatchedRequest]) -> None:
        """Close requests that have ended, and count what they take until they are read."""
        several = [*requests]
        self._close(several)
        for one in several:
            if one.ended is None:
                one.finish()
                self._ended.append(one)
                self._unread += one.nbytes

    def _add_to_sums(self, count: int, found: list[dict[str, Any]]) -> None:
        """Add the statistics of some queries to the sums of each layer.

        Args:
            count: How many queries there are.
            found: Their statistics, by group and request.
        """
        places = {Entropy(): 1, MassOn([0]): 2}
        each = len(found) // len(self.groups)
        for number, layers in enumerate(self.groups):
            for name, statistic in self.choices.statistics.items():
                place = places.get(statistic, 0)
                for values in found[number * each : (number + 1) * each] if place else ():
                    means = values[name].mean(-2).sum(-1).flatten().tolist()
                    for one, mean in zip(layers, means, strict=True):
                        self.sums[one.name][place] += mean
            for one in layers:
                self.sums[one.name][0] += count

    def _forget(self) -> None:
        """Drop finished requests that nobody has read in time, or that take too much memory."""
        expiry = self.choices.expiry
        oldest = -1.0 if expiry is None else time.monotonic() - expiry
        while self._ended and (
            self._unread > self.choices.budget or (self._ended[0].ended or 0.0) < oldest
        ):
            self._drop(self._ended[0])
            self.forgotten += 1

    def _drop(self, request: WatchedRequest) -> None:
        """Drop a request that has finished."""
        if request in self._ended:
            self._ended.remove(request)
            self._unread -= request.nbytes
        if self.requests.get(request.name) is request:
            del self.requests[request.name]

    def taken(self, name: str, *, whole: bool) -> WatchedRequest:
        """Return a request, settled, and drop it if it has finished.

        Args:
            name: The name that the engine gives it.
            whole: Whether it is known to have finished, which the engine tells its workers later.
        """
        request = self.requests[name]
        if whole and request.ended is None:
            self._finish([request])
        self.settle([request])
        if request.ended is not None:
            self._drop(request)
        return request


def _sentence(error: Exception) -> str:
    """Return what an error says, as a sentence."""
    said = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    return f"watch_vllm could not observe the request, which ran all the same ({said})."
