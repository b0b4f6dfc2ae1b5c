"""Find implementations by where their file lies: kernels/<op>/<name>.py; or anywhere, for a user's own.

Nothing is imported to learn about a subject: what a Python file says of itself stands in module constants that are
read from its syntax tree, what a CUDA file says in its front matter. Only the worker ever executes it.
"""

from __future__ import annotations

import ast
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import ACCUMULATORS, INPUT, Numerics, Subject
from kernel_assay.corpus.process.interpreter import interpreter, name_of, path_of
from kernel_assay.corpus.program import program
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.front_matter import integers_of, line_of, read_front_matter
from kernel_assay.kernels.backends.cuda_support.strides import layouts_of
from kernel_assay.kernels.backends.support.edits import CUDA, present, source_bytes
from kernel_assay.kernels.backends.support.importing import file_of_module, stem_of
from kernel_assay.kernels.backends.support.includes import included
from kernel_assay.kernels.backends.support.python_syntax import PARSING

ROOT = Path(__file__).resolve().parent
_CONSTANTS = ("OP", "BACKEND", "DTYPES", "NUMERICS", "PLANTED", "SHOWS")
CANDIDATE = "ModelNew"
"""The class of modules that a file is taken to be about, if it has one (as KernelBench's have)."""
EMULATOR = "emulator"
"""What SHOWS says of a bug that the hardware hides: it shows in the emulated GPU (backends/simt/) alone."""


def subjects_of(op: str) -> list[Subject]:
    """The built-in subjects of an op, seeded bugs last."""
    files = sorted(p for p in (ROOT / op).glob("*") if p.suffix in {".py", *CUDA} and p.stem != "__init__")
    found = [read_subject(p, op=op) for p in files]
    return sorted(found, key=lambda s: (bool(s.planted), s.name))


def user_subject(text: str, ops: tuple[str, ...], launch: str = "", python: str = "") -> Subject:
    """The subject that `--subject FILE[:NAME][@PYTHON]` or `MODULE:NAME` names, of its OP or the only op asked for.

    launch: of a CUDA file, keys of front matter that replace its own; python: the interpreter, where it names none, or
    the folder of its environment. Raises UsageError if the file cannot be read, or
    if its op is not clear, or none of those asked for.
    """
    text, python = _in_interpreter(text, python)
    path_text, _, function = text.partition(":")
    if not path_text:
        raise UsageError(f"the subject {text!r} names no file; name one, as kernel.py or kernel.py:run")
    module = file_of_module(path_text) if function and not Path(path_text).is_file() else None
    path = present(Path(os.path.realpath(module or path_text)))  # of links in a circle it makes something
    if path.suffix not in {".py", *CUDA}:
        others = "nor a .toml file of edits, nor a module found here"
        raise UsageError(f"{path_text} is neither a .py nor a .cu file, {others}")
    if not path.is_file():
        raise UsageError(f"{path_text} {'is no file' if path.exists() else 'does not exist'}")
    if python and path.suffix in CUDA:
        raise UsageError(f"{path_text} is compiled, and runs in no interpreter: leave out {python}")
    launch = launch if path.suffix in CUDA else ""
    declared = _constants(path, launch).get("OP")
    if not declared and len(ops) != 1:
        key = _key(path, "OP")
        raise UsageError(f'{path_text} does not say its op: name one op, or write {key} = "softmax" into the file')
    if declared and ops and declared not in ops:
        raise UsageError(f"{path_text} is a kernel of {declared}, not of {' or '.join(ops)}")
    subject = read_subject(path, op=declared or ops[0], function=function, launch=launch)
    name = f"{subject.name}:{function}" if function else subject.name
    return subject.but(name=f"{name}@{name_of(python)}", python=python) if python else subject.but(name=name)


def _in_interpreter(text: str, usual: str) -> tuple[str, str]:
    """The words for a kernel, and the interpreter behind them; empty: none. Raises UsageError if that is gone."""
    kernel, at, place = text.rpartition("@")
    file = text.partition(":")[0]
    if not at or ("@" in file and Path(file).exists()):
        return text, interpreter(path_of(usual)).path if usual else ""
    if not place:
        raise UsageError(f"{text} names no interpreter behind the @; name one, or leave the @ out")
    return kernel, interpreter(path_of(place)).path


