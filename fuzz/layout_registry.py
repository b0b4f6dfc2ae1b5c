"""The layouts there are: one file each in fuzz/layouts/; which of them a folder, or a pair of files, has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz import layouts as folder
from kernel_assay.fuzz.layouts import kernelbench
from kernel_assay.fuzz.layouts.support.problem import WORKLOAD, Problem


@cache
def layouts() -> list[ModuleType]:
    """The files of all layouts."""
    found = sorted(module.name for module in iter_modules(folder.__path__) if not module.ispkg)
    return [import_module(f"kernel_assay.fuzz.layouts.{name}") for name in found]


def recognised(places: Sequence[Path]) -> Problem:
    """The problem of a folder, or of two files. Raises UsageError if there is none, and if there are several."""
    if len(places) == 1 and places[0].is_dir():
        return _in_folder(places[0].resolve())
    if missing := [place for place in places if not place.exists()]:
        raise UsageError(f"{missing[0]} does not exist")
    if len(places) != 2 or any(place.is_dir() for place in places):
        raise UsageError("name one folder, or two files: one with the class Model, and one with ModelNew")
    files = [place.resolve() for place in places]
    problem = kernelbench.of_files(files, f"the pair of {places[0]} and {places[1]}")
    if problem is None:
        raise UsageError(f"neither {places[0]} nor {places[1]} has the class Model and get_inputs()")
    return problem


def _must_be_writable(problem: Problem) -> None:
    """Raise ValueError for adapters that no file can hold, for their names and texts come from files of others."""
    for path, text in {problem.name: "", **problem.files}.items():
        if not isinstance(path, str) or "\0" in path:
            raise ValueError(f"{path!r} is no name")
        (path + text).encode()


def _in_folder(place: Path) -> Problem:
    known = layouts()
    found: list[Problem] = []
    for module in known:
        try:
            if (problem := module.recognise(place)) is not None:
                _must_be_writable(problem)
                found.append(problem)
        except (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"  # anything may stand in files of others
            raise UsageError(f"{place} holds files that are not as {module.LOOKED_FOR} should be: {what}") from error
    if not found:
        looked = ", ".join(module.LOOKED_FOR for module in known)
        raise UsageError(f"{place} holds no problem that is known; looked for: {looked}")
    if len(found) > 1:
        names = " and ".join(problem.layout for problem in found)
        raise UsageError(f"{place} holds several problems, {names}: leave the files of one of them in the folder")
    calls = place / WORKLOAD
    return replace(found[0], workload=calls) if calls.is_file() and not found[0].workloads else found[0]
