"""flashinfer-bench and SOL-ExecBench: definition.json, workload.jsonl, solution.json; their traces are written, too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.layouts.support.problem import HERE, Problem, Workload, json_of, libraries, present
from kernel_assay.kernels.backends.support.head_comment import head_comment
from kernel_assay.kernels.environment import environment

LOOKED_FOR = "definition.json"
LANGUAGES = ("python", "triton", "pytorch")
CUDA = ("cuda", "cuda_cpp")
"""Judged where the entry point is a kernel whose file says how it is launched."""
STATUSES = {
    Kind.PASS: "PASSED",
    Kind.WRONG_SHAPE: "INCORRECT_SHAPE",
    Kind.WRONG_DTYPE: "INCORRECT_DTYPE",
    Kind.MISMATCH: "INCORRECT_NUMERICAL",
    Kind.NONFINITE: "INCORRECT_NUMERICAL",
    Kind.NONDETERMINISTIC: "INCORRECT_NUMERICAL",
    Kind.UNWRITTEN: "INCORRECT_NUMERICAL",
    Kind.BUILD_FAILED: "COMPILE_ERROR",
    Kind.TIMEOUT: "TIMEOUT",
}
"""Of everything else RUNTIME_ERROR."""
MEASURED = ("PASSED", "INCORRECT_NUMERICAL")
"""Statuses whose records have numbers."""
REFERENCE = """{source}


INPUTS = {inputs!r}
OUTPUTS = {outputs!r}
DIMS = {dims!r}
SHAPES = {shapes!r}
"""
SUBJECT = '''"""The solution, called as definition.json has its arguments."""

{libraries}
import importlib.util
import sys
from pathlib import Path

root = Path(__file__).parent / "solution"
file = root / {file!r}
sys.path[:0] = [str(root), str(file.parent)]
spec = importlib.util.spec_from_file_location("solution_entry", file)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)


def run({parameters}):
    {call}
'''
RETURNS = """result = module.{entry}({arguments})
    return tuple(result[name] for name in {outputs!r}) if isinstance(result, dict) else result"""


def recognise(folder: Path) -> Problem | None:
    """Read the folder. Raises UsageError for what is missing in it, or cannot be judged."""
    path = folder / "definition.json"
    if not path.is_file():
        return None
    definition = json_of(path)
    solution = json_of(present(folder, "solution.json", "the solution"))
    try:
        workloads = _workloads(folder / "workload.jsonl", _constants(definition))
        written = folder / "solution.json"
        file, entry = _entry(written, solution)
        in_cuda = not file.endswith(".py")
        files = {
            "reference.py": _reference(path, definition, workloads),
            **({} if in_cuda else {"subject.py": _subject(definition, solution, file, entry)}),
            **{f"solution/{one['path']}": one["content"] for one in solution["sources"]},
        }
        unable = _unable(written, solution, file, entry) if in_cuda else ""
        trace = partial(_trace, definition["name"], solution["name"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder}: definition.json or solution.json is not of its schema: no {error}") from error
    return Problem(
        layout="definition.json",
        name=definition["name"],
        reference=f"{HERE}/reference.py:run",
        subject=f"{HERE}/solution/{file}" if in_cuda else f"{HERE}/subject.py:run",
        files=files,
        unable=unable,
        workloads=tuple(workloads),
        trace=trace,
    )


def _workloads(path: Path, constants: Mapping[str, int]) -> list[Workload]:
    """Those of the file, plain or each within a trace; extents of variable axes."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            said = said.get("workload", said)
            found.append(Workload({**constants, **said["axes"]}, said))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} has a line that is no workload: {line[:60]}") from error
    return found


def _constants(definition: Mapping[str, Any]) -> dict[str, int]:
    return {name: one["value"] for name, one in definition["axes"].items() if one["type"] == "const"}


def _reference(path: Path, definition: Mapping[str, Any], workloads: Sequence[Workload]) -> str:
    """The source of its reference, with what it says of inputs and outputs."""
    if odd := [name for name, one in definition["axes"].items() if one["type"] not in {"const", "var"}]:
        raise UsageError(
            f"{path}: the axis {odd[0]} is {definition['axes'][odd[0]]['type']}; only const and var are known"
        )
    tensors = {**definition["inputs"], **definition["outputs"]}
    if odd := [name for name, one in tensors.items() if one["shape"] is not None and one["dtype"] not in FORMATS]:
        raise UsageError(f"{path}: {odd[0]} is {tensors[odd[0]]['dtype']}, which is none of {', '.join(FORMATS)}")
    inputs = {
        name: _scalar(path, name, workloads)
        if one["shape"] is None
        else f"{one['dtype']}[{', '.join(map(str, one['shape']))}]"
        for name, one in definition["inputs"].items()
    }
    used = {axis for one in definition["inputs"].values() for axis in map(str, one["shape"] or ())}
    constants = {name: n for name, n in _constants(definition).items() if name in used}
    shapes = [{axis: n for axis, n in one.dims.items() if axis in used} for one in workloads]
    return REFERENCE.format(
        source=definition["reference"],
        inputs=inputs,
        outputs={name: one["dtype"] for name, one in definition["outputs"].items()},
        dims=constants,
        shapes=shapes,
    )


