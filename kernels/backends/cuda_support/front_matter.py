"""Front matter of a CUDA file: TOML between two lines of `---`, in a comment above the first line of code.

    /*
    SiLU, one thread an element.

    ---
    op = "silu"
    entry = "silu<{T}>"
    dtypes = ["float32", "float64"]
    args = ["out", "x", "n"]
    dims = { n = "x.size" }
    grid = "ceil_div(n, 256)"
    block = 256
    ---
    */

A comment of `//` lines will do as well. The keys:

    entry     the kernel; {T} in it stands for the C++ type of the case's dtype: float, double, __half, __nv_bfloat16
    args      what it is launched with, in its own order: outputs, inputs, attributes, dims, or other formulas
    grid      blocks: a formula, or a list of one to three
    block     threads of a block: likewise
    shared    bytes of dynamic shared memory: a formula; 0 if not said
    dims      names for sizes, each a formula that may use those above it
    requires  a list of formulas; a case for which one of them is false, or 0, is not supported
    op        the op it implements; may be left out where the command line names one
    choices   a table: text attribute -> the values there is a kernel for; {name} in entry stands for the value, or
              for the C++ type if it is a dtype
    dtypes    dtypes of the first input that it is tried on; ["float32"] if not said
    numerics  the arithmetic it claims, as NUMERICS of a Python subject
    planted   for a bug on purpose: the verdict it must earn
    shows     what such a bug earns on a GPU, if not that: another verdict, or "emulator" for one that a GPU hides
    summary   one sentence; if not said, the first one of the comment around the TOML

An argument "mask?" is an optional input, whose pointer is null in a case that lacks it.

A formula is an integer, or text made of numbers, names, 'text', + - * / // %, comparisons, and, or, not, parentheses,
min, max and ceil_div(a, b). Names are attributes and dims; of a tensor x there are x.shape[0], x.strides[0] (in
elements), x.size (elements) and x.address; each is 0 of an optional input that a case lacks. Tensors have no gaps, but
along axes whose stride some formula uses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.cuda_support.formula import Formula, FractionError, parse_formula
from kernel_assay.kernels.backends.support.edits import Source, read_source
from kernel_assay.kernels.backends.support.head_comment import head_comment
from kernel_assay.kernels.backends.support.includes import standalone
from kernel_assay.kernels.backends.support.signature import Interface

EXTENTS, MOST_AXES = (1, 2, 3, 5, 7, 12), 8
"""Extents with which a launch is tried before there is a case, and axes that a tensor has there."""
CUDA_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
"""What {T} stands for, by dtype."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A kernel for one dtype of the first input, and one value of each attribute that the entry names."""

    entry: str
    dtype: str
    choice: dict[str, str]


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The keys, each of its kind; whether the op has the names that are used, `check` says."""

    path: Path
    source: Source
    entry: str
    args: tuple[Formula, ...]
    grid: tuple[Formula, ...]
    block: tuple[Formula, ...]
    shared: Formula
    dims: dict[str, Formula]
    requires: tuple[Formula, ...]
    op: str
    dtypes: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]
    nullable: frozenset[str]
    numerics: dict[str, Any]
    planted: str
    shows: str
    summary: str

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Every kernel that the entry stands for."""
        found = []
        for dtype, *values in product(self.dtypes, *self.choices.values()):
            choice = dict(zip(self.choices, values, strict=True))
            names = {"T": CUDA_TYPES[dtype], **{name: CUDA_TYPES.get(v, v) for name, v in choice.items()}}
            entry = self.entry
            for name, value in names.items():
                entry = entry.replace(f"{{{name}}}", value)
            found.append(Instance(entry, dtype, choice))
        return tuple(found)

    @property
    def function(self) -> str:
        """The kernel's name without template arguments."""
        return self.entry.partition("<")[0]

    def scope(self, tensors: dict[str, Array], attrs: dict[str, Any]) -> dict[str, Any]:
        """Values that names stand for in one case."""
        found: dict[str, Any] = {**tensors, **attrs}
        for name, formula in self.dims.items():
            found[name] = formula.value(found)
        return found

    @property
    def _formulas(self) -> tuple[Formula, ...]:
        return (*self.args, *self.grid, *self.block, self.shared, *self.requires, *self.dims.values())

    @property
    def used(self) -> set[str]:
        """Every name that it speaks of."""
        return {name for f in self._formulas for name in f.names} | {f.text for f in self.args} | set(self.choices)

    @property
    def strided(self) -> dict[str, frozenset[int]]:
        """Tensor -> its axes whose strides are used, as they are written: the last one may be -1."""
        found = sorted({stride for f in self._formulas for stride in f.strides})
        return {name: frozenset(axis for one, axis in found if one == name) for name, _ in found}

    def check(self, face: Interface) -> None:
        """Raises UsageError for a name that the op does not have, and for one of the op's that is not used."""
        tensors, known = {*face.outputs, *face.inputs}, set(face.attrs)
        for name, formula in self.dims.items():
            if name in tensors | known:
                raise UsageError(f"{self.path}: {formula.key}: {name!r} is a name that the op has already")
            self._check_names(formula, known, face)
            known.add(name)
        numbers = [f for f in self.args if f.text not in tensors]
        launch = [*numbers, *self.grid, *self.block, self.shared, *self.requires]
        for formula in launch:
            self._check_names(formula, known, face)
        for name in (*face.outputs, *face.inputs, *face.attrs):
            if name not in self.used and name not in face.optional and name not in face.extra:
                raise UsageError(f"{self.path}: args: {name!r} is missing; the op has {_names_of(face)}")
        if not self.requires:
            self._check_whole(tensors, face)

    def _check_whole(self, tensors: set[str], face: Interface) -> None:
        """Try the launch with a few extents. Raises UsageError for a fraction, as C's / has none."""
        for extent in EXTENTS:
            some = np.broadcast_to(np.float32(0), (extent,) * MOST_AXES)
            for formula in (*self.grid, *self.block, self.shared):
                try:
                    formula.whole(self.scope(dict.fromkeys(tensors, some), dict.fromkeys(face.attrs, extent)))
                except FractionError as error:
                    raise UsageError(
                        f"{self.path}: {error}, if an extent is {extent}; / does not round here as it does in C: write "
                        "a // b or ceil_div(a, b)"
                    ) from error
                except (ArithmeticError, ValueError, TypeError, LookupError):  # of other numbers it may be right
                    continue

    def _check_names(self, formula: Formula, known: set[str], face: Interface) -> None:
        tensors = {*face.outputs, *face.inputs}
        for name in sorted(formula.names - known | formula.tensors - tensors):
            what = "a tensor, not a number" if name in tensors else "neither a name of the op nor in dims"
            raise UsageError(f"{self.path}: {formula.key}: {name!r} is {what}; the op has {_names_of(face)}")


