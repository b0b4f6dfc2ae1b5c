"""The store on disk: findings merged by signature, seeds, and runs that a kill -9 cannot spoil.

<root>/regressions/<op>/<signature>-<case>.json   committed findings, replayed in CI
<root>/seeds/<op>.jsonl                           cases worth starting from
<root>/local/findings/<op>/<finding>.json         everything found; local/ is ignored by git
<root>/local/runs/<run>/campaign.json             how far the run got, rewritten at each checkpoint
<root>/local/runs/<run>/lock                       held by the process that goes on with it, whose number is in it
<root>/local/runs/<run>/{pending,elites}.jsonl    journals: failures to be shrunk, admissions to the elite table
<root>/local/runs/<run>/coverage.jsonl            what each stretch of cases has covered, until the run is finished
<root>/local/kept/<finding or run>.jsonl          outputs of a smallest case, or of a run's closest calls
<root>/local/proofs/<op>/<subject>.json           every input of a finite domain, judged (exhaustive_result)
<root>/local/timings/<run>.json                   times of implementations (kassay time)
<root>/local/lock                                 held while anything but a journal is written
"""

import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.timing import TimingRun
from kernel_assay.corpus.storage.atomic_files import (
    Journal,
    claimed,
    locked,
    named_trouble,
    read_lines,
    sweep,
    write_atomic,
)
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
    stem,
)
from kernel_assay.corpus.storage.merging import merge
from kernel_assay.corpus.storage.reading import load_record, read_record, record_of
from kernel_assay.corpus.storage.saved_outputs import Kept

FOLDERS = ("regressions", "seeds", "local")
"""What is below a root."""
_HIDDEN: set[Path] = set()


def hide(*places: Path) -> None:
    """Note folders and files that nothing that runs code under test may show to it."""
    _HIDDEN.update(place.absolute() for place in places)


def hidden() -> list[Path]:
    """Folders and files that were noted, among them those of all stores that this process has opened."""
    return sorted(_HIDDEN)


def _updated(campaign: Campaign) -> tuple[str, str]:
    return campaign.updated or campaign.started, campaign.run


