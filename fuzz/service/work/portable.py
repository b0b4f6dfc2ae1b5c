"""Paths of what was sent: a worker's folder while a task runs, one and the same name in all that leaves the worker."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.reference_place import ReferencePlace, Target
from kernel_assay.fuzz.service.protocol import MADE, MOST_BYTES, MOST_FILES, SENT, Sources

BUNDLE = "bundle.json"
"""The artifact that holds the files which findings need: `pull` reads it."""
SUFFIXES = frozenset({".py", ".cu", ".cuh", ".h", ".hpp", ".toml", ".yaml", ".yml", ".json", ".jsonl"})
NOT_SENT = "is not among the files"
R = TypeVar("R", bound=Record)


class Places:
    """The folders of a task."""

    def __init__(self, sources: Path, store: Path) -> None:
        """sources: what was sent, or a checkout; store: the task's own corpus."""
        self.sources, self.store = sources.resolve(), store.resolve()
        self._names = {str(self.store): MADE, str(self.sources): SENT}

    def leaving(self, text: str) -> str:
        """The text without the worker's folders."""
        for place, name in self._names.items():
            text = text.replace(place, name)
        return text

    def record(self, record: R) -> R:
        """A record without the worker's folders."""
        return type(record).model_validate_json(self.leaving(record.canonical()))

    def arriving(self, finding: Finding) -> Finding:
        """A finding with this worker's folders, if all that it names lies in them, or is built in.

        Raises UsageError for one that names anything else: it comes from whoever may submit jobs.
        """
        text = finding.canonical()
        for place, name in self._names.items():
            text = text.replace(name, place)
        found = Finding.model_validate_json(text)
        subject = found.subject
        if subject.python:
            raise UsageError("a finding of another interpreter cannot be run by a worker")
        if subject.is_own:
            self.inside(subject.path)
        elif ".." in Path(subject.path).parts:
            raise UsageError(f"{subject.path} is no built-in implementation")
        if found.contract:
            origin = ReferencePlace.read(found.contract)
            if origin is None or origin.folder:
                raise UsageError("a finding of a contract of one's own cannot be run by a worker")
            self.inside(Target.read(origin.target).where)
        return found

    def inside(self, text: str) -> Path:
        """The path of a file or folder, which lies in the folders of the task. Raises UsageError if it does not."""
        path = (self.sources / text).resolve()
        if not any(path.is_relative_to(root) for root in (self.sources, self.store)):
            raise UsageError(f"{text!r} is no path within what was sent")
        if not path.exists():
            raise UsageError(f"{text} {NOT_SENT}")
        return path

    def bundle(self) -> Sources | None:
        """The files that findings of this task need, with names that begin with `sources` and `adapters`.

        None: there are too many of them, as in a checkout, which has its commit.
        """
        found: dict[str, str] = {}
        size = 0
        for root, name in ((self.store / "problems", "adapters/problems"), (self.sources, "sources")):
            for path in sorted(root.rglob("*")):
                if path.suffix not in SUFFIXES or not path.is_file() or path.is_symlink():
                    continue
                size += path.stat().st_size
                if len(found) == MOST_FILES or size > MOST_BYTES // 2:
                    return None
                found[f"{name}/{path.relative_to(root)}"] = self.leaving(path.read_text("utf-8", "replace"))
        return Sources(files=found) if found else None
