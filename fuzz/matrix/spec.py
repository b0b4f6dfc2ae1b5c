"""Read the definition of a test matrix: a file of YAML, whose mistakes are told with their lines."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    ValidationError,
)

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.storage.matrix_record import ANY, AXES, BUILTIN, Cell
from kernel_assay.fuzz.settings import seconds_of

Name = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Patterns = Name | tuple[Name, ...]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=3)]
Issue = Annotated[str, StringConstraints(pattern=r"^(https?://\S+|\S*#\d+|[A-Z][A-Z0-9]*-\d+)$")]
Path_ = tuple[str | int, ...]


def _is_time(text: str) -> str:
    """Raises ValueError, as pydantic wants it."""
    try:
        seconds_of(text)
    except UsageError as error:
        raise ValueError(error) from None
    return text


class Kernel(Record):
    """A kernel of one's own whose file does not say its op."""

    file: Name
    """`FILE[:NAME][@PYTHON]`; a file is looked for beside the matrix first."""
    op: Name


class Where(Record):
    """Cells, by patterns with * and ?: those that fit one pattern of every axis that is named."""

    op: Patterns = ()
    dtype: Patterns = ()
    shapes: Patterns = ()
    layout: Patterns = ()
    device: Patterns = ()
    subject: Patterns = ()
    """`builtin`, or a kernel of one's own as it is written under `subjects`."""
    backend: Patterns = ()

    def fits(self, cell: Cell) -> bool:
        """Whether a cell is one of these."""
        named = ((getattr(cell, axis), said) for axis in AXES if (said := getattr(self, axis)))
        return all(any(fnmatchcase(value, one) for one in ([p] if isinstance(p, str) else p)) for value, p in named)


class Skip(Where):
    """Cells that are not run, and why."""

    reason: Sentence


class Expected(Where):
    """Cells that fail for now. One that passes fails the matrix; so does an entry whose time is over."""

    issue: Issue
    """Where that is dealt with: a URL, `#12`, `project#12` or `KEY-12`."""
    until: date
    """The last day (2030-12-31) on which they may fail."""


class Matrix(Record):
    """The definition of a test matrix: every combination of its axes is a cell, a small run of cases."""

    ops: tuple[Name, ...] = ()
    """Names of ops; those of `references` and `contracts` are added."""
    references: tuple[Name, ...] = ()
    """References of your own, each an op: `FILE[:NAME]` or `module:NAME`."""
    contracts: tuple[Name, ...] = ()
    """Files of contracts of your own, each an op."""
    subjects: Annotated[tuple[Name | Kernel, ...], Field(min_length=1)] = (BUILTIN,)
    """Kernels: `builtin` (a cell for each backend that runs here), `builtin:BACKEND`, or `FILE[:NAME]` of your own."""
    dtypes: tuple[Name, ...] = ()
    """Of the first input; none: all that an op and a kernel have."""
    shapes: Names = (ANY,)
    """Shape sets: `any` (drawn as by a run), those of `shape_sets`, or small, medium, llama, mixtral and edge."""
    shape_sets: dict[Name, Annotated[tuple[dict[Name, NonNegativeInt], ...], Field(min_length=1)]] = Field({})
    """Sets of your own: extents of all dims of an op; one set may have those of several ops."""
    layouts: Names = (ANY,)
    """Memory layouts of inputs: `any` (drawn as by a run), or names (`kassay list layouts`)."""
    devices: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^(cpu|cuda(:\d+)?)$")], ...], Field(min_length=1)
    ] = ("cpu",)
    include: tuple[Where, ...] = ()
    """Only cells that one of these fits."""
    exclude: tuple[Where, ...] = ()
    """No cells that one of these fits: they are no part of the matrix."""
    skip: tuple[Skip, ...] = ()
    xfail: tuple[Expected, ...] = ()
    missing: Literal["fail", "skip"] = "fail"
    """What a device or a backend means that is named and not here; `fail`: exit code 2."""
    cases: PositiveInt = 32
    """Of each cell, at least one a shape."""
    budget: Annotated[str, AfterValidator(_is_time)] = "60s"
    """The longest that a cell may take: 10s, 5m."""
    seed: NonNegativeInt = 0
    """Decides all cases of all cells."""


