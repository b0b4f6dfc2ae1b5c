"""The feed of findings, as Atom (RFC 4287): what has become of them, the latest first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from fastapi import APIRouter, Request, Response
from sqlalchemy import select

from kernel_assay.corpus.storage.sql.service_tables import event, life
from kernel_assay.fuzz.service.auth import Caller
from kernel_assay.fuzz.service.core import Here
from kernel_assay.fuzz.service.pages.kit import reader
from kernel_assay.fuzz.service.problems import RefusedError
from kernel_assay.fuzz.service.protocol import Scope
from kernel_assay.fuzz.service.queue import upkeep
from kernel_assay.fuzz.service.queue.database import Row
from kernel_assay.reports.formats.html import CONTROL

router = APIRouter(include_in_schema=False)
ATOM = "application/atom+xml; charset=utf-8"
TOLD = ("new", "reopened", "fixed", "wontfix")
MOST = 50


@router.get("/feed.atom")
def everything(request: Request, here: Here) -> Response:
    """Give the feed of the findings of all projects."""
    return _feed(request, here, None)


@router.get("/projects/{name}/feed.atom")
def of_project(name: str, request: Request, here: Here) -> Response:
    """Give the feed of a project's findings."""
    return _feed(request, here, name)


def _feed(request: Request, here: Here, project: str | None) -> Response:
    request.state.caller = _subscriber(request, here).name
    with here.database.reading() as connection:
        if project is not None:
            upkeep.project_of(connection, project)
        asked = select(event, life.c.subject, life.c.title, life.c.op, life.c.kind, life.c.dtype)
        asked = asked.join(life, (life.c.finding == event.c.about) & (life.c.project == event.c.project))
        asked = asked.where(event.c.noun == "finding", event.c.what.in_(TOLD))
        asked = asked.where(event.c.project != "" if project is None else event.c.project == project)
        rows = connection.execute(asked.order_by(event.c.seq.desc()).limit(MOST)).mappings()
        text = _atom([dict(row) for row in rows], here.settings.address, project, here.started)
    return Response(text, media_type=ATOM, headers={"Cache-Control": "private, max-age=60"})


def _subscriber(request: Request, here: Here) -> Caller:
    """Whoever reads a feed: as any page, or by a token of the scope `feed` as a password, or in the address.

    A token that is in an address is in logs and in exports of readers, so it opens nothing else. Raises RefusedError.
    """
    kind, _, said = request.headers.get("authorization", "").partition(" ")
    secret = request.query_params.get("token", "") or (_password(said) if kind.lower() == "basic" else "")
    if not secret:
        try:
            return reader(request)
        except RefusedError as error:
            asks = {"WWW-Authenticate": 'Basic realm="Kernel Assay: any name, and a token of the scope feed"'}
            words = "a feed is read by a token of the scope read, or one of the scope feed, as a password or ?token="
            raise RefusedError(words, status=error.status, headers=asks) from None
    found = here.door.holder(secret)
    if found is None or found.scopes != {Scope.FEED}:
        raise RefusedError("a feed is read by a token of the scope feed, and of no other", status=401)
    return found


def _password(said: str) -> str:
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return "?"


def _atom(rows: Sequence[Row], address: str, project: str | None, started: float) -> bytes:
    root = ET.Element("feed", xmlns="http://www.w3.org/2005/Atom")
    where = f"/projects/{project}" if project else ""
    _add(root, "id", f"urn:kassay:findings:{project or ''}")
    _add(root, "title", f"Kernel Assay: findings of {project}" if project else "Kernel Assay: findings")
    _add(root, "updated", _time(rows[0]["at"] if rows else started))
    _add(_add(root, "author"), "name", "Kernel Assay")
    _add(root, "link", rel="self", href=f"{address}{where}/feed.atom")
    _add(root, "link", rel="alternate", type="text/html", href=f"{address}{where or '/findings'}")
    for row in rows:
        _entry(_add(root, "entry"), row, address)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _entry(entry: ET.Element, row: Row, address: str) -> None:
    of = f"?project={row['project']}" if row["project"] else ""
    _add(entry, "id", f"urn:kassay:finding:{row['project']}:{row['about']}:{row['seq']}")
    _add(entry, "title", f"{row['what']}: {row['subject']}: {row['title']}")
    _add(entry, "updated", _time(row["at"]))
    _add(entry, "link", rel="alternate", type="text/html", href=f"{address}/findings/{row['about']}{of}")
    _add(entry, "category", term=row["what"])
    _add(entry, "summary", f"{row['op']}, {row['kind']}, {row['dtype']}. {row['words']}".strip())


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    """Append an element; characters that XML has no place for are replaced."""
    made = ET.SubElement(parent, name, {key: _sound(value) for key, value in attributes.items()})
    made.text = _sound(text) or None
    return made


def _sound(text: str) -> str:
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).translate({0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
