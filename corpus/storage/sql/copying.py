"""Copies a database whole: every table, those of a server among them."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, func, insert, select

from kernel_assay.corpus.storage.sql.database import Database
from kernel_assay.corpus.storage.sql.tables import metadata

_ROWS = 500
"""That are written at once."""


def is_empty(database: Database) -> bool:
    """Whether no table has a row."""
    with database.reading() as connection:
        return not any(connection.scalar(select(func.count()).select_from(table)) for table in metadata.sorted_tables)


def copy_tables(source: Database, target: Database) -> Counter[str]:
    """Write all rows of one database, as they are at one moment, into another, which is empty; how many a table.

    All or nothing. Raises UsageError if one of them refuses.
    """
    written = Counter[str]()
    with source.reading() as reader, target.writing("copy") as writer:
        for table in metadata.sorted_tables:
            rows = reader.execution_options(yield_per=_ROWS).execute(select(table)).mappings()
            for some in rows.partitions():
                writer.execute(insert(table), [dict(row) for row in some])
                written[table.name] += len(some)
        if target.file is None:
            _count_on(writer)
    return written


def _count_on(connection: Connection) -> None:
    """Have PostgreSQL number new rows after those that were copied with their numbers."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            last = select(func.max(column)).scalar_subquery()
            serial = func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(select(func.setval(serial, func.coalesce(last, 1), last.is_not(None))))