def read_subject(path: Path, *, op: str, function: str = "", launch: str = "") -> Subject:
    """Read what a file says of itself. Raises UsageError if it says something that makes no sense."""
    source = source_bytes(path)
    said = _constants(path, launch)
    planted, shows = said.get("PLANTED", ""), said.get("SHOWS", "")
    for constant, value in (("PLANTED", planted), ("SHOWS", "" if shows == EMULATOR else shows)):
        if value and value not in {k for k in Kind if k.facts.fails}:
            what = f"{_key(path, constant)} = {value!r} is no verdict"
            raise UsageError(f"{path}: {what}; see `{program()} list verdicts`")
    if shows and not planted:
        words = f"{_key(path, 'SHOWS')} says how a seeded bug is found on a GPU"
        raise UsageError(f"{path}: {words}, but there is no {_key(path, 'PLANTED')}")
    backend = said.get("BACKEND") or _guess_backend(_tree(path, source))
    with about(str(path)):
        loader_of(backend)
    with about(f"{path}: {_key(path, 'NUMERICS')} is not understood"):
        numerics = numerics_of(said.get("NUMERICS", {}))
    called = _function(path, source, said, function, op)
    return Subject(
        op=op,
        name=stem_of(path),
        backend=backend,
        path=_stored_path(path),
        function=called,
        line=_line(path, source, called),
        source_digest=_digest_of(path, source, launch),
        numerics=numerics,
        dtypes=tuple(said.get("DTYPES", ())),
        planted=planted,
        summary=said.get("__doc__", ""),
        launch=launch,
    )


def source_digest(path: Path, launch: str = "") -> str:
    """A digest of a file, of what it includes from beside it, and of front matter that stands elsewhere."""
    return _digest_of(path, source_bytes(path), launch)


def _digest_of(path: Path, source: bytes, launch: str) -> str:
    return hashlib.sha256(b"\0".join([source, *_beside(path), *_words(launch)])).hexdigest()[:16]


def _beside(path: Path) -> list[bytes]:
    """Contents of what a CUDA file includes from beside it."""
    return [file.read_bytes() for file in included(path)] if path.suffix in CUDA else []


def _words(launch: str) -> list[bytes]:
    return [launch.encode()] if launch else []


def numerics_of(said: dict[str, Any]) -> Numerics:
    """Read a claim. Raises UsageError that names the first key that is wrong, and what it may be."""
    try:
        numerics = Numerics.model_validate(said)
    except ValidationError as error:
        raise UsageError(_complaint(error)) from None
    if numerics.accumulate not in ACCUMULATORS:
        raise UsageError(f"accumulate = {numerics.accumulate!r} must be one of {', '.join(ACCUMULATORS)}")
    if numerics.fast_math and not numerics.ftz:
        raise UsageError("fast_math = True flushes subnormal numbers, so ftz = False cannot stand beside it")
    for name, dtype in numerics.intermediates.items():
        if dtype != INPUT and not format_of(dtype).is_float:
            raise UsageError(f"intermediates.{name} = {dtype!r} must be a float type, or {INPUT!r}")
    return numerics


def _complaint(error: ValidationError) -> str:
    """The first complaint of pydantic, without its English for programmers and without its links."""
    first = error.errors()[0]
    key, *_ = names = first["loc"]
    if key not in Numerics.model_fields:
        return f"{key!r} is none of its keys, which are {', '.join(Numerics.model_fields)}"
    allowed = first["msg"].removeprefix("Input should be ").removesuffix(", unable to interpret input")
    return f"{'.'.join(map(str, names))} = {first['input']!r} must be {allowed}"


def shown_on_gpu(subject: Subject) -> str:
    """The verdict that a seeded bug earns on a GPU: its own, or the one that its file says; empty: there is none."""
    if not subject.planted:
        return ""
    path = resolve(subject)
    says = _constants(path, subject.launch).get("SHOWS", "")
    if says == EMULATOR or (path.suffix in CUDA and Kind(subject.planted).facts.hidden_on_gpu):
        return ""
    return str(says or subject.planted)


