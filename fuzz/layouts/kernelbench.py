"""KernelBench: one file with the class Model, get_inputs and get_init_inputs, another one with the class ModelNew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.layouts.support.problem import Problem, defined

LOOKED_FOR = "a file with the class Model and get_inputs()"


def recognise(folder: Path) -> Problem | None:
    """Find the pair in a folder. Raises UsageError if there is more than one, or only half of one."""
    if (folder / "instance.json").is_file():  # of another layout, which has such a pair, too
        return None
    return of_files(sorted(folder.glob("*.py")), str(folder))


def of_files(files: Sequence[Path], where: str) -> Problem | None:
    """The pair among some files. Raises UsageError as recognise."""
    names = {path: defined(path) for path in files}
    references = [path for path, made in names.items() if {"Model", "get_inputs"} <= made]
    subjects = [path for path, made in names.items() if "ModelNew" in made]
    alone = [path for path in references if path not in subjects] or references
    if not alone:
        return None
    if not subjects:
        raise UsageError(f"{where} has no class ModelNew, which is the solution of {alone[0].name}")
    for found, what in ((alone, "Model and get_inputs()"), (subjects, "ModelNew")):
        if len(found) > 1:
            shown = ", ".join(path.name for path in found[:3])
            raise UsageError(f"{where} has more than one file with {what} ({shown}): name the pair, as two files")
    return Problem(layout="KernelBench", name="", reference=f"{alone[0]}:Model", subject=f"{subjects[0]}:ModelNew")