class Store(BaseStore):
    """The store in one folder; several processes may use it at once.

    root: the folder; nothing is created until something is written or `prepare` is called.
    Everything that writes raises UsageError, naming the file, if the disk refuses; everything that reads raises it for
    a file that no longer is what the store wrote (see load_record).
    """

    load_record = staticmethod(load_record)

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        hide(*(self.root / folder for folder in FOLDERS))
        self._local = self.root / "local"
        self._journals: dict[tuple[str, str], Journal] = {}
        self._held: dict[str, int] = {}
        """Run -> descriptor of its lock."""

    def close(self) -> None:
        """Close the journals, and let go of runs; what was appended is already safe from a kill."""
        while self._journals:
            self._journals.popitem()[1].close()
        while self._held:
            os.close(self._held.popitem()[1])

    @property
    def name(self) -> str:
        """Its folder, as a message names it."""
        return str(self.root)

    @property
    def place(self) -> Path:
        """The folder."""
        return self.root

    def exists(self) -> bool:
        """Whether there is such a folder."""
        return self.root.is_dir()

    def prepare(self) -> None:
        """Create local/ and sweep what killed writers left. Raises UsageError if the folder is not writable."""
        try:
            with self._lock():
                write_atomic(self._local / "probe", "")
                (self._local / "probe").unlink()
                for folder in FOLDERS:
                    sweep(self.root / folder)
        except (OSError, UsageError) as error:
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            raise UsageError(f"the folder {self._local} is not writable ({reason}); name another one") from error

    def _lock(self) -> AbstractContextManager[None]:
        return locked(self._local / "lock")

    # findings

    def save_finding(self, finding: Finding) -> Finding:
        """Merge a finding into what is stored under its signature, and return the result. See merge."""
        path = self._finding_path(finding)
        with self._lock():
            merged = self._decided(merge(self._local_finding(path), finding) if path.exists() else finding)
            write_atomic(path, indented(merged.plain()))
        return merged

    def amend(self, finding: Finding) -> Finding:
        """Write what a person decided over the local finding and over its committed copies."""
        path = self._finding_path(finding)
        with self._lock():
            if path.exists():
                write_atomic(path, indented(finding.plain()))
            for place, committed in self.regressions():
                if committed.id == finding.id:
                    write_atomic(place, indented(amended(committed, finding).plain()))
        return finding

    def drop(self, finding: Finding) -> None:
        """Forget a local finding that another one has taken the place of, and what was kept of it."""
        path = self._finding_path(finding)
        with self._lock():
            self._kept_path(finding.id).unlink(missing_ok=True)  # first: nobody drops what no finding names
            path.unlink(missing_ok=True)

    def findings(self, op: str | None = None) -> list[Finding]:
        """All findings, or those of one op, sorted by op and signature."""
        found = [self._found(path) for path in self._finding_paths(op)]
        return sorted(found, key=lambda f: (f.signature.op, f.signature.key))

    def _beginning_with(self, prefix: str) -> list[Finding]:
        return [self._found(path) for path in self._finding_paths() if path.stem.startswith(prefix)]

    def has(self, finding: Finding) -> bool:
        """Whether it was found here; what others committed is not asked."""
        return self._finding_path(finding).exists()

    def _finding_path(self, finding: Finding) -> Path:
        return self._local / "findings" / component(finding.signature.op, "op") / f"{finding.id}.json"

    def _finding_paths(self, op: str | None = None) -> list[Path]:
        folder = "*" if op is None else component(op, "op")
        return sorted((self._local / "findings").glob(f"{folder}/*.json"))

    def _found(self, path: Path) -> Finding:
        return self._decided(self._local_finding(path))

    def _decided(self, finding: Finding) -> Finding:
        """The finding as it was committed first, if it was."""
        folder = self.root / "regressions" / component(finding.signature.op, "op")
        for path in sorted(folder.glob(f"{glob.escape(stem(finding))}-*.json")):
            committed = read_record(path, Finding)
            if committed.id == finding.id:
                return as_committed(finding, committed)
        return finding

    @staticmethod
    def _local_finding(path: Path) -> Finding:
        try:
            finding = read_record(path, Finding)
        except UsageError as error:
            raise UsageError(f"{error}; move it away to go on without it") from error
        if finding.id != path.stem:
            raise UsageError(f"{path} holds the finding {finding.id}: its signature was edited; delete the file")
        return finding

    def regressions(self) -> list[tuple[Path, Finding]]:
        """The committed findings with their files, sorted by path."""
        paths = sorted((self.root / "regressions").glob("*/*.json"))
        return [(path, read_record(path, Finding)) for path in paths]

    def promote(self, finding: Finding) -> Path:
        """Write a finding among the committed ones; its file. See promoted."""
        path = self.root / promoted_path(finding)
        with self._lock():
            old = read_record(path, Finding) if path.exists() else None
            write_atomic(path, indented(promoted(finding, old).plain()))
        return path

    # outputs that were kept

    def keep(self, name: str, kept: Sequence[Kept]) -> None:
        """Keep outputs under the id of a finding or the name of a run, in place of what was kept there."""
        lines = [one_line(each.plain()) + "\n" for each in kept]
        with self._lock():
            write_atomic(self._kept_path(name), "".join(lines))

    def kept(self, name: str) -> list[Kept]:
        """Outputs that were kept under a name; none if there are none."""
        path = self._kept_path(name)
        if not path.exists():
            return []
        return kept_of(path.read_text("utf-8").splitlines(), str(path))

    def kept_size(self, name: str) -> int:
        """Bytes of what was kept under a name."""
        path = self._kept_path(name)
        return path.stat().st_size if path.exists() else 0

    def drop_kept(self, name: str) -> None:
        """Forget what was kept under a name."""
        with self._lock():
            self._kept_path(name).unlink(missing_ok=True)

    def kept_names(self) -> list[str]:
        """Findings and runs of which outputs were kept, sorted."""
        return sorted(path.stem for path in (self._local / "kept").glob("*.jsonl"))

    def _kept_path(self, name: str) -> Path:
        return self._local / "kept" / f"{component(name, 'name')}.jsonl"

    # proofs

    def save_proof(self, proof: Proof) -> Path:
        """Write what is known of every input, in place of what was known of the subject before; its file."""
        path = self.proof_path(proof)
        with self._lock():
            write_atomic(path, indented(proof.plain()))
        return path

    def proof_path(self, proof: Proof) -> Path:
        """File in which a proof is kept."""
        return self._local / "proofs" / component(proof.subject.op, "op") / f"{proof_file(proof)}.json"

    # timings

    def save_timing(self, run: TimingRun) -> Path:
        """Write the times of a run; its file."""
        path = self.timing_path(run.run)
        with self._lock():
            write_atomic(path, indented(run.plain()))
        return path

    def timing(self, name: str) -> TimingRun:
        """The times of a run. Raises UsageError if there are none."""
        return read_record(self.timing_path(name), TimingRun)

    def timings(self) -> list[str]:
        """Names of the runs with times, the oldest first."""
        return sorted(path.stem for path in (self._local / "timings").glob("*.json"))

    def timing_path(self, name: str) -> Path:
        """File in which times are kept."""
        return self._local / "timings" / f"{component(name, 'run')}.json"

    # seeds

    def seeds(self, op: str) -> list[Case]:
        """The cases worth starting from, in the order they came."""
        path = self._seed_path(op)
        if not path.exists():
            return []
        with named_trouble(path):
            lines = path.read_text("utf-8", "replace").split("\n")
        places = [(f"{path}, line {number},", line) for number, line in enumerate(lines, 1) if line.strip()]
        return [record_of(line, Case, where) for where, line in places]

    def add_seed(self, case: Case) -> None:
        """Keep a case, unless it is there already."""
        with self._lock():
            kept = self.seeds(case.op)
            if case.id not in {other.id for other in kept}:
                lines = [one_line(each.plain()) + "\n" for each in (*kept, case)]
                write_atomic(self._seed_path(case.op), "".join(lines))

    def _seed_path(self, op: str) -> Path:
        return self.root / "seeds" / f"{component(op, 'op')}.jsonl"

    # runs

    def start_run(self, campaign: Campaign) -> None:
        """Write the first record of a run. Raises UsageError if there is a run of that name."""
        path = self._campaign_path(campaign.run)
        self.hold(campaign.run)
        with self._lock():
            if path.exists():
                raise UsageError(f"the run {campaign.run!r} exists in {path.parent}; resume it or take another name")
            write_atomic(path, indented(campaign.plain()))

    def hold(self, run: str) -> None:
        """Keep other processes from going on with a run as long as this one does. Raises UsageError if one does."""
        path = self._campaign_path(run).with_name("lock")
        if run in self._held:
            return
        fd = claimed(path)
        if fd is None:
            who = path.read_text("utf-8", "replace").strip()
            raise UsageError(f"the run {run} still goes on (process {who}); end that first, or wait for it")
        self._held[run] = fd

    def checkpoint(self, campaign: Campaign) -> int:
        """Make the run's journals last, then say how far it got: the record never promises what is not in them.

        Returns how long the record is.
        """
        for (run, _), journal in self._journals.items():
            if run == campaign.run:
                journal.sync()
        if campaign.run in self._held and os.fstat(self._held[campaign.run]).st_nlink == 0:
            os.close(self._held.pop(campaign.run))  # somebody has removed the folder
            self.hold(campaign.run)
        text = indented(campaign.plain())
        with self._lock():
            write_atomic(self._campaign_path(campaign.run), text)
        return len(text)

    def _run(self, name: str) -> Campaign | None:
        path = self._campaign_path(name)
        return read_record(path, Campaign) if path.exists() else None

    def _last(self, *, unfinished: bool) -> Campaign | None:
        found = [run for run in map(self._run, self.runs()) if run is not None and not (unfinished and run.finished)]
        return max(found, key=_updated, default=None)

    def runs(self) -> list[str]:
        """Names of all runs, sorted."""
        return sorted(path.parent.name for path in (self._local / "runs").glob("*/campaign.json"))

    def _campaign_path(self, run: str) -> Path:
        return self._local / "runs" / component(run, "run") / "campaign.json"

    def drop_run(self, run: str) -> None:
        """Forget a run, its journals, and what was kept of it. Raises UsageError if somebody goes on with it."""
        self.hold(run)
        self.drop_kept(run)
        folder = self._campaign_path(run).parent
        with named_trouble(folder):
            folder.joinpath("campaign.json").unlink(missing_ok=True)  # first: half a run is no run
            shutil.rmtree(folder)
        os.close(self._held.pop(run))

    # journals

    def journal(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Append one line to a run's journal of this kind (one process a run); on return no kill can lose it.

        Returns how long the line is.
        """
        path = self._journal_path(run, kind)
        if (run, kind) not in self._journals:
            self._journals[run, kind] = Journal(path)
        return self._journals[run, kind].append(record)

    def compact(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Put one line in the place of all that a run's journal of this kind has; how long it is."""
        path = self._journal_path(run, kind)
        if journal := self._journals.pop((run, kind), None):
            journal.close()
        with self._lock():
            write_atomic(path, text := one_line(record) + "\n")
        return len(text)

    def end_journal(self, run: str, kind: str) -> None:
        """Remove a run's journal of this kind, of which nobody needs anything any more."""
        if journal := self._journals.pop((run, kind), None):
            journal.close()
        self._journal_path(run, kind).unlink(missing_ok=True)

    def read_journal(self, run: str, kind: str) -> list[dict[str, Any]]:
        """All whole lines of a run's journal. Raises InternalError if one but the last is torn."""
        return read_lines(self._journal_path(run, kind))

    def _journal_path(self, run: str, kind: str) -> Path:
        return self._local / "runs" / component(run, "run") / f"{journal_kind(kind)}.jsonl"

    # matrices, and everything at once

    def matrices(self) -> list[str]:
        """Names of all runs of matrices, the oldest first."""
        return sorted(path.stem for path in (self._local / "matrices").glob("*.jsonl"))

    def matrix_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a matrix's journal, in order."""
        return read_lines(self._matrix_path(name))

    def matrix_line(self, name: str, record: dict[str, Any]) -> None:
        """Append a line to a matrix's journal, and make it last."""
        if (name, MATRIX) not in self._journals:
            self._journals[name, MATRIX] = Journal(self._matrix_path(name))
        self._journals[name, MATRIX].append(record)
        self._journals[name, MATRIX].sync()

    def _matrix_path(self, name: str) -> Path:
        return self._local / "matrices" / f"{component(name, 'matrix')}.jsonl"

    def dump(self) -> Iterator[tuple[str, str]]:
        """Yield all that is kept: the paths of files below the folder, and their texts."""
        for path in sorted(path for pattern in _FILES for path in self.root.glob(pattern)):
            if path.suffix == ".jsonl" and {"runs", "matrices"} & {path.parent.name, path.parent.parent.name}:
                said = "".join(f"{one_line(line)}\n" for line in read_lines(path))  # its writer may have been killed
            else:
                with named_trouble(path):
                    said = path.read_text("utf-8")
            yield str(path.relative_to(self.root)), said

    def load(self, files: Iterable[tuple[str, str]]) -> int:
        """Write what `dump` of a store has given; how many files. Raises UsageError for a file that no store keeps."""
        number = 0
        with self._lock():
            for number, (path, said) in enumerate(files, 1):  # noqa: B007  the last one is the result
                if ".." in Path(path).parts or not any(fnmatchcase(path, pattern) for pattern in _FILES):
                    raise UsageError(f"{path!r} is no file of a corpus: somebody has edited the database")
                write_atomic(self.root / path, said)
        return number


_FILES = (
    "regressions/*/*.json",
    "seeds/*.jsonl",
    "local/findings/*/*.json",
    "local/runs/*/campaign.json",
    *(f"local/runs/*/{kind}.jsonl" for kind in JOURNALS),
    "local/kept/*.jsonl",
    "local/proofs/*/*.json",
    "local/timings/*.json",
    "local/matrices/*.jsonl",
)
"""Files that make up a corpus; all others can be made again."""
