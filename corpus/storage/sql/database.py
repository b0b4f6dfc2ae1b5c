"""A database by its URL: opened, brought up to date, and its trouble in one sentence."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.atomic_files import locked
from kernel_assay.corpus.storage.file_store import hide
from kernel_assay.corpus.storage.place import DatabaseUrl
from kernel_assay.corpus.storage.sql import service_tables

MIGRATIONS: Final = Path(__file__).parent / "migrations"
STEPS: Final = sorted(path.stem[:5] for path in MIGRATIONS.glob("versions/v*.py"))
"""All schema versions that are known, the present one last."""
BUSY_SECONDS: Final = 60
"""For which a writer of SQLite waits for another."""
_WRITES, _LAZY = "kassay_writes", "kassay_lazy"
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgresql+psycopg": "postgresql+psycopg"}


class Database:
    """A database, in SQLite's file or on a PostgreSQL server; several processes and threads may use it at once.

    url: `sqlite:///FILE` or `postgresql://...`, with `?project=NAME` for one of several corpora in it. Nothing is
    created before the first write. All its methods raise UsageError if the database refuses.
    """

    def __init__(self, url: str) -> None:
        """Raises UsageError for a URL that is none, or of another kind of database."""
        place = DatabaseUrl(url)
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError) as error:
            raise UsageError(f"'{place}' is no URL of a database ({error})") from None
        driver = _DRIVERS.get(parsed.drivername)
        if driver is None or (driver == "sqlite" and parsed.database in {None, "", ":memory:"}):
            raise UsageError(f"'{place}' is no corpus: name a folder, sqlite:///FILE or postgresql://HOST/DATABASE")
        self.project = place.project
        """The corpus that is meant, of several."""
        self._url = parsed.set(drivername=driver).difference_update_query(["project"])
        self.name = str(place)
        """The URL, as messages and commands name it: without a password."""
        self.file = Path(parsed.database or "").absolute() if driver == "sqlite" else None
        """The file, of SQLite."""
        self._current = False
        if self.file is not None:
            hide(*self.files, self.locks)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and those that SQLite writes beside it."""
        assert self.file is not None
        return tuple(self.file.with_name(self.file.name + end) for end in ("", "-wal", "-shm"))

    @property
    def locks(self) -> Path:
        """Folder of locks beside the file."""
        assert self.file is not None
        return self.file.with_name(self.file.name + ".locks")

    @cached_property
    def _engine(self) -> Engine:
        if self.file is None:
            who = f"kassay process {os.getpid()} on {platform.node()}"
            arguments = {"application_name": who, "connect_timeout": 10}
            return create_engine(self._url, connect_args=arguments, pool_pre_ping=True)
        engine = create_engine(self._url, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
        return engine

    @cached_property
    def _empty(self) -> Engine:
        """What is read before there is anything."""
        engine = create_engine("sqlite://", poolclass=StaticPool)
        service_tables.job.metadata.create_all(engine)  # all tables, those of the server too
        return engine

    def close(self) -> None:
        """Close all connections."""
        for name in ("_engine", "_empty"):
            if name in self.__dict__:
                self.__dict__.pop(name).dispose()
        self._current = False

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Lend a connection for as long as the caller likes; what goes wrong on it is said in one sentence."""
        with self.named_trouble(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read in one transaction, all as it is at one moment; a database that is not there yet is empty."""
        engine = self._engine if self._is_current() else self._empty
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        with self.named_trouble(), engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, lock: str = "", *, lazy: bool = False) -> Iterator[Connection]:
        """Write in one transaction, the database brought up to date before.

        lock: what is written, by a name: nobody else writes it meanwhile (SQLite has one writer at a time anyway).
        lazy: it must outlive a kill of the process, but need not outlive a power failure until the next write that is
        not lazy.
        """
        self.upgrade()
        engine = self._engine.execution_options(**{_WRITES: True, _LAZY: lazy})
        with self.named_trouble(), engine.begin() as connection:
            if lock and self.file is None:
                key = text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))")
                connection.execute(key, {"key": f"{self.project}/{lock}"})
            yield connection

    # the schema

    def version(self) -> str:
        """The version of its schema; empty: there is none yet."""
        if self.file is not None and not self.file.exists():
            return ""
        with self.connected() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return ""
            return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")

    def upgrade(self) -> str:
        """Create what is missing, or bring it up to date; the version that it had. Raises UsageError for a newer one.

        Several processes may do so at once: one does, and the others wait.
        """
        if self._current:
            if self.file is not None and not self.file.exists():
                raise UsageError(f"the database {self.name} was removed while it was in use")
            return STEPS[-1]
        with locked(self.locks / "upgrade") if self.file is not None else nullcontext():
            before = self.version()
            if self._refused(before) != STEPS[-1]:
                self._run_migrations()
        self._current = True
        return before

    def _is_current(self) -> bool:
        """Whether there is something to be read. Raises UsageError for an older schema, or a newer one."""
        if not self._current:
            version = self._refused(self.version())
            if version and version != STEPS[-1]:
                raise UsageError(
                    f"the database {self.name} has an older schema ({version}, the present one is {STEPS[-1]}); "
                    "`kassay db upgrade` brings it up to date"
                )
            self._current = bool(version)
        return self._current

    def _refused(self, version: str) -> str:
        if version and version not in STEPS:
            raise UsageError(
                f"the database {self.name} was written by a newer version (schema {version}, this one knows up to "
                f"{STEPS[-1]}); upgrade this installation, or name another database"
            )
        return version

    def _run_migrations(self) -> None:
        from alembic import command  # noqa: PLC0415  half a second that only a new schema takes
        from alembic.config import Config  # noqa: PLC0415

        if self.file is not None:
            self._let_readers_in()
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with self.named_trouble(), self._engine.execution_options(**{_WRITES: True}).begin() as connection:
            if self.file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('kassay schema', 0))"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _let_readers_in(self) -> None:
        """Have SQLite's readers go on beside a writer, from now on."""
        with self.named_trouble(), closing(self._engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA journal_mode=WAL")

    @contextmanager
    def named_trouble(self) -> Iterator[None]:
        """Turn what the driver says into a UsageError of one sentence."""
        try:
            yield
        except DBAPIError as error:
            said = "; ".join(line.strip() for line in str(error.orig).splitlines() if line.strip())
            raise UsageError(f"the database {self.name} cannot be used ({said})") from error


def _on_connect(connection: Any, _record: object) -> None:
    """Let transactions begin where we say."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")


def _on_begin(connection: Connection) -> None:
    """Begin a transaction; a writer takes its turn at once, so that none fails half-way."""
    options = connection.get_execution_options()
    if options.get(_WRITES):
        connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if options.get(_LAZY) else 'FULL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITES) else "BEGIN")
