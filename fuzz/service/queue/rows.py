"""Statements of which the two databases have one each, and records out of columns."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, and_, select
from sqlalchemy.dialects import postgresql, sqlite

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.storage.sql.service_tables import event
from kernel_assay.fuzz.service.queue.database import clean, plain

Kind = TypeVar("Kind", bound=Record)
SYSTEM = "kassay"
"""Who does what nobody asked for."""


def insert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what to do on a conflict."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def pairs(connection: Connection, asked: Any) -> dict[str, int]:
    """Two columns, the first by name."""
    return {row[0]: row[1] for row in connection.execute(asked)}


def moment(seconds: float | None) -> datetime | None:
    """The time of a column."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def text_of(record: Record) -> str:
    """A record as a column holds it."""
    return plain(record.plain())


def record_of(text: str, kind: type[Kind]) -> Kind:
    """The record of a column; it was validated when it came."""
    return kind.model_validate_json(text)


def note(
    connection: Connection, who: str, what: str, *, noun: str, about: str, words: str = "", project: str | None = None
) -> None:
    """Write down what happened: the audit log, the life of findings, and what people are told."""
    values = {"at": time.time(), "who": who or SYSTEM, "what": what, "noun": noun, "about": about, "project": project}
    connection.execute(event.insert().values(**values, words=clean(words, 2000)))


def happened(
    connection: Connection,
    *,
    noun: str = "",
    about: str | None = None,
    project: str | None = None,
    after: int | None = None,
    limit: int = 0,
) -> list[dict[str, str]]:
    """Events, the oldest first; with a limit, the latest first, those behind a place."""
    asked = [event.c.about == about] if about is not None else []
    asked += [event.c.project == project] if project is not None else []
    asked += [event.c.noun == noun] if noun else []
    asked += [event.c.seq < after] if after is not None else []
    order = select(event).where(and_(True, *asked)).order_by(event.c.seq.desc() if limit else event.c.seq)
    rows = connection.execute(order.limit(limit or 1000)).mappings()
    return [_event(row) for row in rows]


def _event(row: Any) -> dict[str, str]:
    said = {name: str(row[name]) for name in ("seq", "who", "what", "noun", "about", "words")}
    said["project"] = row["project"] or ""
    return {"at": datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="seconds"), **said}


def until_of(at: datetime | None) -> float | None:
    """A time as a column holds it. Raises UsageError for one without a zone, or that no calendar of ours has."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise UsageError("a time needs its zone, as in 2030-01-31T12:00:00Z")
    if not 2000 < at.year < 2200:
        raise UsageError(f"the year {at.year} is too far away")
    return at.timestamp()
