"""A problem that a folder holds: where its reference and its solution are, and what must be written for both to run."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.verdict import Verdict

HERE = "<adapters>"
"""In a place: the folder that the adapters are written into."""
WORKLOAD = "workload.jsonl"
"""Calls of a model run; the file may lie in the folder of any layout that has no other by that name."""
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Extents that the author wants judged, with what a record of them says besides."""

    dims: Mapping[str, int]
    said: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reference, a solution, and the adapters between their forms and ours; nothing of them has run yet."""

    layout: str
    name: str
    """Of the op; empty: as its reference is called."""
    reference: str
    """`FILE:NAME`."""
    subject: str
    """`FILE:NAME`."""
    solution: str = ""
    """What its author wrote, likewise, where the subject is an adapter around it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Adapters: path below their folder -> text."""
    later: Callable[[str], Mapping[str, str]] | None = None
    """Adapters that depend on what the one of the reference tells when it runs (TOLD)."""
    dtypes: tuple[str, ...] = ()
    unable: str = ""
    """Why its solution runs on no machine that this tool knows; a sentence."""
    workloads: tuple[Workload, ...] = ()
    workload: Path | None = None
    """Calls of a model run, as `record` writes them."""
    trace: Callable[[Workload, Verdict], Message] | None = None
    """What its own tools read of a workload's verdict; the workloads are judged one by one then."""

    @property
    def judged(self) -> str:
        """What is judged, as a person knows it."""
        return self.solution or self.subject

    @property
    def digest(self) -> str:
        """Names the folder of its adapters: what is judged later under the same name is another problem."""
        told = repr((self.layout, self.reference, self.subject, sorted(self.files.items())))
        return hashlib.sha256(told.encode()).hexdigest()[:12]


def defined(path: Path) -> set[str]:
    """Names that a Python file defines at its top, found without running it; none, if it cannot be parsed."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return set()
    made = {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    made |= {
        alias.asname or alias.name for n in body if isinstance(n, ast.ImportFrom | ast.Import) for alias in n.names
    }
    return made | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}


def json_of(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UsageError if there is none."""
    try:
        found = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no JSON object")
    return found


def present(folder: Path, name: str, what: str) -> Path:
    """A file that the layout needs. Raises UsageError if it is not there."""
    if not (folder / name).is_file():
        raise UsageError(f"{folder} has no {name}, which holds {what}")
    return folder / name


def needs(path: Path, name: str, what: str) -> None:
    """Raise UsageError if a file does not define a name that is looked for in it."""
    if name not in defined(path):
        raise UsageError(f"{path} has no {name}, which is {what}")


def libraries(text: str) -> str:
    """Lines that import what a source imports, by which the backend of its adapter is told."""
    return "".join(f"import {name}\n" for name in ("torch", "triton", "cupy") if f"import {name}" in text)


def digest_of(path: Path) -> str:
    """A digest of a file, so that the adapter of a file that has changed is another one."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
