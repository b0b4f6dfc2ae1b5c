"""Copies a corpus from one place to another, and removes from one what is old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.verdict import Signature
from kernel_assay.corpus.storage.atomic_files import named_trouble
from kernel_assay.corpus.storage.opening import existing, open_store
from kernel_assay.corpus.storage.place import DatabaseUrl, Place
from kernel_assay.corpus.storage.protocol import CorpusStore


def copy(source: Place, target: Place) -> Counter[str]:
    """Copy a corpus into an empty place; what was copied, in numbers. Two databases without a project: all tables.

    Nothing is lost between folders and databases, in either direction, but for other projects of a database: of those a
    folder has no place. What can be made again is not copied: the summaries of runs, and what `judge` has written for a
    layout. Raises UsageError if there is nothing at the source,
    or anything at the target.
    """
    existing(source)
    if isinstance(source, DatabaseUrl) and isinstance(target, DatabaseUrl) and not (source.project or target.project):
        return _copy_tables(source, target)
    copied = Counter[str]()

    def counted() -> Iterator[tuple[str, str]]:
        for path, said in here.dump():
            copied[_kind(path)] += 1
            yield path, said

    with open_store(source) as here, open_store(target) as there:
        if next(there.dump(), None) is not None:
            raise _not_empty(there.name)
        there.load(counted())
    return copied


def _kind(path: str) -> str:
    parts = PurePosixPath(path).parts
    kind = parts[1] if parts[0] == "local" else parts[0]
    return "journals" if kind == "runs" and not path.endswith("campaign.json") else kind


def _copy_tables(source: DatabaseUrl, target: DatabaseUrl) -> Counter[str]:
    from kernel_assay.corpus.storage.sql.copying import copy_tables, is_empty  # noqa: PLC0415  as in opening.py
    from kernel_assay.corpus.storage.sql.database import Database  # noqa: PLC0415

    here, there = Database(source.url), Database(target.url)
    try:
        if not is_empty(there):
            raise _not_empty(there.name)
        if there.file is not None:  # a service's sources and digests are nothing for other users of the machine
            there.file.touch(0o600)
        return copy_tables(here, there)
    finally:
        here.close()
        there.close()


def _not_empty(name: str) -> UsageError:
    return UsageError(f"there is a corpus in {name} already; copy into a new folder or database")


def backup(source: Place, file: Path) -> Counter[str]:
    """Copy a corpus, or a database whole, into a new file of SQLite, which is there only when it is complete.

    Raises UsageError if there is such a file.
    """
    if file.exists():
        raise UsageError(f"{file} exists; name a new file")
    with named_trouble(file.parent), TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        partial = Path(folder) / "backup"
        copied = copy(source, DatabaseUrl(f"sqlite:///{partial.absolute()}"))
        partial.chmod(0o600)
        partial.rename(file)
    return copied


def prune(store: CorpusStore, before: str) -> Counter[str]:
    """Remove runs that nobody has gone on with since a time, and what was kept of findings that were fixed before it.

    before: ISO 8601, UTC. Findings stay, and what was kept of open ones; so does a run that goes on, and one that met
    failures which are no findings yet. What was removed, in numbers; `left`: runs that are old enough and stay.
    """
    removed, found = Counter[str](), {f.id: f for f in store.all_findings()}
    known = {key for finding in found.values() for key in finding.keys}
    for name in store.runs():
        run = store.load_run(name)
        if (run.updated or run.started) >= before:
            continue
        met = (line["verdict"]["signature"] for line in store.read_journal(name, "pending"))
        waits = not run.finished and any(Signature.model_validate(one).key not in known for one in met)
        removed["left" if waits or not _dropped(store, name) else "runs"] += 1
    runs = set(store.runs())
    for name in store.kept_names():
        finding = found.get(name)
        fixed = finding is not None and finding.state is State.FIXED and finding.last_seen < before
        if fixed or (finding is None and name not in runs):
            store.drop_kept(name)
            removed["kept"] += 1
    return removed


def _dropped(store: CorpusStore, run: str) -> bool:
    with suppress(UsageError):  # it goes on
        store.drop_run(run)
        return True
    return False
