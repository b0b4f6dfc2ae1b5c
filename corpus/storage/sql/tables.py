"""The tables of a database: every record as its JSON text, and beside it the columns that are asked for.

A table that is added here, or changed, takes a migration in versions/ (migrations/env.py says how they run). Text, not
a JSON type, holds records: databases that parse JSON reorder its keys, and refuse what a kernel may have said.
Rows belong to a project, so that one database holds several corpora; without one it is the empty text.
Times are texts in UTC, ISO 8601, as the records write them: they sort as times do.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, Text, UniqueConstraint

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Number = BigInteger().with_variant(Integer(), "sqlite")
"""A number that rows are given in the order in which they come."""


def _text(name: str, **settings: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **settings)


def _key(name: str) -> Column[str]:
    return _text(name, primary_key=True)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def _numbered() -> Column[int]:
    return Column("number", Number, primary_key=True, autoincrement=True)


findings = Table(
    "findings",
    metadata,
    _key("project"),
    _key("id"),
    _text("op"),
    _text("subject"),
    _text("kind"),
    _text("dtype"),
    _text("signature"),
    _text("state"),
    _text("expect"),
    _flag("seeded"),
    _count("count"),
    _text("first_seen"),
    _text("last_seen"),
    _text("record"),
    Index(None, "project", "op"),
    Index(None, "project", "state"),
    Index(None, "project", "last_seen"),
)
regressions = Table(
    "regressions", metadata, _key("project"), _key("path"), _text("op"), _text("finding"), _text("record")
)
seeds = Table(
    "seeds",
    metadata,
    _numbered(),
    _text("project"),
    _text("op"),
    _text("id"),
    _text("record"),
    UniqueConstraint("project", "op", "id"),
)
runs = Table(
    "runs",
    metadata,
    _key("project"),
    _key("run"),
    _text("started"),
    _text("updated"),
    _flag("finished"),
    _count("next_index"),
    _count("cases"),
    _count("judged"),
    _text("record"),
    Index(None, "project", "updated"),
)
journals = Table(
    "journals",
    metadata,
    _numbered(),
    _text("project"),
    _text("run"),
    _text("kind"),
    _text("record"),
    Index(None, "project", "run", "kind", "number"),
)
kept = Table("kept", metadata, _key("project"), _key("name"), _count("size"), _text("record"))
"""Outputs that were kept under the name of a run or a finding; record: a line each."""
proofs = Table("proofs", metadata, _key("project"), _key("op"), _key("subject"), _text("at"), _text("record"))
timings = Table("timings", metadata, _key("project"), _key("run"), _text("record"))