_ADVICE = {
    "tuple_type": "write a list, as [softmax]",
    "date": "write a day, as 2030-12-31",
    "int_": "write a whole number",
    "dict_type": "write keys and values, as {op: softmax}",
    "model_type": "write keys and values, as {op: softmax}",
    "string_type": "write a word",
}
"""By a part of pydantic's name of a mistake: what to write instead."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 3, 3
MOST_BYTES = 1 << 20


def schema() -> str:
    """The JSON Schema of a definition, for editors; it is kept in reports/matrix.schema.json."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Kernel Assay: a test matrix"}
    return json.dumps(head | Matrix.model_json_schema() | {"title": head["title"]}, indent=2) + "\n"


@dataclass(frozen=True)
class Definition:
    """A matrix, and the file that it stands in."""

    path: Path
    matrix: Matrix
    root: yaml.Node

    def at(self, *place: str | int) -> str:
        """The line of a part of the file, and its path: `matrix.yaml, line 12, skip[0].reason`."""
        dotted = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in place).lstrip(".")
        return f"{self.path}, line {_line(self.root, place)}{f', {dotted}' if dotted else ''}"

    def beside(self, text: str) -> str:
        """A file as it is named here, looked for beside the matrix; whatever else it is, as it stands."""
        beside = self.path.parent / text.partition(":")[0].partition("@")[0].partition("(")[0]
        return str(self.path.parent / text) if beside.is_file() else text


def load(path: Path) -> Definition:
    """Read a definition. Raises UsageError, with the line, for a file that is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} has more than {MOST_BYTES >> 20} MB, which no matrix has")
        text = path.read_text("utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        raw = yaml.safe_load(text)
        twice = next(_twice(root, {}), None) if root else None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: of a date that is none
        raise UsageError(f"{path}{_marked(error)} is not YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(root, yaml.MappingNode) or not isinstance(raw, dict):
        raise UsageError(f"{path} is no matrix: write `ops: [softmax]` and more (docs/a-matrix-of-tests.md)")
    if twice is not None:
        raise UsageError(f"{path}, line {twice.start_mark.line + 1}: {twice.value!r} stands twice")
    try:
        found = Definition(path, Matrix.model_validate(raw), root)
    except ValidationError as error:
        first = max(error.errors(), key=lambda one: len(one["loc"]))  # of the kinds of a union, what fits best
        place = tuple(one for one in first["loc"] if not isinstance(one, str) or _names_a_part(one))
        raise UsageError(f"{Definition(path, Matrix(), root).at(*place)}: {_complaint(first)}") from None
    return found


def _names_a_part(one: str) -> bool:
    """Whether a word of pydantic's place is a key of the file, and no kind of a union (`Kernel`, `constrained-str`)."""
    return one != Kernel.__name__ and "[" not in one and one not in {"constrained-str", "str"}


def _complaint(first: Any) -> str:
    """A sentence of pydantic's, in the words of a file."""
    kind, context = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such key"
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return "it is missing"
    if kind == "string_pattern_mismatch" and "https" in str(context.get("pattern")):
        return f"{first['input']!r} is no issue: write a URL, #12, project#12 or KEY-12"
    advice = next(
        (words for part, words in _ADVICE.items() if part in kind), first["msg"][:1].lower() + first["msg"][1:]
    )
    return f"{_SHORT.repr(first['input'])} is not right: {advice}"


def _marked(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}," if mark else ""


def _line(node: yaml.Node, place: Sequence[str | int]) -> int:
    """The line of the part of a file that is named, or of the last one on the way to it that there is."""
    line: int = node.start_mark.line + 1
    for step in place:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == step), None)
            key, node = pair or (None, node)
            if key is None:
                break
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line


def _twice(node: yaml.Node, seen: dict[int, bool]) -> Iterator[yaml.Node]:
    """Yield keys that stand twice in a mapping, of which YAML would take the last in silence; aliases are seen once.

    Raises ValueError for a node within itself.
    """
    if seen.get(id(node)):
        raise ValueError("an alias stands within what it names")
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen[id(node)] = True
    if isinstance(node, yaml.MappingNode):
        keys = set[str]()
        for key, _ in node.value:
            if str(key.value) in keys:
                yield key
            keys.add(str(key.value))
    for value in (pair[1] if isinstance(pair, tuple) else pair for pair in node.value):
        yield from _twice(value, seen)
    seen[id(node)] = False
