"""Our own small layout: problem.yaml says what the inputs of reference.py and solution.py are."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, field_validator

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record, Scalar
from kernel_assay.fuzz.layouts.support.problem import HERE, WORKLOAD, Problem, defined, digest_of, needs, present

LOOKED_FOR = "problem.yaml"
ADAPTER = '''"""The reference {file}, with the inputs that problem.yaml lists."""

import importlib.util
import sys

sys.path.insert(0, {folder!r})
spec = importlib.util.spec_from_file_location("problem_{stem}", {file!r})
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
reference = module.{function}
INPUTS = {inputs!r}
DIMS = {dims!r}
SHAPES = {shapes!r}
DIGEST = "{digest}"
'''


class Schema(Record):
    """The contents of problem.yaml."""

    name: str = ""
    """Of the op; empty: as the folder is called."""
    reference: str = "reference"
    """`NAME` or `FILE:NAME`."""
    solution: str = "solution"
    inputs: dict[str, str]
    """Name -> `float32[rows, cols] 0..1`, `int64[n] < rows`."""
    attrs: dict[str, Scalar | None] = Field({})
    dims: dict[str, int | tuple[int, int]] = Field({})
    """A range, or a fixed extent."""
    dtypes: tuple[str, ...] = ()
    """Of the first input; none: the one that it has."""
    shapes: tuple[dict[str, int], ...] = ()
    """Extents that are tried first."""

    @field_validator("attrs")
    @classmethod
    def _numbers(cls, attrs: dict[str, Scalar | None]) -> dict[str, Scalar | None]:
        """Read 1e-6 as a number, which YAML takes for text where there is no dot."""
        return {name: _number(value) for name, value in attrs.items()}


def _number(value: Scalar | None) -> Scalar | None:
    with suppress(ValueError):
        if isinstance(value, str) and math.isfinite(number := float(value)):
            return number
    return value


def recognise(folder: Path) -> Problem | None:
    """Read the folder. Raises UsageError for a schema that is not kept, and a missing file or function."""
    path = folder / "problem.yaml"
    if not path.is_file():
        return _beside_workload(folder)
    said = _schema(path)
    reference, function = _place(folder, said.reference, "reference.py")
    solution, called = _place(folder, said.solution, "solution.py")
    text = ADAPTER.format(
        file=str(reference),
        folder=str(folder),
        stem=reference.stem,
        function=function,
        inputs={**said.inputs, **said.attrs},
        dims=said.dims,
        shapes=list(said.shapes),
        digest=digest_of(reference),
    )
    return Problem(
        layout="problem.yaml",
        name=said.name or folder.resolve().name,
        reference=f"{HERE}/reference.py:reference",
        subject=f"{solution}:{called}",
        files={"reference.py": text},
        dtypes=said.dtypes,
    )


def _beside_workload(folder: Path) -> Problem | None:
    """The problem without its problem.yaml: a workload lies there, and the reference says what its inputs are."""
    reference, solution = folder / "reference.py", folder / "solution.py"
    if not (folder / WORKLOAD).is_file() or "reference" not in defined(reference):
        return None
    needs(present(folder, "solution.py", "the function 'solution'"), "solution", "the solution")
    return Problem(
        layout=WORKLOAD,
        name=folder.resolve().name,
        reference=f"{reference.resolve()}:reference",
        subject=f"{solution.resolve()}:solution",
    )


def _schema(path: Path) -> Schema:
    try:
        said: Any = yaml.safe_load(path.read_text("utf-8"))
        return Schema.model_validate(said)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path}: {key} is not understood: {first['msg']}") from error


def _place(folder: Path, text: str, usual: str) -> tuple[Path, str]:
    file, _, name = text.rpartition(":")
    path = present(folder, file or usual, f"the function {name!r}")
    needs(path, name, "named in problem.yaml" if name not in {"reference", "solution"} else f"the {name}")
    return path.resolve(), name
