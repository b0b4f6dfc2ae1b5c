"""`db`: what is done to a corpus as a whole."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.copying import backup, copy, prune
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import DatabaseUrl, Place, served_in
from kernel_assay.fuzz.cli.options import corpus_option, old_corpus_option
from kernel_assay.reports.options import PlaceType

_DAYS = {"d": 1, "w": 7, "y": 365}


@click.group("db", no_args_is_help=False)
def command() -> None:
    """Copy a corpus between folders and databases, bring its tables up to date, back it up, remove what is old."""


@command.command("copy")
@click.argument("source", type=PlaceType(), metavar="FROM")
@click.argument("target", type=PlaceType(), metavar="TO")
def copy_command(*, source: Place, target: Place) -> int:
    """Copy a corpus into an empty place: a folder, sqlite:///FILE or postgresql://..., without loss either way.

    Of two databases, neither with a project, all tables are copied.
    """
    click.echo(f"copied from {source} to {target}: {_numbers(copy(source, target))}")
    return 0


@command.command("upgrade")
@corpus_option
def upgrade_command(*, corpus: Place) -> int:
    """Create the tables of a database, or bring them up to date. Commands that write do so by themselves."""
    if not isinstance(corpus, DatabaseUrl):
        raise UsageError(f"{corpus} is a folder, whose records are brought up to date as they are read")
    from kernel_assay.corpus.storage.sql.store import SqlStore  # noqa: PLC0415  it needs what may not be installed

    with SqlStore(corpus.url) as store:
        before, now = store.database.upgrade(), store.database.version()
    click.echo(f"{corpus}: schema {now}, {'as before' if before == now else f'before {before}' if before else 'new'}")
    return 0


@command.command("prune")
@click.option("--older-than", "age", required=True, metavar="AGE", help="As 90d, 12w or 2y.")
@old_corpus_option
def prune_command(*, age: str, corpus: Place) -> int:
    """Remove runs that nobody has gone on with for so long, and kept outputs of findings that are fixed as long.

    No finding is removed.
    """
    before = datetime.now(UTC) - _length(age)
    with open_store(corpus) as store:
        store.prepare()
        removed = prune(store, before.isoformat(timespec="seconds"))
    left = removed.pop("left", 0)
    click.echo(f"removed from {corpus}: {_numbers(removed)}")
    if left:
        click.echo(f"left: {left:,} as old, which go on, or met failures that nobody has looked into")
    return 0


@command.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@old_corpus_option
def backup_command(*, file: Path, corpus: Place) -> int:
    """Copy the corpus, of a database all tables, as it is now, into a new FILE of SQLite; `db copy` brings it back."""
    if served := served_in(corpus):
        raise UsageError(
            f"{corpus} has the database of a service, which is backed up by --corpus {served}; "
            "what else there is in the folder is copied by `db copy`"
        )
    click.echo(f"backed up {corpus} in {file}: {_numbers(backup(corpus, file))}")
    return 0


def _numbers(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items())) or "nothing"


def _length(age: str) -> timedelta:
    """Raises UsageError."""
    match = re.fullmatch(r"(\d{1,5})([dwy])", age.strip())
    if not match:
        raise UsageError(f"{age!r} is no age; write 90d, 12w or 2y")
    return timedelta(days=min(int(match[1]) * _DAYS[match[2]], 365_000))
