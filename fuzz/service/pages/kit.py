"""Makes pages: one function gathers its data, which is drawn as HTML, sent as JSON, and kept live."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request, Response
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape
from pydantic import BaseModel
from sqlalchemy import Connection, select
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, StreamingResponse

from kernel_assay.corpus.storage.sql.service_tables import project
from kernel_assay.fuzz.service.api.jobs import sent
from kernel_assay.fuzz.service.auth import Caller
from kernel_assay.fuzz.service.core import Service, service_of
from kernel_assay.fuzz.service.problems import RefusedError, ServiceError
from kernel_assay.fuzz.service.protocol import Scope
from kernel_assay.reports.formats import html

Data = dict[str, Any]
Gather = Callable[["View"], Data]
HTML = "text/html; charset=utf-8"
LIVE_SECONDS, LIVE_PAUSE = 3600.0, 1.0
"""How long a page is kept live by one request, and how often it is drawn at most."""


class View:
    """A request for a page: who asks, for what, and a transaction to look with."""

    def __init__(self, here: Service, caller: Caller, request: Request, connection: Connection) -> None:
        self.here, self.caller, self.connection = here, caller, connection
        self.query = {name: value for name, value in request.query_params.items() if value and "\0" not in value}
        self.path = {name: str(value) for name, value in request.path_params.items()}

    def number(self, name: str, most: int = 2**63 - 1) -> int | None:
        """A number of the query; None: there is none, or it is no number."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most else None

    def link(self, **changes: Any) -> str:
        """The query of this page with some of it changed."""
        said = {name: value for name, value in {**self.query, **changes}.items() if value is not None}
        return "?" + urlencode(said)


def router_of(routes: dict[str, tuple[str, Gather]]) -> APIRouter:
    """Make the routes of all pages: path -> (template, gather). Each has two more, PATH.json and PATH/live."""
    router = APIRouter(include_in_schema=False)
    for path, (template, gather) in routes.items():
        name = path if path != "/" else "/overview"
        router.add_api_route(f"{name}.json", _json(gather), methods=["GET"])
        router.add_api_route(f"{name}/live", _live(template, gather), methods=["GET"])
        router.add_api_route(path, _page(template, gather), methods=["GET"])
    return router


def reader(request: Request) -> Caller:
    """Whoever may read pages. Raises RefusedError."""
    caller: Caller | None = request.app.state.door.caller(request)
    if caller is None:
        raise RefusedError("sign in to read this", status=401)
    if Scope.READ not in caller.scopes:
        raise RefusedError(f"the token {caller.name!r} has no scope 'read'")
    request.state.caller = caller.name
    return caller


def _gathered(request: Request, gather: Gather) -> tuple[Caller, Data]:
    here, caller = service_of(request), reader(request)
    here.sweep()
    with here.database.reading() as connection:
        view = View(here, caller, request, connection)
        known = set(connection.scalars(select(project.c.name)))
        return caller, {"view": view, "_known": known, **gather(view)}


def _page(template: str, gather: Gather) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        try:
            caller, data = _gathered(request, gather)
        except ServiceError as error:
            return refusal(request, error)
        return Response(draw(request, template, caller, data), media_type=HTML)

    return page


def refusal(request: Request, error: ServiceError) -> Response:
    """A page that says what is wrong; who is not signed in is sent to where that is done."""
    if error.status == 401:
        return RedirectResponse(f"/signin?next={quote(request.url.path)}", 303)
    text = draw(request, "wrong.html.j2", None, {"status": error.status, "message": str(error), "view": None})
    return Response(text, error.status, media_type=HTML)


def _json(gather: Gather) -> Callable[[Request], Response]:
    def data(request: Request) -> Response:
        _, found = _gathered(request, gather)
        said = {name: value for name, value in found.items() if name != "view" and not name.startswith("_")}
        return Response(json.dumps(said, default=_plain, allow_nan=False), media_type="application/json")

    return data


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return json.loads(value.model_dump_json())
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _live(template: str, gather: Gather) -> Callable[[Request], Any]:
    async def live(request: Request) -> Response:
        await run_in_threadpool(reader, request)
        return StreamingResponse(_fragments(request, template, gather), media_type="text/event-stream")

    return live


async def _fragments(request: Request, template: str, gather: Gather) -> AsyncIterator[str]:
    """Yield the live part of a page whenever it has changed."""
    here, shown = service_of(request), ""
    for _ in range(int(LIVE_SECONDS / LIVE_PAUSE)):
        waiting = asyncio.ensure_future(here.bell.wait(10.0))  # before it is drawn: no ring is missed
        await asyncio.sleep(0)
        try:
            text = await run_in_threadpool(_fragment, request, template, gather)
            yield sent("live", text) if text != shown else ": still there\n\n"
            shown = text
            await asyncio.sleep(LIVE_PAUSE)
            await waiting
        except ServiceError:
            return
        finally:
            waiting.cancel()
        if await request.is_disconnected():
            return


def _fragment(request: Request, template: str, gather: Gather) -> str:
    caller, data = _gathered(request, gather)
    made = templates().get_template(template)
    return "".join(made.blocks["live"](made.new_context(_context(request, caller, data))))


def draw(request: Request, template: str, caller: Caller | None, data: Data) -> str:
    """The text of a page."""
    text = templates().get_template(template).render(_context(request, caller, data))
    visible = html.CONTROL.sub(lambda found: chr(0x2421 if found[0] == "\x7f" else 0x2400 + ord(found[0])), text)
    return visible.encode("utf-8", "replace").decode("utf-8")


def _context(request: Request, caller: Caller | None, data: Data) -> Data:
    path = request.url.path.removesuffix("/live")
    scopes = {scope.value for scope in caller.scopes} if caller else set()
    return {"caller": caller, "may": scopes, "path": path, "now": datetime.now(UTC), **data}


@cache
def templates() -> Environment:
    """The templates of the static page, and beside them those of the live ones."""
    static = html.pages()
    assert static.loader is not None
    made = static.overlay(loader=ChoiceLoader([PackageLoader("kernel_assay.fuzz.service", "pages"), static.loader]))
    filters: dict[str, Callable[..., Any]] = {"when": when, "at": at, "quoted": quoted, "split": split}
    made.filters |= filters
    made.globals |= {name: made.get_template(f"{name}.html.j2").module for name in ("plots", "parts")}
    return made


def quoted(text: object) -> str:
    """A text as a part of an address."""
    return quote(str(text), safe="")


def split(text: str) -> Markup:
    """A long name that may be broken behind `_` and `/`."""
    return Markup(re.sub("([_/]+)", r"\1<wbr>", str(escape(text))))  # noqa: S704 (escaped here)


def ago(then: datetime | None) -> str:
    """Say how long ago it was, in the largest unit that fits."""
    if then is None:
        return "never"
    seconds = (datetime.now(UTC) - then).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= size:
            return f"{int(seconds / size)} {unit} ago" if seconds > 0 else f"in {int(-seconds / size)} {unit}"
    return "just now"


def at(then: datetime | None) -> str:
    """A time, to the minute, UTC."""
    return "" if then is None else then.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def when(then: datetime | str | None) -> Markup:
    """How long ago it was, and the exact time for whoever points at it."""
    then = datetime.fromisoformat(then) if isinstance(then, str) and then else then
    if not isinstance(then, datetime):
        return Markup("never")
    exact = then.astimezone(UTC)
    words = Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>')
    return words.format(exact, exact, ago(then))
