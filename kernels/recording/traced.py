"""Run a program as it is, and say at its end which of its operators made the first NaN or Inf."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.recording.events import Event, Story, story_of
from kernel_assay.kernels.recording.program import run_hooked, why_unseen

_CASE = re.compile(r"\d+(\.py|(\.out|\.again)?\.pt)")


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of a traced program."""

    stories: tuple[Story, ...]
    """One for each process that called torch, the busiest first."""
    exit_code: int
    """Of the program; 128 and the signal's number, if one has ended it."""
    empty: str = ""
    """Why nothing was seen."""


def trace_program(
    command: Sequence[str],
    cases: Path,
    *,
    stop: bool = False,
    every_call: bool = False,
    found: Callable[[Event], None] = lambda _: None,
) -> Traced:
    """Run a command, watched; the inputs of what failed are left in a folder, which is made if there are any.

    stop: end the program, by an exception, at the first that comes through; every_call: watch all calls of models,
    also where that takes more than a tenth of the program's time; found: is called with that one, within a
    second. Raises UsageError for a command that cannot be started, and a folder that cannot be written to.
    """
    parent = next(one for one in (cases.absolute(), *cases.absolute().parents) if one.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{cases} cannot be written: {parent} is no folder that can be written to")
    told: list[Event] = []

    def look() -> None:
        failures = [] if told else [one for story in _stories(folder) for one in story.failures]
        for one in failures[:1]:
            told.append(one)
            found(one)

    with tempfile.TemporaryDirectory(prefix="kassay-trace-") as name:
        folder = Path(name)
        code = run_hooked(command, folder, {"trace": {"stop": stop, "every_call": every_call}}, look)
        look()
        stories = _stories(folder)
        failures = [one for story in stories for one in story.failures if one.case]
        for old in (part for part in cases.glob("*") if _CASE.fullmatch(part.name)):  # of an earlier run
            old.unlink()
        for i, one in enumerate(failures):
            one.case = _moved(one.case, cases / f"{i + 1}")
        troubles = {part.read_text("utf-8") for part in folder.glob("*.trouble")}
        for story in stories:
            story.trouble = "; ".join([*([story.trouble] if story.trouble else []), *sorted(troubles)])
        return Traced(tuple(stories), code, "" if stories else why_unseen(folder, command) or "torch was never called")


def _stories(folder: Path) -> list[Story]:
    found = [story_of(json.loads(part.read_text("utf-8"))) for part in folder.glob("*.jsonl")]
    return sorted((one for one in found if one.operators), key=lambda one: -one.operators)


def _moved(stem: str, to: Path) -> str:
    """Move the files of a case out of a folder that is about to go."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for end in (".py", ".pt", ".out.pt"):
        with contextlib.suppress(FileNotFoundError):  # its process was killed while it wrote them
            shutil.move(f"{stem}{end}", f"{to}{end}")
    return str(to)
