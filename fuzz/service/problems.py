"""Troubles of a request, told as problem details (RFC 9457).

UsageError
├── RefusedError   401, 403: who asks, or what the token allows
├── MissingError   404
├── ConflictError  409: an old epoch; a job that is over
└── (any other UsageError is 422; 413, 415 and 429 are the guards' own)
"""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.protocol import Problem, words_of

MEDIA = "application/problem+json"
MOST_ERRORS = 5
"""Of a request that are named."""


class ServiceError(UsageError):
    """A request that is refused; the message is one sentence."""

    status = 422

    def __init__(self, message: str, *, status: int | None = None, headers: dict[str, str] | None = None) -> None:
        """status, headers: of the answer."""
        super().__init__(message)
        self.status, self.headers = status or type(self).status, headers or {}


class RefusedError(ServiceError):
    """Asked by nobody that is known, or by somebody who may not."""

    status = 403


class MissingError(ServiceError):
    """Asked for a name that nothing has."""

    status = 404


class ConflictError(ServiceError):
    """Right once, and no more."""

    status = 409


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """The answer that tells of a problem."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    detail = detail.encode("utf-8", "replace").decode("utf-8")
    body = Problem(title=title, status=status, detail=detail).model_dump_json()
    return Response(body, status, headers, MEDIA)


async def on_usage_error(request: Request, error: Exception) -> Response:
    """Tell of what a user has caused."""
    del request
    status, headers = (error.status, error.headers) if isinstance(error, ServiceError) else (422, {})
    return problem(status, str(error), headers)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Tell of a body or a parameter that is not what it must be, in one sentence."""
    del request
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    said = "; ".join(_sentence(one) for one in found[:MOST_ERRORS])
    more = f"; and {len(found) - MOST_ERRORS} more" if len(found) > MOST_ERRORS else ""
    return problem(422, f"{said}{more}")


def _sentence(error: dict[str, object]) -> str:
    place = error.get("loc", ())
    where = (
        ".".join(str(part)[:40] for part in place if part not in {"body", "query", "path"})
        if isinstance(place, tuple)
        else ""
    )
    said = words_of(error)
    if error.get("type") == "json_invalid":
        return said
    if place == ("body",) and error.get("type") != "value_error":
        return "the body must be a JSON object of the type application/json"
    return f"{where}: {said}" if where else said


async def on_http_error(request: Request, error: Exception) -> Response:
    """Tell of what the framework refuses: no such address, no such method, a body that is no JSON."""
    assert isinstance(error, HTTPException)
    said = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND and said == HTTPStatus.NOT_FOUND.phrase:
        said = f"there is nothing at {request.url.path[:200]}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said = f"{request.url.path[:200]} does not take {request.method}"
    return problem(error.status_code, said, dict(error.headers or {}))


async def on_bug(request: Request, error: Exception) -> Response:
    """Tell that the fault is ours, and nothing of it: the log has it."""
    del request, error
    return problem(500, "the server made a mistake; its log says which")