def _names_of(face: Interface) -> str:
    return ", ".join((*face.outputs, *face.inputs, *face.attrs))


def read_front_matter(path: Path, launch: str = "") -> FrontMatter:
    """The front matter of a file, with keys that replace its own, as TOML.

    Raises UsageError if there is none, or one that makes no sense.
    """
    source = read_source(path)
    comment = head_comment(source.text)
    if comment is None and not launch:
        raise UsageError(f"{path} has no front matter: a comment at its top with TOML between two lines of ---")
    if comment is not None and len(comment.fences) == 1:
        raise UsageError(f"{path}: a line of --- begins its front matter, but none ends it")
    said = _toml(comment.inside, f"{path}: its front matter") if comment else {}
    said |= _toml(launch, "--launch")
    _check_kinds(path, said)
    return _front_matter(path, source, said, comment.outside if comment else "")


def _toml(text: str, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{what} is not TOML: {error}") from error


def integers_of(path: Path, launch: str = "") -> set[int]:
    """The integers that a file's code, its own headers, its grid and its block speak of."""
    front = read_front_matter(path, launch)
    texts = [_ANY_COMMENT.sub(" ", standalone(path)), *(f.text for f in (*front.grid, *front.block))]
    return {int(digits, 0) for text in texts for digits in _INTEGER.findall(text)}


def line_of(path: Path, function: str) -> int:
    """The line where a kernel is defined; 1 if that cannot be told."""
    lines = read_source(path).text.splitlines()
    code = [i for i, line in enumerate(lines, 1) if re.search(rf"\b{re.escape(function)}\s*\(", line)]
    return code[0] if code else 1


_ANY_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_INTEGER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|[1-9][0-9]*)[uUlL]*(?![\w.])")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_formula(value: object) -> bool:
    return isinstance(value, str) or type(value) is int


