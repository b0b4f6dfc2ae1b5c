"""CUDABeaver: instance.json, input.json, broken_start.*; of its families that of KernelBench, which has modules."""

from __future__ import annotations

from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.layouts.support.problem import HERE, Problem, defined, json_of, needs

LOOKED_FOR = "instance.json and input.json"
REFERENCES = ("problem.py", "testbench/problem.py", "reference.py")


def recognise(folder: Path) -> Problem | None:
    """Read the folder: what was repaired, else the broken start. Raises UsageError for families that have no module."""
    if not (folder / "instance.json").is_file() or not (folder / "input.json").is_file():
        return None
    instance, given = json_of(folder / "instance.json"), json_of(folder / "input.json")
    family = instance.get("task_family")
    if family != "kernelbench":
        raise UsageError(
            f"{folder} is of the family {family}, whose test is a program that nvcc builds for a GPU; "
            "only the family kernelbench has a reference to judge by"
        )
    reference = next((folder / one for one in REFERENCES if {"Model", "get_inputs"} <= defined(folder / one)), None)
    if reference is None:
        raise UsageError(f"{folder} has no {' or '.join(REFERENCES)} with the class Model and get_inputs()")
    repaired = folder / str(given.get("solution_file", "solution.py"))
    solution = repaired if repaired.is_file() else next(iter(sorted(folder.glob("broken_start.*"))), repaired)
    needs(solution, "ModelNew", "the solution")
    return Problem(
        layout="CUDABeaver",
        name=folder.resolve().name,
        reference=f"{reference.resolve()}:Model",
        subject=f"{HERE}/solution.py:ModelNew",
        files={"solution.py": solution.read_text("utf-8")},  # a broken start is Python whatever its name ends in
    )
