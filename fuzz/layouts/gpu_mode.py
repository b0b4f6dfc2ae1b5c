"""gpu-mode: task.yml, reference.py with generate_input and ref_kernel(data), submission.py with custom_kernel(data)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.layouts.support.problem import HERE, Problem, digest_of, libraries, needs, present

LOOKED_FOR = "task.yml"
REFERENCE = '''"""The reference of a gpu-mode task, as a function of the tensors in its data."""

import json
import sys
import time

import torch

sys.path[:0] = {folders!r}
SPECS = {specs!r}
DIGEST = "{digest}"
KEPT = torch.Generator


class OnHost(torch.overrides.TorchFunctionMode):
    """Makes tensors on the CPU that are asked for on a GPU: values do not depend on it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {{}})
        if getattr(function, "__name__", "") == "cuda":
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        args = tuple("cpu" if isinstance(one, str) and one.startswith("cuda") else one for one in args)
        return function(*args, **kwargs)


with OnHost():
    from reference import generate_input, ref_kernel


def several(data):
    return list(data) if isinstance(data, (tuple, list)) else [data]


def made(spec):
    torch.Generator = lambda device="cpu": KEPT("cpu")
    try:
        with OnHost():
            return generate_input(**spec)
    finally:
        torch.Generator = KEPT


def called(parts):
    with OnHost():
        return ref_kernel(tuple(parts) if ISSUED else parts[0])


def copies(parts, fill=None):
    taken = [one.clone() if isinstance(one, torch.Tensor) else one for one in parts]
    if fill is not None:
        taken[fill[0]] = torch.full_like(taken[fill[0]], fill[1])
    return taken


def buffers_of(parts):
    """Positions that are written, and not read: they are returned, and what was there does not matter."""
    given = copies(parts)
    results = several(called(given))
    found = [i for i, one in enumerate(given) if isinstance(one, torch.Tensor) and any(one is r for r in results)]
    for i in found:
        again = [several(called(copies(parts, (i, value)))) for value in (1, 3)]
        if not all(torch.equal(a, b) for a, b in zip(*again)):
            raise ValueError(f"ref_kernel changes part {{i}} of its data in place, which cannot be judged")
    return found, results


def axes_of(position, examples):
    """Each axis of a buffer: an axis of an input that has its extent in all examples, or a number."""
    axes = []
    for axis, extent in enumerate(examples[0][position].shape):
        for i, one in enumerate(examples[0]):
            if i in BUFFERS or not isinstance(one, torch.Tensor):
                continue
            same = [a for a in range(one.ndim) if all(e[i].shape[a] == e[position].shape[axis] for e in examples)]
            if same:
                axes.append([i, same[-1] if axis else same[0]])
                break
        else:
            axes.append(extent)
    return axes


FIRST = made(SPECS[0])
ISSUED = isinstance(FIRST, (tuple, list))
FIRST = several(FIRST)
if odd := [type(one).__name__ for one in FIRST if not isinstance(one, (torch.Tensor, int, float, bool, str))]:
    raise TypeError(f"generate_input gives a {{odd[0]}} in its data; only tensors and numbers can be")
BUFFERS, RESULTS = buffers_of(FIRST)
EXAMPLES, began = [FIRST], time.monotonic()
for spec in SPECS[1:]:
    if time.monotonic() - began < 2:
        EXAMPLES.append(several(made(spec)))
NAMES = ["out"] if len(RESULTS) == 1 else [f"out{{i}}" for i in range(len(RESULTS))]
OUTPUTS = {{name: str(one.dtype).removeprefix("torch.") for name, one in zip(NAMES, RESULTS)}}
KINDS = ["tensor" if isinstance(one, torch.Tensor) else "number" for one in FIRST]
KINDS = ["buffer" if i in BUFFERS else kind for i, kind in enumerate(KINDS)]
TOLD = json.dumps({{
    "issued": ISSUED,
    "kinds": KINDS,
    "buffers": {{i: [axes_of(i, EXAMPLES), str(FIRST[i].dtype)] for i in BUFFERS}},
}})
SHAPES_OF_BUFFERS = {{int(i): axes for i, (axes, _) in json.loads(TOLD)["buffers"].items()}}


