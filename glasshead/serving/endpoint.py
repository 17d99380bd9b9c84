"""Responses of a vLLM server with statistics: the entry point `vllm.endpoint_plugins`.

    VLLM_PLUGINS=glasshead vllm serve MODEL

A request with `"vllm_xargs": {"glasshead": 1}` has a field `glasshead` in its response. For a
stream, GET /v1/glasshead/{id} returns it afterwards, once. Both are behind the server's own API
key, as all paths below /v1 are.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from glasshead.attention.io import packed, tensors_of
from glasshead.serving.results import SeenRequest, seen_of
from glasshead.serving.settings import settings_of
from glasshead.serving.watch_vllm import asked_of, external, joined_starts
from glasshead.watching.seen_file import KIND, contents

_PATHS = ("/v1/completions", "/v1/chat/completions")
# Seconds between two readings of the means.
_PAUSE = 10.0
_LOG = logging.getLogger("vllm.glasshead")


class Endpoint:
    """The plug-in of the server: the field of responses, a path, and gauges for Prometheus."""

    name = "glasshead"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._engine: Any = None
        self._polling: asyncio.Task[None] | None = None

    def attach_router(self, app: FastAPI) -> None:
        """Add the path, and the field to the responses of those of OpenAI."""
        app.add_api_route("/v1/glasshead/{request_id}", self.read, methods=["GET"])
        for route in [*app.routes]:
            if isinstance(route, APIRoute) and route.path in _PATHS:
                app.add_api_route(
                    route.path,
                    self._with_field(route.endpoint),
                    methods=[*(route.methods or ())],
                    dependencies=route.dependencies,
                    responses=route.responses,
                )

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Begin to watch the engine.

        Errors: a ValueError if a setting is invalid, or the engine cannot be watched.
        """
        self._engine = engine_client
        settings = settings_of(os.environ)
        joined_starts(await self._call("glasshead_start", asked_of(**settings, shared=True)))
        self._polling = asyncio.create_task(self._poll())

    async def _call(self, method: str, *arguments: Any) -> list[Any]:
        return await self._engine.collective_rpc(method, args=arguments)

    async def _poll(self) -> None:
        """Keep the gauges up to date, while the engine answers."""
        while True:
            await asyncio.sleep(_PAUSE)
            try:
                workers = await self._call("glasshead_means")
            except Exception as error:  # noqa: BLE001 - the server goes on, or ends by itself
                _LOG.warning("The means of attention are read no more: %s.", error)
                return
            set_gauges([json.loads(one) for one in workers])

    def _with_field(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a route whose JSON has a field more, where its request asks for it."""

        @wraps(original)
        async def with_field(*args: Any, **kwargs: Any) -> Any:
            response = await original(*args, **kwargs)
            given = next((one for one in kwargs.values() if hasattr(one, "vllm_xargs")), None)
            asked = (getattr(given, "vllm_xargs", None) or {}).get("glasshead")
            if not asked or not isinstance(response, JSONResponse) or response.status_code != 200:
                # A stream can be read afterwards.
                return response
            try:
                body = json.loads(bytes(response.body))
                found = await self._taken(body["id"], whole=True)
                body["glasshead"] = [as_json(name, one) for name, one in found]
                headers = {k: v for k, v in response.headers.items() if k != "content-length"}
                return JSONResponse(body, headers=headers)
            except Exception as error:  # noqa: BLE001 - the user's tokens are there
                _LOG.warning("A response has no attention: %s.", error)
                return response

        return with_field

    async def _taken(self, request_id: str, *, whole: bool) -> list[tuple[str, SeenRequest | str]]:
        """Return what was seen of the prompts and samples of a request, in order."""
        names = (await self._call("glasshead_names", request_id))[0]
        found = []
        for name in sorted(names, key=external):
            workers = [one for one in await self._call("glasshead_take", name, whole) if one]
            if workers:
                found.append((external(name), seen_of(workers)))
        return found

    async def read(self, request_id: str, format: str = "json", index: int = 0) -> Response:  # noqa: A002 - in the URL
        """Return what was seen of a request: all of it as JSON, or one prompt as safetensors."""
        found = await self._taken(request_id, whole=False)
        if format not in ("json", "safetensors"):
            return _error(400, f"format must be 'json' or 'safetensors', got {format!r}.")
        if not found:
            return _error(
                404,
                f"{request_id!r} was not observed, has been read, or was dropped. Ask with "
                '"vllm_xargs": {"glasshead": 1}, and read it in time.',
            )
        if format == "json":
            return JSONResponse([as_json(name, one) for name, one in found])
        if not 0 <= index < len(found):
            return _error(400, f"index must be in 0..{len(found) - 1}, got {index}.")
        name, seen = found[index]
        if isinstance(seen, str):
            return _error(500, seen)
        data = packed(KIND, *contents(dict(seen), {}))
        named = {"content-disposition": f'attachment; filename="{name}.safetensors"'}
        return Response(data, media_type="application/octet-stream", headers=named)


def _error(status: int, message: str) -> JSONResponse:
    """Return an error as the server's own."""
    kind = {404: "NotFoundError", 400: "BadRequestError"}.get(status, "InternalServerError")
    error = {"message": message, "type": kind, "param": None, "code": status}
    return JSONResponse({"error": error}, status_code=status)


def as_json(name: str, seen: SeenRequest | str) -> dict[str, Any]:
    """Return what was seen of a request, as lists of numbers."""
    if isinstance(seen, str):
        return {"request": name, "error": seen}
    layers = {
        layer: {what: one[0].tolist() for what, one in tensors_of(watched[0].values).items()}
        for layer, watched in seen.items()
    }
    known = "first_query", "preemptions", "finished"
    return {"request": name, **{one: getattr(seen, one) for one in known}, "layers": layers}


@cache
def _gauges() -> dict[str, Any]:
    """Make the gauges, once for a process."""
    # vLLM brings it.
    gauge = import_module("prometheus_client").Gauge
    about = {
        "entropy": "Mean entropy of attention over the queries and heads of a layer, in nats",
        "first_key": "Mean weight that the queries of a layer give to the first key",
        "queries": "Queries of a layer that were observed",
    }
    made = {
        name: gauge(f"glasshead_{name}", text, ["layer"], multiprocess_mode="mostrecent")
        for name, text in about.items()
    }
    text = "Requests whose statistics were dropped, as nobody read them in time"
    made["forgotten"] = gauge("glasshead_forgotten", text, multiprocess_mode="mostrecent")
    return made


def set_gauges(workers: list[dict[str, Any]]) -> None:
    """Set the gauges to the means of all workers.

    Args:
        workers: Of each worker, for each layer: its queries, and the sums over them.
    """
    gauges, layers = _gauges(), dict[str, list[list[float]]]()
    for worker in workers:
        for name, sums in worker["sums"].items():
            layers.setdefault(name, []).append(sums)
    for name, parts in layers.items():
        queries, entropy, first = (sum(one) for one in zip(*parts, strict=True))
        if queries:
            gauges["entropy"].labels(name).set(entropy / queries)
            gauges["first_key"].labels(name).set(first / queries)
            # Workers share the heads of a layer, and not its queries.
            gauges["queries"].labels(name).set(queries / len(parts))
    gauges["forgotten"].set(max((one["forgotten"] for one in workers), default=0))
