"""The server's database: SQLite in one file, or PostgreSQL; short transactions, one writer at a time in a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.sql import service_tables
from kernel_assay.corpus.storage.sql.base import metadata

Row = dict[str, Any]
WAIT_SECONDS = 20
"""How long a transaction waits for another process that writes to the file."""


def plain(value: Any) -> str:
    """JSON text of ASCII characters, which any database takes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def clean(text: str, most: int = 20_000) -> str:
    """The text as a column can hold it: without NUL, and without halves of characters."""
    return text[:most].replace("\0", "\u2400").encode("utf-8", "replace").decode("utf-8")


class Database:
    """A pool of connections; `reading` and `writing` are transactions.

    url: of SQLAlchemy; `postgresql://` means psycopg's. Raises UsageError for one that cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self.url = _url(url)
        self.is_file = self.url.get_backend_name() == "sqlite"
        self._one_writer = threading.Lock() if self.is_file else nullcontext()
        try:
            self.engine = create_engine(self.url, pool_size=16, max_overflow=16, pool_pre_ping=not self.is_file)
            if self.is_file:
                _prepare_file(self.engine)
            with self.engine.connect():
                pass
        except (SQLAlchemyError, OSError, ModuleNotFoundError) as error:
            raise UsageError(f"the database {self.shown} cannot be opened ({_first_line(error)})") from error

    @property
    def shown(self) -> str:
        """Its address without the password."""
        return self.url.render_as_string(hide_password=True)

    def create(self) -> None:
        """Make the tables that are missing."""
        assert service_tables.job is not None
        metadata.create_all(self.engine)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, *, lazy: bool = False) -> Iterator[Connection]:
        """A transaction that writes, all of it or nothing.

        lazy: it outlives a kill of the process, but need not outlive a power cut, as what can be done again.
        """
        with self._one_writer, self.engine.connect() as connection:
            if self.is_file:
                connection = connection.execution_options(kassay_begin="BEGIN IMMEDIATE")  # noqa: PLW2901
                raw = connection.connection.driver_connection
                assert raw is not None
                raw.execute(f"PRAGMA synchronous = {'NORMAL' if lazy else 'FULL'}")
            with connection.begin():
                if lazy and not self.is_file:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection


def _url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise UsageError(f"{text!r} is no address of a database; write sqlite:///FILE or postgresql://...") from error
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        raise UsageError(f"databases are sqlite:///FILE or postgresql://..., not {url.drivername}")
    if url.drivername == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    return url


def _first_line(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _prepare_file(engine: Any) -> None:
    @event.listens_for(engine, "connect")
    def opened(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin as we say
        for setting in ("journal_mode = WAL", f"busy_timeout = {WAIT_SECONDS * 1000}", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("kassay_begin", "BEGIN"))