def _scalar(path: Path, name: str, workloads: Sequence[Workload]) -> Any:
    """The value that a scalar has in the first workload."""
    for one in workloads:
        value = one.said.get("inputs", {}).get(name, {}).get("value")
        if value is not None:
            return value
    raise UsageError(f"{path}: {name} is a scalar, and no line of workload.jsonl gives its value")


def _entry(path: Path, solution: Mapping[str, Any]) -> tuple[str, str]:
    """File and function of the entry point. Raises UsageError for a language, or a place, that cannot be judged."""
    spec = solution["spec"]
    said = spec.get("languages") or [spec["language"]]
    if odd := [one for one in said if one.lower() not in (*LANGUAGES, *CUDA)]:
        raise UsageError(f"{path} is written in {odd[0]}; only python, triton and cuda can be judged")
    file, _, entry = spec["entry_point"].partition("::")
    sources = [one["path"] for one in solution["sources"]]
    if odd := [one for one in sources if Path(one).is_absolute() or ".." in Path(one).parts]:
        raise UsageError(f"{path} has a source outside of its folder: {odd[0]}")
    if file not in sources or not entry.isidentifier():
        raise UsageError(f"{path}: the entry point {spec['entry_point']!r} is no FILE::FUNCTION of its sources")
    return file, entry


def _unable(path: Path, solution: Mapping[str, Any], file: str, entry: str) -> str:
    """Why a solution in CUDA C++ cannot be run; empty if its kernel says how it is launched."""
    source = next(one["content"] for one in solution["sources"] if one["path"] == file)
    comment = head_comment(source)
    kernel = re.search(rf"__global__[^;{{]*\b{entry}\s*\(", source)
    if file.endswith(".cu") and kernel and comment is not None and len(comment.fences) > 1:
        said = re.search(r"^\s*entry\s*=\s*[\"'](\w+)", comment.inside, re.MULTILINE)
        if said and said[1] == entry:
            return ""
        return (
            f"{path}: the entry point is {entry}, and the front matter of {file} launches {said[1] if said else 'none'}"
        )
    what = "has no front matter that says how it is launched" if kernel else "is a function of the host, not a kernel"
    return f"{path}: {entry} of {file} {what}: it is built by nvcc for a GPU, and cannot be run here"


def _subject(definition: Mapping[str, Any], solution: Mapping[str, Any], file: str, entry: str) -> str:
    """The adapter of a solution in Python."""
    spec, inputs, outputs = solution["spec"], definition["inputs"], list(definition["outputs"])
    tensors = [name for name, one in inputs.items() if one["shape"] is not None]
    scalars = [name for name, one in inputs.items() if one["shape"] is None]
    writes = spec.get("destination_passing_style", False)
    arguments = [*inputs, *outputs] if writes else [*inputs]
    parameters = [*outputs, *tensors] if writes else tensors
    call = f"module.{entry}({', '.join(arguments)})" if writes else RETURNS.format(
        entry=entry, arguments=", ".join(arguments), outputs=outputs
    )  # fmt: skip
    return SUBJECT.format(
        libraries=libraries("\n".join(one["content"] for one in solution["sources"])),
        file=file,
        parameters=", ".join([*parameters, *(["*", *scalars] if scalars else [])]),
        call=call,
    )


def _trace(definition: str, solution: str, workload: Workload, verdict: Verdict) -> Mapping[str, Any]:
    """A line of a trace file. No time was taken: its numbers are 0; an error nobody measured is NaN."""
    status = STATUSES.get(verdict.kind, "RUNTIME_ERROR")
    here = environment()
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {"hardware": here.processor or here.machine, "libs": dict(here.packages)},
        "timestamp": datetime.now(UTC).isoformat(),
        "log": verdict.message,
    }
    if status in MEASURED:
        size = {m.metric: m.value for m in verdict.measurements}
        names = {"max_relative_error": "max_rel", "max_absolute_error": "max_abs"}
        evaluation["correctness"] = {key: _number(size.get(metric, math.nan)) for key, metric in names.items()}
    if status == "PASSED":
        evaluation["performance"] = {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    return {"definition": definition, "workload": dict(workload.said), "solution": solution, "evaluation": evaluation}


def _number(value: float) -> float | str:
    """A number as their JSON has it."""
    return abs(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity"