def _are_formulas(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_formula, value))


def _is_extent(value: object) -> bool:
    return _is_formula(value) or (isinstance(value, list) and _are_formulas(value) and 1 <= len(value) <= 3)


def _are_dims(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_formula, value.values()))


def _are_dtypes(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(t, str) and t in CUDA_TYPES for t in value)


def _are_choices(value: object) -> bool:
    lists = value.values() if isinstance(value, dict) else [None]
    return all(isinstance(v, list) and v and all(isinstance(text, str) for text in v) for v in lists)


def _is_entry(value: object) -> bool:
    return isinstance(value, str) and bool(_ENTRY.fullmatch(_PLACEHOLDER.sub("T", value)))


_PLACEHOLDER = re.compile(r"\{(\w+)\}")


_ENTRY = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*(<[\w\s:,<>*]+>)?")
_KEYS: dict[str, tuple[Callable[[object], bool], str]] = {
    "entry": (_is_entry, 'the name of a kernel, such as "silu" or "silu<{T}, 4>"'),
    "args": (_are_formulas, "a list of names and formulas"),
    "grid": (_is_extent, "a formula or a list of one to three"),
    "block": (_is_extent, "a formula or a list of one to three"),
    "shared": (_is_formula, "a formula"),
    "dims": (_are_dims, "a table of formulas"),
    "requires": (_are_formulas, "a list of formulas"),
    "op": (_is_text, "text"),
    "dtypes": (_are_dtypes, f"a list of dtypes that a .cu file can have: {', '.join(CUDA_TYPES)}"),
    "choices": (_are_choices, "a table of lists of texts"),
    "numerics": (_is_table, "a table"),
    "planted": (_is_text, "text"),
    "shows": (_is_text, "text"),
    "summary": (_is_text, "text"),
}
"""Key -> whether a value is of the key's kind, and the kind in words."""
_NEEDED = ("entry", "args", "grid", "block")


def _check_kinds(path: Path, said: dict[str, Any]) -> None:
    for key, value in said.items():
        if key not in _KEYS:
            raise UsageError(f"{path}: {key!r} is not a key of front matter; there are {', '.join(_KEYS)}")
        right, kind = _KEYS[key]
        if not right(value):
            raise UsageError(f"{path}: {key} = {value!r} must be {kind}")
    for key in _NEEDED:
        if key not in said:
            raise UsageError(f"{path}: its front matter lacks {key}, which must be {_KEYS[key][1]}")
    if len(said.get("dtypes", ())) > 1 and "{T}" not in said["entry"]:
        wanted = f"{said['entry'].partition('<')[0]}<{{T}}>"
        raise UsageError(f'{path}: entry must name a kernel for each of its dtypes, with {{T}}, such as "{wanted}"')


def _front_matter(path: Path, source: Source, said: dict[str, Any], outside: str) -> FrontMatter:
    args = [str(a) for a in said["args"]]
    return FrontMatter(
        path=path,
        source=source,
        entry=said["entry"],
        args=_formulas(path, "args", [a.removesuffix("?") for a in args]),
        grid=_formulas(path, "grid", said["grid"]),
        block=_formulas(path, "block", said["block"]),
        shared=_formula(path, "shared", said.get("shared", 0)),
        dims={name: _formula(path, f"dims.{name}", v) for name, v in said.get("dims", {}).items()},
        requires=_formulas(path, "requires", said.get("requires", [])),
        op=said.get("op", ""),
        dtypes=tuple(said.get("dtypes", ["float32"])),
        choices={name: tuple(values) for name, values in said.get("choices", {}).items()},
        nullable=frozenset(a.removesuffix("?") for a in args if a.endswith("?")),
        numerics=said.get("numerics", {}),
        planted=said.get("planted", ""),
        shows=said.get("shows", ""),
        summary=said.get("summary", _first_sentence(outside)),
    )


def _formulas(path: Path, key: str, value: Any) -> tuple[Formula, ...]:
    return tuple(_formula(path, key, v) for v in (value if isinstance(value, list) else [value]))


def _formula(path: Path, key: str, value: str | int) -> Formula:
    try:
        return parse_formula(key, str(value))
    except ValueError as error:
        raise UsageError(f"{path}: {key}: {error}") from error


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]
