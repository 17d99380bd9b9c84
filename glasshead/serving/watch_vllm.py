"""Watch the requests of a vLLM engine in a block."""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from glasshead.attention.io import describe
from glasshead.recipe.validation import whole_number
from glasshead.serving.plugin import register
from glasshead.serving.results import SeenRequest, seen_of
from glasshead.statistics import Received, Statistic
from glasshead.statistics.base import normalize_statistics
from glasshead.watching.errors import UnseenError

# What vLLM appends to the name of a request, so that no two are the same.
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")


class SeenRequests(Mapping[str, SeenRequest]):
    """The requests of an engine that were observed, by their `request_id`.

    Of a request with several samples each is one of its own, as vLLM numbers them: "0_ID", "1_ID".

    Attributes:
        seconds: The processor time that the watch has taken in a worker, once the block has ended.
    """

    seconds = 0.0

    def __init__(self, call: Callable[..., list[Any]]) -> None:
        self._call: Callable[..., list[Any]] | None = call
        self._seen: dict[str, SeenRequest | str] = {}

    def __getitem__(self, request_id: str) -> SeenRequest:
        self.read()
        if request_id not in self._seen:
            known = ", ".join(map(repr, [*self._seen][:3])) or "nothing"
            raise KeyError(f"{request_id!r} was not observed; there is {known}.")
        found = self._seen[request_id]
        if isinstance(found, str):
            raise UnseenError(found)
        return found

    def __iter__(self) -> Iterator[str]:
        self.read()
        return iter(self._seen)

    def __len__(self) -> int:
        self.read()
        return len(self._seen)

    def read(self) -> None:
        """Take what workers have seen since."""
        call = self._call
        if call is None:
            return
        for name in call("glasshead_names")[0]:
            workers = [one for one in call("glasshead_take", (name, False)) if one]
            if workers:
                self._seen[external(name)] = seen_of(workers)

    def forget_engine(self) -> None:
        """Drop the reference to the engine, so that results do not keep its model in memory."""
        self._call = None

    @property
    def errors(self) -> dict[str, str]:
        """Why some requests were not observed, by their `request_id`."""
        return {name: one for name, one in self._seen.items() if isinstance(one, str)}

    def __repr__(self) -> str:
        many = len(self)
        return f"SeenRequests: {many} request{'' if many == 1 else 's'}"


