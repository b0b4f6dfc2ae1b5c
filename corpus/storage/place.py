"""The place of a corpus, as a person names it: a folder, or the URL of a database."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

_URL = re.compile(r"[a-z][a-z0-9+]*://")
_PASSWORD = re.compile(r"(?<=//)([^/@:?]*):[^/?]*@|(?<=[?&])password=[^&]*&?")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """The URL of a database. As text it has no password, which commands and messages must not show."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        """The URL without its password, which ~/.pgpass or PGPASSWORD can hold."""
        return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else "", self.url).rstrip("?&")

    @property
    def project(self) -> str:
        """The corpus that is meant, of several in one database; empty: the one without a name."""
        return parse_qs(urlsplit(self.url).query).get("project", [""])[-1]


Place: TypeAlias = Path | DatabaseUrl
SERVED = Path("local", "service.db")
"""Where, in the folder of a corpus, `serve` keeps its database if it is told of no other."""


def served_in(place: Place) -> str:
    """The address of the database that `serve` keeps in a folder; empty: there is none."""
    file = place.absolute() / SERVED if isinstance(place, Path) else None
    return f"sqlite:///{file}" if file is not None and file.exists() else ""


def place_of(text: str | Path) -> Place:
    """Tell a database's URL from a folder."""
    return DatabaseUrl(str(text)) if _URL.match(str(text)) else Path(text)