def get_inputs():
    return [one for i, one in enumerate(FIRST) if i not in BUFFERS]


def get_shapes():
    return [[tuple(one.shape) for one, kind in zip(e, KINDS) if kind == "tensor"] for e in EXAMPLES]


def reference(*given):
    tensors = KINDS.count("tensor")
    rest = {{"tensor": iter(given[:tensors]), "number": iter(given[tensors:])}}
    parts = [None if kind == "buffer" else next(rest[kind]) for kind in KINDS]
    for i, axes in SHAPES_OF_BUFFERS.items():
        shape = [n if isinstance(n, int) else parts[n[0]].shape[n[1]] for n in axes]
        whole = not FIRST[i].dtype.is_floating_point
        parts[i] = torch.zeros(shape, dtype=FIRST[i].dtype if whole else torch.get_default_dtype())
    return called(parts)
'''
SUBJECT = '''"""The submission of a gpu-mode task, as a function of the tensors in its data."""

{libraries}
import sys

import torch

sys.path[:0] = {folders!r}
from submission import custom_kernel as submitted


def custom_kernel({parameters}):
    {made}
    return submitted({data})
'''


def recognise(folder: Path) -> Problem | None:
    """Read the folder. Raises UsageError for what is missing in it."""
    path = folder / "task.yml"
    if not path.is_file():
        return None
    task = _task(path)
    reference = present(folder, "reference.py", "generate_input and ref_kernel")
    submission = present(folder, "submission.py", "custom_kernel")
    for file, name, what in (
        (reference, "generate_input", "what makes the data of a test"),
        (reference, "ref_kernel", "the reference"),
        (submission, "custom_kernel", "the solution"),
    ):
        needs(file, name, what)
    text, folders = submission.read_text("utf-8"), _folders(folder, task)
    return Problem(
        layout="gpu-mode",
        name=folder.name,
        reference=f"{HERE}/reference_adapter.py:reference",
        subject=f"{HERE}/submission_adapter.py:custom_kernel",
        solution=f"{submission}:custom_kernel",
        files={
            "reference_adapter.py": REFERENCE.format(folders=folders, specs=task["tests"], digest=digest_of(reference))
        },
        later=lambda told: {"submission_adapter.py": _subject(told, text, folders)},
    )


def _task(path: Path) -> dict[str, Any]:
    try:
        said = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    tests = said.get("tests") if isinstance(said, dict) else None
    if not isinstance(tests, list) or not tests or not all(isinstance(one, dict) for one in tests):
        raise UsageError(f"{path} has no tests, which are arguments of generate_input")
    return dict(said)


def _folders(folder: Path, task: dict[str, Any]) -> list[str]:
    """Folders of everything that a test finds beside itself."""
    named = [one.get("source", "") for one in task.get("files") or [] if isinstance(one, dict)]
    return list(
        dict.fromkeys([str(folder), *(str((folder / one).resolve().parent) for one in named if "@" not in one)])
    )


def _subject(told: str, text: str, folders: list[str]) -> str:
    """The submission's adapter. told: by the process of the reference, how its data is made up."""
    said = json.loads(told)
    taken = [i for i, kind in enumerate(said["kinds"]) if kind != "buffer"]
    names = {position: f"x{number}" for number, position in enumerate(taken)}
    tensors = [names[i] for i in taken if said["kinds"][i] == "tensor"]
    numbers = [names[i] for i in taken if said["kinds"][i] == "number"]
    made = []
    for i, (axes, dtype) in said["buffers"].items():
        names[int(i)] = f"buffer{int(i)}"
        shape = ", ".join(str(n) if isinstance(n, int) else f"{names[n[0]]}.shape[{n[1]}]" for n in axes)
        made.append(f"buffer{int(i)} = torch.empty([{shape}], dtype={dtype}, device={tensors[0]}.device)")
    data = ", ".join(names[i] for i in range(len(said["kinds"])))
    return SUBJECT.format(
        libraries=libraries(text),
        folders=folders,
        parameters=", ".join([*tensors, *(["*", *numbers] if numbers else [])]),
        made="\n    ".join(made),
        data=f"({data},)" if said["issued"] else data,
    )