@contextmanager
def watch_vllm(
    llm: Any,
    statistics: Sequence[Statistic] | Mapping[str, Statistic] = (),
    *,
    layers: str | Sequence[str] | None = None,
    keep: str | None = None,
    budget: int = 2**31,
    every: int = 64,
) -> Iterator[SeenRequests]:
    """Observe the attention of every request that a vLLM engine runs in the block.

    Statistics are exact: within 1e-5 of float64, computed from the queries and keys of this very
    run. Tokens are the same, with and without: the engine runs its own kernels, compiled or not,
    with paged keys, continuous batching, chunked prefill and the prefix cache. Nothing stays
    wrapped after the block.

    The engine's own output of the first and the last query of each layer and request is compared
    with what follows from their inputs. If one differs, reading that request raises an
    `UnseenError`.

    Tokens whose keys come from the prefix cache have no queries: `first_query` of a request is the
    position of its first one, and later queries are exact over all keys. To compute all of them,
    set `skip_reading_prefix_cache=True` in `SamplingParams`.

    Args:
        llm: A `vllm.LLM`, in this process or with workers in others.
        statistics: A list, or a dict keyed by name; glasshead's own, which follow from chunks of
            queries.
        layers: Patterns of module names, such as "model.layers.[26]*"; None: all layers.
        keep: "weights" also keeps the lazy `Weights` of each layer: queries and keys are copied.
        budget: Memory for requests that have finished and are not read, in bytes. Beyond it, the
            oldest are dropped, and a warning at the end of the block says how many.
        every: How many generated tokens of a request wait for one another. More of them cost less
            time, and the memory of their queries.

    Yields: a `Seen` of each request by its `request_id`, with the `Watched` of each layer,
    statistics `[1, heads, …]`.

    Errors: a TypeError or ValueError if an argument is invalid, or the engine cannot be watched. At
    the end of the block an `UnseenError` if a request was not observed, or none ran.
    """
    if not callable(getattr(llm, "collective_rpc", None)):
        raise TypeError(f"watch_vllm needs a vllm.LLM, got {type(llm).__name__}. Pass an engine.")
    if keep not in (None, "weights"):
        raise ValueError(f"keep must be 'weights' or nothing, got {keep!r}.")
    given = [*statistics] if isinstance(statistics, tuple) else statistics
    requested = checked(normalize_statistics(given))
    if not requested and keep is None:
        raise ValueError(
            "watch_vllm needs statistics such as [gh.Entropy()], or keep='weights', got neither."
        )
    asked = asked_of(
        requested,
        layers=layers if layers is None or isinstance(layers, str) else [*layers],
        keep=keep is not None,
        budget=whole_number(budget, "budget"),
        every=whole_number(every, "every", least=1),
    )

    def call(method: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        return llm.collective_rpc(method, args=arguments)

    start(call, asked)
    seen = SeenRequests(call)
    try:
        yield seen
    finally:
        try:
            ended = [json.loads(one) for one in call("glasshead_stop")]
            seen.seconds = max(one["seconds"] for one in ended)
            seen.read()
            call("glasshead_end")
        finally:
            # An engine that has died answers none of these.
            seen.forget_engine()
    forgotten = max(one["forgotten"] for one in ended)
    if forgotten:
        warnings.warn(
            f"watch_vllm dropped {forgotten} of the requests, as they took more than "
            f"budget={budget} bytes. Raise budget=, or narrow layers=.",
            stacklevel=3,
        )
    errors = seen.errors
    if errors:
        first = next(iter(errors.values()))
        raise UnseenError(
            f"{len(errors)} of {len(seen)} requests were not observed. The first: {first}"
        )
    if not len(seen) and not forgotten:
        raise UnseenError("watch_vllm saw no request. Call llm.generate in the block.")


def start(call: Callable[..., list[Any]], asked: str) -> list[str]:
    """Begin a watch in all workers, and return the names of the layers.

    Errors: a ValueError if the engine cannot be watched.
    """
    # An engine in this process may have been built before the plugin was installed.
    register()
    return joined_starts(call("glasshead_start", (asked,)))


def joined_starts(workers: Sequence[str]) -> list[str]:
    """Return the names of the layers of all workers, as `glasshead_start` gives them.

    Errors: a ValueError if one of them cannot be watched.
    """
    answers = [json.loads(one) for one in workers]
    refusal = next((one["refusal"] for one in answers if "refusal" in one), None)
    if refusal is not None:
        raise ValueError(refusal)
    return [*dict.fromkeys(name for one in answers for name in one["layers"])]


def external(name: str) -> str:
    """Return the `request_id` of a request that vLLM has renamed, so that no two are the same.

    >>> external("cmpl-7-0-1f0c2a9b"), external("0")
    ('cmpl-7-0', '0')
    """
    return _SUFFIX.sub("", name)


def asked_of(statistics: Mapping[str, Statistic], **choices: Any) -> str:
    """Return the choices of a watch as JSON, as `glasshead_start` takes them."""
    described = {name: describe(one) for name, one in statistics.items()}
    return json.dumps({"statistics": described, **choices})


def follows_from_chunks(statistic: Statistic) -> bool:
    """Return whether a statistic can be joined from those of chunks of queries."""
    last = isinstance(statistic, Received) and statistic.last is not None
    return not last and type(statistic).joined is not Statistic.joined


def checked(statistics: dict[str, Statistic]) -> dict[str, Statistic]:
    """Return statistics that follow from chunks of queries, and that another process knows.

    Errors: a ValueError for another one.
    """
    for one in statistics.values():
        if "fields" not in describe(one):
            raise ValueError(f"watch_vllm needs statistics of glasshead itself, got {one!r}.")
        if not follows_from_chunks(one):
            raise ValueError(
                f"watch_vllm needs statistics that follow from chunks of queries, got {one!r}. Use "
                "keep='weights', and compute it from these."
            )
    return statistics
