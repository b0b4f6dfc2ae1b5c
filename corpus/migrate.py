"""Bring records of older schemas up to date, one step at a time, and refuse those that no step is known for."""

from collections.abc import Callable
from typing import Any

from corpus.errors import UsageError
from corpus.record import SCHEMA_VERSION

Raw = dict[str, Any]

MIGRATIONS: dict[int, Callable[[Raw, str], Raw]] = {}
"""Version -> the step from it to the next: (JSON object, kind of record) -> JSON object; it may change its argument.

Empty until SCHEMA_VERSION is raised for the first time. A step sees one record; a finding's cases come to it as records
of their own.
"""

_NESTED = {"finding": ("case", "original")}


def upgrade(raw: Raw, kind: str) -> Raw:
    """A copy of raw in schema SCHEMA_VERSION, cases inside a finding included.

    raw: the JSON object as it was read. kind: case, finding or campaign.
    A record that does not state its schema is taken for a current one. Raises UsageError for a newer schema, and for an
    older one from which no step leads here.
    """
    current = _stepped(dict(raw), kind)
    for name in _NESTED.get(kind, ()):
        if isinstance(current.get(name), dict):
            current[name] = upgrade(current[name], "case")
    return current


def _stepped(raw: Raw, kind: str) -> Raw:
    version = raw.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int:
        raise UsageError(f"the {kind} has the schema_version {version!r}, which is no whole number")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"the {kind} was written by a newer version (schema {version}, this one reads up to {SCHEMA_VERSION})"
        )
    for step in range(version, SCHEMA_VERSION):
        if step not in MIGRATIONS:
            raise UsageError(f"the {kind} has schema {version}, which this version can no longer read")
        raw = {**MIGRATIONS[step](raw, kind), "schema_version": step + 1}
    return raw