def hidden_on_gpu(subject: Subject) -> bool:
    """Whether a seeded bug earns its verdict in the emulator only: by its kind, or as its file says."""
    return bool(subject.planted) and not shown_on_gpu(subject)


def size_hints(subject: Subject) -> tuple[int, ...]:
    """Sizes that a subject's own source speaks of: its integer constants from 4 to 4096."""
    path = resolve(subject)
    if not path.is_file():
        return ()
    numbers = integers_of(path, subject.launch) if path.suffix in CUDA else _integers(_tree(path, path.read_bytes()))
    return tuple(sorted(n for n in numbers if 4 <= n <= 4096))


def is_function(subject: Subject) -> bool:
    """Whether what is called is a function that its file defines; else it is a class, or comes from elsewhere."""
    path = resolve(subject)
    if path.suffix in CUDA:
        return True
    tree = _tree(path, path.read_bytes())
    return any(isinstance(n, ast.FunctionDef) and n.name == subject.function for n in ast.walk(tree))


def layouts_taken(subject: Subject, ranks: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """Layouts of each input for which it is launched; what is no CUDA file decides that when it runs.

    ranks: the number of axes of each input.
    """
    path = resolve(subject)
    if path.suffix not in CUDA or not path.is_file():
        return dict.fromkeys(ranks, frozenset(LAYOUTS))
    strided = read_front_matter(path, subject.launch).strided
    return {name: layouts_of(rank, strided.get(name, ())) for name, rank in ranks.items()}


def threads_of(subject: Subject, shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> int:
    """Threads that a CUDA file launches for tensors of these shapes; 0 if it is none, or does not say."""
    path = resolve(subject)
    if path.suffix not in CUDA or not path.is_file():
        return 0
    front = read_front_matter(path, subject.launch)
    tensors = {name: np.broadcast_to(np.zeros((), np.uint8), shape) for name, shape in shapes.items()}
    try:
        scope = front.scope(tensors, dict(attrs))
        return math.prod(formula.whole(scope) for formula in (*front.grid, *front.block))
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):  # who launches it says what is wrong
        return 0


def _integers(tree: ast.Module) -> set[int]:
    return {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int}


def resolve(subject: Subject) -> Path:
    """The file of a subject; built-in ones are stored relative to the project."""
    return present(ROOT.parent / subject.path)


def _key(path: Path, constant: str) -> str:
    """A file's spelling of what it says of itself: as a constant of Python, or as a key of front matter."""
    return constant.lower() if path.suffix in CUDA else constant


@lru_cache(maxsize=1)
def _tree(path: Path, source: bytes) -> ast.Module:
    """Parse a file, once for all that is read from it in a row; an edited one has another source."""
    try:
        with PARSING:
            return ast.parse(source, filename=str(path))
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""  # of a binary file there is none
        raise UsageError(f"{path} does not import: SyntaxError: {error.msg}{line}") from error


def _constants(path: Path, launch: str = "") -> dict[str, Any]:
    """A file's words about itself, by the name of the Python constant; ENTRY: the kernel of a CUDA file."""
    return _said_in_cuda(path, launch) if path.suffix in CUDA else _said_in_python(path)


def _said_in_cuda(path: Path, launch: str) -> dict[str, Any]:
    front = read_front_matter(path, launch)
    return {
        "__doc__": front.summary,
        "OP": front.op,
        "BACKEND": "cuda",
        "DTYPES": front.dtypes,
        "NUMERICS": front.numerics,
        "PLANTED": front.planted,
        "SHOWS": front.shows,
        "ENTRY": front.function,
    }


def _said_in_python(path: Path) -> dict[str, Any]:
    tree = _tree(path, path.read_bytes())
    said: dict[str, Any] = {"__doc__": (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")}
    for node in tree.body:
        for name, value in _assigned(node):
            if name in _CONSTANTS:
                said[name] = _literal(path, name, value)
    return said


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Names an assignment gives a value to, plain or annotated."""
    if isinstance(node, ast.Assign):
        return [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    return []


def _literal(path: Path, name: str, value: ast.expr) -> Any:
    """The value of a constant. Raises UsageError if it is an expression, or not of the kind the constant has."""
    try:
        found = ast.literal_eval(value)
    except ValueError as error:
        raise UsageError(f"{path}: {name} must be a literal, not an expression") from error
    if name == "DTYPES":
        right = isinstance(found, tuple | list) and all(isinstance(t, str) and t in FORMATS for t in found)
        kind = f"a tuple of dtypes ({', '.join(FORMATS)})"
    elif name == "NUMERICS":
        right, kind = isinstance(found, dict), "a dict"
    else:
        right, kind = isinstance(found, str), "a string"
    if not right:
        raise UsageError(f"{path}: {name} = {found!r} must be {kind}")
    if name == "DTYPES" and not found:
        raise UsageError(f"{path}: DTYPES = {found!r} names no dtype; leave it out if the kernel takes them all")
    return found


def says_no_backend(subject: Subject) -> bool:
    """Whether a file in Python neither names its backend nor imports a library that tells it."""
    path = resolve(subject)
    if path.suffix in CUDA or "BACKEND" in _said_in_python(path):
        return False
    return not _imported(_tree(path, path.read_bytes())) & {"triton", "cupy", "torch", "numpy"}


def _guess_backend(tree: ast.Module) -> str:
    imported = _imported(tree)
    return next((b for b in ("triton", "cupy", "torch") if b in imported), "numpy")


def imports_of(subject: Subject) -> set[str]:
    """Modules that the file of a subject imports, those on top; none of a CUDA file."""
    path = resolve(subject)
    return set() if path.suffix in CUDA else _imported(_tree(path, path.read_bytes()))


def _imported(tree: ast.Module) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    return imported


def _stored_path(path: Path) -> str:
    """Relative for the built-in files, so that records say the same on every machine."""
    return str(path.relative_to(ROOT.parent)) if path.is_relative_to(ROOT) else str(path)


def _function(path: Path, source: bytes, said: dict[str, Any], wanted: str, op: str) -> str:
    """The one that is wanted, or the kernel of a CUDA file, or the only public function, or one with a telling name."""
    if "ENTRY" not in said:
        tree = _tree(path, source)
        compiled = _compiled(tree)
        found = wanted or _only_function(tree, compiled, ("run", op, stem_of(path)))
        if found in compiled:
            raise UsageError(f"{path}: Triton compiles {found!r}, and nobody launches it; name a function that does")
        return found
    if wanted not in {"", said["ENTRY"]}:
        raise UsageError(f"{path} has no front matter for {wanted!r}; its entry is {said['ENTRY']!r}")
    return str(said["ENTRY"])


def _line(path: Path, source: bytes, function: str) -> int:
    """The line where the function is defined; 1 if it comes from elsewhere."""
    if path.suffix in CUDA:
        return line_of(path, function) if path.suffix == ".cu" else 1
    defined = [n for n in ast.walk(_tree(path, source)) if isinstance(n, ast.FunctionDef)]
    return next((n.lineno for n in defined if n.name == function), 1)


def _only_function(tree: ast.Module, compiled: set[str], telling: Sequence[str]) -> str:
    """The first of the telling names that is a function, or the only public one, or the only one not for a GPU.

    Where there is no function, it may be a class.
    """
    if any(isinstance(n, ast.ClassDef) and n.name == CANDIDATE for n in tree.body):
        return CANDIDATE
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
    own = [n for n in names if n not in compiled] or names
    own = own or [n.name for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
    if len(own) == 1:
        return own[0]
    given = {name for node in tree.body for name, _ in _assigned(node)}
    given |= {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    return next((name for name in telling if name in {*own, *given}), telling[0])


def _compiled(tree: ast.Module) -> set[str]:
    """Functions that Triton compiles: they have to be launched by others."""
    defined = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    found = {n.name for n in defined if any(ast.unparse(d) in {"triton.jit", "jit"} for d in n.decorator_list)}
    return found if found and _guess_backend(tree) == "triton" else set()
