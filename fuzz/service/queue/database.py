"""The server's database: the store's, with one writer at a time in a file, and texts that any column takes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from kernel_assay.corpus.storage.sql.database import Database

Row = dict[str, Any]


def plain(value: Any) -> str:
    """JSON text of ASCII characters, which any database takes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def clean(text: str, most: int = 20_000) -> str:
    """The text as a column can hold it: without NUL, and without halves of characters."""
    return text[:most].replace("\0", "\u2400").encode("utf-8", "replace").decode("utf-8")


class ServerDatabase(Database):
    """A database that many threads of one process write to.

    url: `sqlite:///FILE` or `postgresql://...`. What the driver says goes through as it is: no user has caused it.
    """

    def __init__(self, url: str) -> None:
        """Bring its schema up to date. Raises UsageError if that cannot be."""
        super().__init__(url)
        if self.file is not None:
            with suppress(OSError):  # which is told of below
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.touch(0o600)
                for path in filter(Path.exists, self.files):
                    path.chmod(0o600)  # sources and digests are nothing for other users of the machine
        self.upgrade()
        self._turn = threading.Lock() if self.file is not None else nullcontext()
        """Threads wait here for one another: SQLite would let them sleep, and ask again."""
        self._opened = True
        if self.file is None:
            event.listen(self._engine, "connect", _on_connect)
            self._engine.dispose()  # of connections that were made before

    @contextmanager
    def named_trouble(self) -> Iterator[None]:
        """Turn what the driver says into a UsageError while the database is opened, and not afterwards."""
        if getattr(self, "_opened", False):
            yield
        else:
            with super().named_trouble():
                yield

    @contextmanager
    def writing(self, lock: str = "", *, lazy: bool = False) -> Iterator[Connection]:
        """Write in one transaction, all of it or nothing. lazy: a power cut may take it back, but no kill."""
        with self._turn, super().writing(lock, lazy=lazy) as connection:
            if self.file is None and not lazy:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            yield connection


def _on_connect(connection: Any, _record: object) -> None:
    """Let transactions that need not last be the ones without a statement more: there are most of them."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    connection.commit()
