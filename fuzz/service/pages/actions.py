"""Actions of people on pages: sign in and out, decide, cancel. Forms bring a word of their session."""

from __future__ import annotations

import time
from datetime import date
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request, Response
from starlette.responses import RedirectResponse

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.api.parameters import Id, Named
from kernel_assay.fuzz.service.auth import COOKIE, SESSION_SECONDS, Caller, same_site
from kernel_assay.fuzz.service.core import Here, service_of
from kernel_assay.fuzz.service.pages.kit import HTML, draw, templates
from kernel_assay.fuzz.service.problems import RefusedError
from kernel_assay.fuzz.service.protocol import Checkout, JobKind, JobRequest, Scope
from kernel_assay.fuzz.service.queue import jobs, leases, life, upkeep
from kernel_assay.reports.formats.html import asset

router = APIRouter(include_in_schema=False)
Word = Annotated[str, Form(max_length=200)]
SEE_OTHER = 303
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Give the style or the script: those of the static page, and what live pages add."""
    files = {"style.css": ("style.css", "live.css"), "script.js": ("script.js", "live.js")}.get(name)
    if files is None:
        return Response(status_code=404)
    loader = templates().loader
    assert loader is not None
    text = asset(files[0]) + loader.get_source(templates(), files[1])[0]
    return Response(text, media_type=KINDS[name.rpartition(".")[2]], headers={"Cache-Control": "max-age=300"})


@router.get("/signin")
def sign_in_page(request: Request) -> Response:
    """Show where a token is given."""
    target = _inside(request.query_params.get("next", "/"))
    return Response(draw(request, "signin.html.j2", None, {"next": target, "wrong": "", "view": None}), media_type=HTML)


@router.post("/signin")
def sign_in(
    request: Request,
    here: Here,
    token: Annotated[str, Form(max_length=500)],
    target: Annotated[str, Form(alias="next", max_length=2000)] = "/",
) -> Response:
    """Sign a browser in by a token."""
    try:
        cookie = here.door.sign_in(token)
    except RefusedError as error:
        data = {"next": _inside(target), "wrong": str(error), "view": None}
        return Response(draw(request, "signin.html.j2", None, data), 401, media_type=HTML)
    return _signed_in(request, cookie, _inside(target))


@router.get("/signin/{word}")
def sign_in_once(word: str, request: Request, here: Here) -> Response:
    """Sign a browser in by the link that the server has printed."""
    cookie = here.door.redeem(word)
    if cookie is None:
        data = {"next": "/", "wrong": "this link was used, or its time is over; sign in by a token", "view": None}
        return Response(draw(request, "signin.html.j2", None, data), 401, media_type=HTML)
    return _signed_in(request, cookie, "/")


def _signed_in(request: Request, cookie: str, target: str) -> Response:
    answer = RedirectResponse(target, SEE_OTHER)
    secure = service_of(request).settings.secure
    answer.set_cookie(COOKIE, cookie, int(SESSION_SECONDS), httponly=True, samesite="strict", secure=secure)
    return answer


def _inside(target: str) -> str:
    """A path of this server; anything else is the first page."""
    parts = urlsplit(target)
    inside = target.startswith("/") and not target.startswith(("//", "/\\")) and not (parts.scheme or parts.netloc)
    return target if inside and target.isprintable() and target.isascii() else "/"


@router.post("/signout")
def sign_out(request: Request, here: Here, csrf: Word) -> Response:
    """Sign a browser out."""
    _person(request, csrf, Scope.READ)
    here.door.sign_out(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/signin", SEE_OTHER)
    answer.delete_cookie(COOKIE)
    return answer


def _person(request: Request, csrf: str, scope: Scope) -> Caller:
    """Whoever has sent a form of ours, and may. Raises RefusedError."""
    caller: Caller | None = request.app.state.door.caller(request)
    if caller is None or not caller.csrf or not same_site(request, caller, csrf):
        raise RefusedError("this form is not of this session; load the page again")
    if scope not in caller.scopes:
        raise RefusedError(f"the token {caller.name!r} has no scope {scope.value!r}")
    request.state.caller = caller.name
    return caller


@router.post("/findings/{name}/{what}")
def decide(
    name: Id,
    what: str,
    request: Request,
    here: Here,
    csrf: Word,
    project: Annotated[str, Form(max_length=100)] = "",
    reason: Annotated[str, Form(max_length=2000)] = "",
    until: Annotated[str, Form(max_length=20)] = "",
    address: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    """Decide about a finding: wontfix, reopen, bisect; or say where it is discussed."""
    caller = _person(request, csrf, Scope.SUBMIT)
    with here.database.writing() as connection:
        if what == "wontfix":
            if not reason.strip():
                raise UsageError("a finding that is let be needs a reason")
            life.wontfix(connection, name, project, caller.name, reason=reason, until=_day(until))
        elif what == "reopen":
            life.reopen(connection, name, project, caller.name)
        elif what == "discuss":
            life.discuss(connection, name, project, caller.name, address.strip())
        elif what == "bisect":
            jobs.submit(connection, _bisection(connection, name, project), caller.name)
        else:
            raise UsageError(f"{what[:40]!r} is nothing that can be done with a finding")
    here.changed()
    return RedirectResponse(f"/findings/{name}?project={project}" if project else f"/findings/{name}", SEE_OTHER)


def _bisection(connection: Any, name: str, project: str) -> JobRequest:
    told = upkeep.project_of(connection, project)
    if not told.head:
        raise UsageError(f"no commit of the project {project!r} has come yet")
    checkout = Checkout(repository=told.project.repository, commit=told.head)
    record = life.record(connection, name, project)
    return JobRequest(
        kind=JobKind.BISECT, project=project, target=told.project.target, checkout=checkout, finding=record, priority=6
    )


def _day(text: str) -> float | None:
    if not text:
        return None
    try:
        end = time.mktime(date.fromisoformat(text).timetuple()) + 86_400
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no date; write it as 2030-01-31") from None
    if end <= time.time():
        raise UsageError(f"{text} is over; it can only end in the future")
    return end


@router.post("/jobs/{name}/cancel")
def cancel(name: Id, request: Request, here: Here, csrf: Word) -> Response:
    """Take a job back."""
    caller = _person(request, csrf, Scope.SUBMIT)
    with here.database.writing() as connection:
        jobs.cancel(connection, name, caller.name)
    here.changed()
    return RedirectResponse(f"/jobs/{name}", SEE_OTHER)


@router.post("/jobs/{name}/again")
def again(name: Id, request: Request, here: Here, csrf: Word) -> Response:
    """Submit a job once more, as it was."""
    caller = _person(request, csrf, Scope.SUBMIT)
    with here.database.writing() as connection:
        made = jobs.again(connection, name, caller.name)
    here.changed()
    return RedirectResponse(f"/jobs/{made}", SEE_OTHER)


@router.post("/workers/{name}/{what}")
def drain(name: Named, what: str, request: Request, here: Here, csrf: Word) -> Response:
    """Let a worker take no task any more (`drain`), or again."""
    caller = _person(request, csrf, Scope.ADMIN)
    with here.database.writing() as connection:
        leases.drain(connection, name, caller.name, wanted=what == "drain")
    return RedirectResponse("/queue", SEE_OTHER)
