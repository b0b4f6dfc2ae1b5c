"""Run a program as it is, and write what it asks of torch into a workload file, while it runs."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.workload import Call, text_of
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.kernels.recording.hook import MOST_CALLS
from kernel_assay.kernels.recording.program import run_hooked, why_unseen


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a recorded program."""

    calls: tuple[Call, ...]
    """Distinct ones, the most frequent first."""
    exit_code: int
    """Of the program; 128 and the signal's number, if one has ended it."""
    empty: str = ""
    """Why nothing was recorded."""
    warnings: tuple[str, ...] = ()


def record(
    command: Sequence[str], path: Path, *, functions: Sequence[str] = (), modules: Sequence[str] = ()
) -> Recording:
    """Run a command and write its calls to a file; which is not touched if there are none.

    functions: only those, as `module:name`; modules: only those of these classes. Raises UsageError for a command that
    cannot be started, and a file that cannot be written.
    """
    if odd := [one for one in functions if not all(part.strip() for part in one.partition(":"))]:
        raise UsageError(f"--function takes module:name, not {odd[0]!r}")
    if odd := [one for one in functions if one.startswith("__main__:")]:
        raise UsageError(f"{odd[0]} cannot be recorded: name a function of a module that the program imports")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is no file")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: {path.absolute().parent} is no folder that can be written to")
    with tempfile.TemporaryDirectory(prefix="kassay-record-") as name:
        folder = Path(name)
        asked = {"functions": [*functions], "modules": [*modules]}
        code = run_hooked(command, folder, asked, lambda: _write(path, _gathered(folder)))
        calls, troubles = _gathered(folder), _troubles(folder)
        _write(path, calls)
        found = Recording(calls, code, warnings=tuple(troubles))
        return found if calls else replace(found, empty=_why_empty(folder, command, [*functions, *modules]))


def _write(path: Path, calls: Sequence[Call]) -> None:
    if calls:
        write_atomic(path, text_of(calls))


def _gathered(folder: Path) -> tuple[Call, ...]:
    """The calls of all processes."""
    counts: dict[str, int] = {}
    for part in sorted(folder.glob("*.jsonl")):
        data = part.with_suffix(".counts").read_bytes()
        numbers = struct.unpack(f"={len(data) // 8}q", data)
        lines = part.read_bytes().split(b"\n")[:-1]  # a line without an end is being written
        for line, number in zip(lines, numbers, strict=False):
            text = line.decode()
            counts[text] = counts.get(text, 0) + max(1, number)
    read = (_call(text, count) for text, count in counts.items())
    return tuple(sorted((one for one in read if one), key=lambda one: -one.count))


def _call(text: str, count: int) -> Call | None:
    said: dict[str, Any] = json.loads(text)
    try:
        return Call(**said, count=count) if said["inputs"] else None
    except ValidationError:
        return None


def _troubles(folder: Path) -> list[str]:
    found = dict.fromkeys(part.read_text("utf-8") for part in sorted(folder.glob("*.trouble")))
    full = [part for part in folder.glob("*.jsonl") if part.read_bytes().count(b"\n") >= MOST_CALLS]
    left = f"a process made more than {MOST_CALLS:,} distinct calls: later ones are left out"
    return [*found, *([left] if full else [])]


def _why_empty(folder: Path, command: Sequence[str], wanted: Sequence[str]) -> str:
    """A reason why nothing was recorded."""
    if why := why_unseen(folder, command):
        return why
    return f"{' '.join(command)} never called {' or '.join(wanted) if wanted else 'torch'}"
