"""Routes under `/api`: functions of plain data, served by FastAPI."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Body, Path, Query, Request, Response

from glasshead.studio.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Streamed,
    numbers,
    run_job,
    run_reading_job,
    say_of,
)
from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio

Function = Callable[..., Any]
_REQUEST = "request"
_CONTENT = {
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}
_SUPPLIED = ("work", "say", "content")


class Routes:
    """The routes of a view; a decorator adds a function that answers.

    The parameters of a function are those of the request, each annotated by its limits as FastAPI
    names them: `Annotated[int, {"ge": 0}]`; a "default" may be one of them. A dataclass stands for
    its fields. Three parameters are supplied: `work` receives progress, `say` translates to the
    language of the request, and `content` is the request's body. The docstring describes the route
    and names the statuses of its refusals.

    Args:
        studio: The studio that is served.
        name: The view's name.
        prefix: The path of its routes under `/api`.

    Attributes:
        studio: The studio that is served.
        router: The routes, as FastAPI takes them.
    """

    def __init__(self, studio: Studio, name: str, prefix: str) -> None:
        self.studio = studio
        self.router = APIRouter(prefix=prefix, tags=[name], responses=REFUSALS)

    def at_once(self, path: str = "", *, method: str = "GET") -> Callable[[Function], Function]:
        """Serve plain data that takes no time to compute; what is sent by POST is JSON."""

        def added(function: Function) -> Function:
            answer = _Answer(function, path, method)

            def endpoint(request: Request, **given: Any) -> Any:
                return answer.of(given, say=say_of(request.scope))

            return self._add(answer, endpoint)

        return added

    def json(
        self, path: str = "", *, method: str = "GET", is_read: Callable[..., bool] | None = None
    ) -> Callable[[Function], Function]:
        """Serve plain data, computed as a job.

        Args:
            path: The path below the view's.
            method: GET, or POST of a `content`.
            is_read: Given the function's parameters, returns whether the text that they name has
                been read; otherwise the job takes a slot for reading. None: no text is read.
        """
        return partial(self._job, lambda result: result, {}, path, method, is_read)

    def numbers(
        self, path: str, *, is_read: Callable[..., bool] | None = None
    ) -> Callable[[Function], Function]:
        """Serve a tensor, computed as a job; `is_read` as of `json`."""
        options = {"response_class": Response, "responses": NUMBERS}
        return partial(self._job, numbers, options, path, "GET", is_read)

    def lines(self, path: str) -> Callable[[Function], Function]:
        """Serve progress and at last plain data, computed as a job with a slot for reading."""

        def added(function: Function) -> Function:
            answer = _Answer(function, path, "GET")

            def endpoint(request: Request, **given: Any) -> Response:
                say = say_of(request.scope)
                return Streamed(self.studio, lambda work: answer.of(given, work=work, say=say))

            return self._add(answer, endpoint, response_class=Response, responses=LINES)

        return added

    def _job(
        self,
        written: Callable[[Any], Any],
        options: Mapping[str, Any],
        path: str,
        method: str,
        is_read: Callable[..., bool] | None,
        function: Function,
    ) -> Function:
        answer = _Answer(function, path, method)

        async def endpoint(request: Request, **given: Any) -> Any:
            say = say_of(request.scope)
            content = await request.body() if answer.takes_content else b""

            def job(work: Work) -> Any:
                return answer.of(given, work=work, say=say, content=content)

            if is_read is None:
                return written(await run_job(request, job))
            ready = partial(is_read, **answer.asked(given))
            return written(await run_reading_job(request, ready, job))

        return self._add(answer, endpoint, **options)

    def _add(self, answer: "_Answer", endpoint: Function, **options: Any) -> Function:
        endpoint.__name__, endpoint.__doc__ = answer.function.__name__, answer.function.__doc__
        is_response = "response_class" in options
        signature = answer.signature(Response if is_response else None)
        endpoint.__signature__ = signature  # type: ignore[attr-defined] - FastAPI reads it
        if answer.takes_content:
            options["openapi_extra"] = _CONTENT
        self.router.add_api_route(answer.path, endpoint, methods=[answer.method], **options)
        return answer.function


class _Answer:
    """A function that answers, and what is asked for it.

    Args:
        function: As of `Routes`.
        path: The path below the view's.
        method: GET or POST.
    """

    def __init__(self, function: Function, path: str, method: str) -> None:
        self.function, self.path, self.method = function, path, method
        self._own = inspect.signature(function)
        self._taken = {
            name: each for name, each in self._own.parameters.items() if name not in _SUPPLIED
        }

    @property
    def takes_content(self) -> bool:
        """Whether the function takes the body of the request as it is."""
        return "content" in self._own.parameters

    def asked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's parameters, dataclasses made of those that stand for them."""
        return {
            name: _made(one.annotation, given) if is_dataclass(one.annotation) else given[name]
            for name, one in self._taken.items()
        }

    def of(self, given: Mapping[str, Any], **supplied: Any) -> Any:
        """Return what the function answers."""
        known = {name: supplied[name] for name in _SUPPLIED if name in self._own.parameters}
        return self.function(**self.asked(given), **known)

    def signature(self, returned: Any) -> inspect.Signature:
        """Return the signature of the endpoint, by which FastAPI knows what is asked.

        Args:
            returned: What the endpoint returns; None: what the function does.
        """
        request = inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
        asked = [part for one in self._taken.values() for part in self._parts(one)]
        return inspect.Signature(
            [request, *asked], return_annotation=returned or self._own.return_annotation
        )

    def _parts(self, one: inspect.Parameter) -> list[inspect.Parameter]:
        if not is_dataclass(one.annotation):
            return [self._parameter(one.name, one.annotation, one.default)]
        return [
            self._parameter(
                each.name, each.type, one.empty if each.default is MISSING else each.default
            )
            for each in fields(one.annotation)
        ]

    def _parameter(self, name: str, annotation: Any, default: Any) -> inspect.Parameter:
        kind, limits = annotation, {}
        if hasattr(annotation, "__metadata__"):
            kind, limits = get_args(annotation)
        limits = dict(limits)
        default = limits.pop("default", default)
        if default is inspect.Parameter.empty:
            # A URL has no null: what has to be given is not None.
            kind = _present(kind)
        if f"{{{name}}}" in self.path:
            form: Any = Path(**limits)
        else:
            form = Body(embed=True, **limits) if self.method == "POST" else Query(**limits)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, form],
        )


def _present(kind: Any) -> Any:
    """Return a type without None.

    >>> _present(str | None)
    <class 'str'>
    """
    if not isinstance(kind, UnionType):
        return kind
    (present,) = (each for each in get_args(kind) if each is not NoneType)
    return present


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    return kind(**{each.name: given[each.name] for each in fields(kind)})
