"""The store in a database: what the store on disk does, by rows instead of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, Table, delete, insert, select, text, update

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.timing import TimingRun
from kernel_assay.corpus.storage.atomic_files import claimed
from kernel_assay.corpus.storage.base_store import (
    JOURNALS,
    MATRIX,
    BaseStore,
    amended,
    as_committed,
    component,
    indented,
    journal_kind,
    kept_of,
    one_line,
    promoted,
    promoted_path,
    proof_file,
)
from kernel_assay.corpus.storage.merging import merge
from kernel_assay.corpus.storage.place import DatabaseUrl
from kernel_assay.corpus.storage.reading import record_of
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.corpus.storage.sql import tables as t
from kernel_assay.corpus.storage.sql.database import Database
from kernel_assay.corpus.storage.sql.rows import Values, finding_row, lines_row, regression_row, run_row


class SqlStore(BaseStore):
    """The store in a database; several processes, on several machines with PostgreSQL, may use it at once.

    Rows are those of one project (see Database). Everything raises UsageError if the database refuses.
    """

    def __init__(self, url: str) -> None:
        """url: as Database takes it. Nothing is created until something is written or `prepare` is called."""
        self.place = DatabaseUrl(url)
        self.database = Database(url)
        self._project = self.database.project
        self._held: dict[str, tuple[ExitStack, Callable[[], None]]] = {}
        """Run -> how to let go of it, and what raises UsageError if the lock is lost."""

    @property
    def name(self) -> str:
        """Its URL, without a password."""
        return self.database.name

    def exists(self) -> bool:
        """Whether anything was ever written to it."""
        return bool(self.database.version())

    def prepare(self) -> None:
        """Create the tables, or bring them up to date, and see that it can be written to."""
        with self.database.writing():
            pass

    def close(self) -> None:
        """Close all connections, and let go of runs."""
        while self._held:
            with suppress(UsageError):  # a server that has gone has let go of it, too
                self._held.popitem()[1][0].close()
        self.database.close()

    # rows

    def _mine(self, table: Table, **keys: Any) -> Select[Any]:
        """Select the records, of this project, with these values."""
        return select(table.c.record).filter_by(project=self._project, **keys)

    def _texts(self, wanted: Select[Any]) -> list[str]:
        with self.database.reading() as connection:
            return list(connection.scalars(wanted))

    def _put(self, connection: Connection, table: Table, keys: Values, values: Values) -> None:
        """Write one row in the place of the one with these keys, if there is one; under a lock of its name."""
        keys = {"project": self._project, **keys}
        if not connection.execute(update(table).filter_by(**keys).values(**values)).rowcount:
            connection.execute(insert(table).values(**keys, **values))

    def _drop(self, connection: Connection, table: Table, **keys: Any) -> None:
        connection.execute(delete(table).filter_by(project=self._project, **keys))

    def _where(self, what: str) -> str:
        return f"{what} in {self.name}"

    # findings

    def save_finding(self, finding: Finding) -> Finding:
        """Merge a finding into what is stored under its signature, and return the result. See merge."""
        component(finding.signature.op, "op")
        with self.database.writing(f"finding {finding.id}") as connection:
            stored = self._stored(connection, finding.id)
            merged = finding if stored is None else merge(stored, finding)
            merged = _decided(merged, self._committed(connection, finding.id))
            self._put(connection, t.findings, {"id": finding.id}, finding_row(merged))
        return merged

    def _stored(self, connection: Connection, finding_id: str) -> Finding | None:
        said = connection.scalar(self._mine(t.findings, id=finding_id))
        return None if said is None else record_of(said, Finding, self._where(f"finding {finding_id}"))

    def _committed(self, connection: Connection, finding_id: str) -> list[tuple[str, Finding]]:
        """The regressions of a finding by their paths."""
        wanted = select(t.regressions.c.path, t.regressions.c.record)
        rows = connection.execute(
            wanted.filter_by(project=self._project, finding=finding_id).order_by(t.regressions.c.path)
        )
        return [(path, record_of(said, Finding, self._where(path))) for path, said in rows]

    def amend(self, finding: Finding) -> Finding:
        """Write what a person decided over the finding and over its committed copies."""
        with self.database.writing(f"finding {finding.id}") as connection:
            if self._stored(connection, finding.id) is not None:
                self._put(connection, t.findings, {"id": finding.id}, finding_row(finding))
            for path, committed in self._committed(connection, finding.id):
                self._put(connection, t.regressions, {"path": path}, regression_row(amended(committed, finding)))
        return finding

    def drop(self, finding: Finding) -> None:
        """Forget a finding that another one has taken the place of, and what was kept of it."""
        with self.database.writing(f"finding {finding.id}") as connection:
            self._drop(connection, t.kept, name=finding.id)
            self._drop(connection, t.findings, id=finding.id)

    def has(self, finding: Finding) -> bool:
        """Whether it was found here; what others committed is not asked."""
        return bool(self._texts(self._mine(t.findings, id=finding.id)))

    def findings(self, op: str | None = None) -> list[Finding]:
        """All findings, or those of one op, sorted by op and signature."""
        found = self._found(self._mine(t.findings, **({} if op is None else {"op": op})))
        return sorted(found, key=lambda f: (f.signature.op, f.signature.key))

    def _beginning_with(self, prefix: str) -> list[Finding]:
        return self._found(self._mine(t.findings).where(t.findings.c.id.startswith(prefix, autoescape=True)))

    def _found(self, wanted: Select[Any]) -> list[Finding]:
        """The findings, with what was committed about them."""
        texts = self._texts(wanted)
        committed: dict[str, list[tuple[str, Finding]]] = {}
        for path, finding in self._promoted() if texts else ():
            committed.setdefault(finding.id, []).append((path, finding))
        found = [record_of(said, Finding, self._where("a finding")) for said in texts]
        return [_decided(finding, committed.get(finding.id, ())) for finding in found]

    def _promoted(self) -> list[tuple[str, Finding]]:
        wanted = select(t.regressions.c.path, t.regressions.c.record).filter_by(project=self._project)
        with self.database.reading() as connection:
            rows = connection.execute(wanted.order_by(t.regressions.c.path)).all()
        return [(path, record_of(said, Finding, self._where(path))) for path, said in rows]

    def regressions(self) -> list[tuple[str, Finding]]:
        """The findings that are kept for good, each with its id for a name."""
        return [(finding.id, finding) for _, finding in self._promoted()]

    def promote(self, finding: Finding) -> str:
        """Keep a finding for good; where. See promoted."""
        path = promoted_path(finding)
        with self.database.writing(path) as connection:
            old = dict(self._committed(connection, finding.id)).get(path)
            self._put(connection, t.regressions, {"path": path}, regression_row(promoted(finding, old)))
        return self._where(path)

    # outputs that were kept

    def keep(self, name: str, kept: Sequence[Kept]) -> None:
        """Keep outputs under the id of a finding or the name of a run, in place of what was kept there."""
        with self.database.writing(f"kept {component(name, 'name')}") as connection:
            self._put(
                connection, t.kept, {"name": name}, lines_row("".join(f"{one_line(each.plain())}\n" for each in kept))
            )

    def kept(self, name: str) -> list[Kept]:
        """Outputs that were kept under a name; none if there are none."""
        lines = "".join(self._texts(self._mine(t.kept, name=name))).splitlines()
        return kept_of(lines, self._where(f"what was kept of {name}"))

    def kept_size(self, name: str) -> int:
        """Bytes of what was kept under a name."""
        with self.database.reading() as connection:
            return connection.scalar(select(t.kept.c.size).filter_by(project=self._project, name=name)) or 0

    def kept_names(self) -> list[str]:
        """Findings and runs of which outputs were kept, sorted."""
        return self._names(t.kept, "name")

    def drop_kept(self, name: str) -> None:
        """Forget what was kept under a name."""
        with self.database.writing(f"kept {name}") as connection:
            self._drop(connection, t.kept, name=name)

    def _names(self, table: Table, column: str, **keys: str) -> list[str]:
        with self.database.reading() as connection:
            wanted = select(table.c[column]).filter_by(project=self._project, **keys).distinct()
            return sorted(connection.scalars(wanted))

    # proofs, timings, seeds

    def save_proof(self, proof: Proof) -> str:
        """Write what is known of every input, in place of what was known of the subject before; where."""
        keys = {"op": component(proof.subject.op, "op"), "subject": proof_file(proof)}
        with self.database.writing(f"proof {keys}") as connection:
            self._put(connection, t.proofs, keys, {"at": proof.at, "record": one_line(proof.plain())})
        return self.proof_path(proof)

    def proof_path(self, proof: Proof) -> str:
        """Words for where a proof is kept."""
        del proof
        return self.name

    def save_timing(self, run: TimingRun) -> str:
        """Write the times of a run; where."""
        with self.database.writing(f"timing {component(run.run, 'run')}") as connection:
            self._put(connection, t.timings, {"run": run.run}, {"record": one_line(run.plain())})
        return self.timing_path(run.run)

    def timing_path(self, name: str) -> str:
        """Words for where times are kept."""
        del name
        return self.name

    def timing(self, name: str) -> TimingRun:
        """The times of a run. Raises UsageError if there are none."""
        found = self._texts(self._mine(t.timings, run=name))
        if not found:
            raise UsageError(f"no times of {name!r} are in {self.name}")
        return record_of(found[0], TimingRun, self.timing_path(name))

    def timings(self) -> list[str]:
        """Names of the runs with times, the oldest first."""
        return self._names(t.timings, "run")

    def seeds(self, op: str) -> list[Case]:
        """The cases worth starting from, in the order they came."""
        wanted = self._mine(t.seeds, op=component(op, "op")).order_by(t.seeds.c.number)
        return [record_of(said, Case, self._where("a seed")) for said in self._texts(wanted)]

    def add_seed(self, case: Case) -> None:
        """Keep a case, unless it is there already."""
        keys = {"op": component(case.op, "op"), "id": case.id}
        with self.database.writing(f"seeds {case.op}") as connection:
            self._put(connection, t.seeds, keys, {"record": one_line(case.plain())})

    # runs

    def start_run(self, campaign: Campaign) -> None:
        """Write the first record of a run. Raises UsageError if there is a run of that name."""
        self.hold(campaign.run)
        with self.database.writing(f"run {campaign.run}") as connection:
            if connection.scalar(self._mine(t.runs, run=campaign.run)) is not None:
                raise UsageError(f"the run {campaign.run!r} exists in {self.name}; resume it or take another name")
            self._put(connection, t.runs, {"run": campaign.run}, run_row(campaign))

    def hold(self, run: str) -> None:
        """Keep others from going on with a run as long as this process lives. Raises UsageError if somebody does."""
        if run not in self._held:
            self.database.upgrade()
            with ExitStack() as stack:
                claim = self._claim_file if self.database.file is not None else self._claim_on_server
                probe = claim(component(run, "run"), stack)
                self._held[run] = stack.pop_all(), probe

    def _claim_file(self, run: str, stack: ExitStack) -> Callable[[], None]:
        """Take the lock of a run beside SQLite's file."""
        path = self.database.locks / f"{self._project}.{run}"
        fd = claimed(path)
        if fd is None:
            raise _held_by(run, f"process {path.read_text('utf-8', 'replace').strip()}")
        stack.callback(os.close, fd)
        return lambda: None

    def _claim_on_server(self, run: str, stack: ExitStack) -> Callable[[], None]:
        """Take a lock that ends with its connection."""
        connection, key = stack.enter_context(self.database.connected()), {"key": f"{self._project}/holder of {run}"}
        with connection.begin():
            taken = connection.scalar(_TAKE, key)
            holder = connection.scalar(_HOLDER, key)
        if not taken:
            raise _held_by(run, holder or "on another connection")
        stack.callback(connection.invalidate)  # given back as it is, it would keep the lock

        def probe() -> None:
            with self.database.named_trouble(), connection.begin():
                connection.scalar(_TAKE, key)

        return probe

    def checkpoint(self, campaign: Campaign) -> int:
        """Say how far a run got, and make its journals last: the record never promises what is not in them.

        Returns how long the record is.
        """
        row, run = run_row(campaign), component(campaign.run, "run")
        self._hold_on(run)
        with self.database.writing(f"run {campaign.run}") as connection:
            self._put(connection, t.runs, {"run": run}, row)
        return len(row["record"])

    def _hold_on(self, run: str) -> None:
        """Take the lock of a run again if it was lost with its connection. Raises UsageError if somebody else has."""
        if run in self._held:
            try:
                self._held[run][1]()
            except UsageError:
                with suppress(UsageError):
                    self._held.pop(run)[0].close()
                self.hold(run)

    def _run(self, name: str) -> Campaign | None:
        return next(iter(self._records(self._mine(t.runs, run=name))), None)

    def _last(self, *, unfinished: bool) -> Campaign | None:
        wanted = self._mine(t.runs, **({"finished": False} if unfinished else {}))
        wanted = wanted.order_by(t.runs.c.updated.desc(), t.runs.c.run.desc()).limit(1)
        return next(iter(self._records(wanted)), None)

    def _records(self, wanted: Select[Any]) -> Iterator[Campaign]:
        return (record_of(said, Campaign, self._where("a run")) for said in self._texts(wanted))

    def runs(self) -> list[str]:
        """Names of all runs, sorted."""
        return self._names(t.runs, "run")

    def drop_run(self, run: str) -> None:
        """Forget a run, its journals, and what was kept of it. Raises UsageError if somebody goes on with it."""
        self.hold(run)
        with self.database.writing(f"run {run}") as connection:
            for table, column in ((t.runs, "run"), (t.journals, "run"), (t.kept, "name")):
                self._drop(connection, table, **{column: run})
        self._held.pop(run)[0].close()

    # journals

    def journal(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Append one line to a run's journal of this kind; on return no kill can lose it. Returns how long it is."""
        return self._append(component(run, "run"), journal_kind(kind), record)

    def _append(self, run: str, kind: str, record: dict[str, Any]) -> int:
        with self.database.writing(lazy=True) as connection:
            return self._add_line(connection, {"run": run, "kind": kind}, record)

    def _add_line(self, connection: Connection, keys: Values, record: dict[str, Any]) -> int:
        line = one_line(record)
        connection.execute(insert(t.journals).values(project=self._project, **keys, record=line))
        return len(line) + 1

    def compact(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Put one line in the place of all that a run's journal of this kind has; how long it is."""
        keys = {"run": component(run, "run"), "kind": journal_kind(kind)}
        with self.database.writing(f"run {run}") as connection:
            self._drop(connection, t.journals, **keys)
            return self._add_line(connection, keys, record)

    def end_journal(self, run: str, kind: str) -> None:
        """Remove a run's journal of this kind, of which nobody needs anything any more."""
        with self.database.writing(f"run {run}") as connection:
            self._drop(connection, t.journals, run=run, kind=journal_kind(kind))

    def read_journal(self, run: str, kind: str) -> list[dict[str, Any]]:
        """All lines of a run's journal."""
        return self._lines(component(run, "run"), journal_kind(kind))

    def _lines(self, run: str, kind: str) -> list[dict[str, Any]]:
        wanted = self._mine(t.journals, run=run, kind=kind).order_by(t.journals.c.number)
        return [json.loads(line) for line in self._texts(wanted)]

    # matrices, and everything at once

    def matrices(self) -> list[str]:
        """Names of all runs of matrices, the oldest first."""
        return self._names(t.journals, "run", kind=MATRIX)

    def matrix_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a matrix's journal, in order."""
        return self._lines(name, MATRIX)

    def matrix_line(self, name: str, record: dict[str, Any]) -> None:
        """Append a line to a matrix's journal; on return no kill can lose it."""
        self._append(component(name, "matrix"), MATRIX, record)

    def dump(self) -> Iterator[tuple[str, str]]:
        """Yield all that is kept as the files of a folder: their paths below it, and their texts."""
        with self.database.reading() as connection:
            for table, path in _FILES:
                for row in self._rows(connection, table):
                    said = row["record"]
                    yield path.format_map(row), said if path.endswith(".jsonl") else indented(json.loads(said))
            for (op,), lines in self._grouped(connection, t.seeds, "op"):
                yield f"seeds/{op}.jsonl", lines
            for (run, kind), lines in self._grouped(connection, t.journals, "run", "kind"):
                yield f"local/matrices/{run}.jsonl" if kind == MATRIX else f"local/runs/{run}/{kind}.jsonl", lines

    def _rows(self, connection: Connection, table: Table, *order: str) -> Iterator[RowMapping]:
        wanted = select(table).filter_by(project=self._project).order_by(*(table.c[name] for name in order))
        yield from connection.execution_options(yield_per=100).execute(wanted).mappings()

    def _grouped(self, connection: Connection, table: Table, *keys: str) -> Iterator[tuple[tuple[str, ...], str]]:
        rows = self._rows(connection, table, *keys, "number")
        for key, same in groupby(rows, lambda row: tuple(row[name] for name in keys)):
            yield key, "".join(f"{row['record']}\n" for row in same)

    def load(self, files: Iterable[tuple[str, str]]) -> int:
        """Take what `dump` of a store has given, all of it or nothing; how many files. Raises UsageError for others."""
        number = 0
        with self.database.writing("copy") as connection:
            for number, (path, said) in enumerate(files, 1):  # noqa: B007  the last one is the result
                self._take(connection, path, said)
        return number

    def _take(self, connection: Connection, path: str, said: str) -> None:
        """Write what a file of a folder says."""
        match PurePosixPath(path).with_suffix("").parts:
            case ("regressions", _, _):
                row = regression_row(record_of(said, Finding, path))
                self._put(connection, t.regressions, {"path": path}, row)
            case ("local", "findings", _, name):
                self._put(connection, t.findings, {"id": name}, finding_row(record_of(said, Finding, path)))
            case ("local", "runs", run, "campaign"):
                self._put(connection, t.runs, {"run": run}, run_row(record_of(said, Campaign, path)))
            case ("local", "runs", run, kind) if kind in JOURNALS:
                self._insert(connection, t.journals, said, lambda _: {"run": run, "kind": kind})
            case ("local", "matrices", run):
                self._insert(connection, t.journals, said, lambda _: {"run": run, "kind": MATRIX})
            case ("seeds", op):
                self._insert(connection, t.seeds, said, lambda line: {"op": op, "id": record_of(line, Case, path).id})
            case ("local", "kept", name):
                kept_of(said.splitlines(), path)
                self._put(connection, t.kept, {"name": name}, lines_row(said))
            case ("local", "proofs", op, name):
                proof = record_of(said, Proof, path)
                keys, row = {"op": op, "subject": name}, {"at": proof.at, "record": one_line(proof.plain())}
                self._put(connection, t.proofs, keys, row)
            case ("local", "timings", run):
                row = {"record": one_line(record_of(said, TimingRun, path).plain())}
                self._put(connection, t.timings, {"run": run}, row)
            case _:
                raise InternalError(f"no store keeps a file {path}")

    def _insert(self, connection: Connection, table: Table, lines: str, keys: Callable[[str], Values]) -> None:
        rows = [{"project": self._project, **keys(line), "record": line} for line in lines.splitlines() if line.strip()]
        if rows:
            connection.execute(insert(table), rows)


_FILES = (
    (t.regressions, "{path}"),
    (t.findings, "local/findings/{op}/{id}.json"),
    (t.runs, "local/runs/{run}/campaign.json"),
    (t.kept, "local/kept/{name}.jsonl"),
    (t.proofs, "local/proofs/{op}/{subject}.json"),
    (t.timings, "local/timings/{run}.json"),
)
"""Tables of which each row is a file of a folder."""
_TAKE = text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))")
_HOLDER = text(
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND datname = current_database() AND (classid::bigint << 32 | objid::bigint) = hashtextextended(:key, 0)"
)


def _held_by(run: str, who: str) -> UsageError:
    return UsageError(f"the run {run} still goes on ({who}); end that first, or wait for it")


def _decided(finding: Finding, committed: Sequence[tuple[str, Finding]]) -> Finding:
    """The finding as it was committed first, if it was."""
    return as_committed(finding, committed[0][1]) if committed else finding
