"""Subjects in CUDA C++ (.cu files), on the CPU: compiled as they stand by g++, their threads run one after the other.

The headers in kernels/serial/ are what CUDA C++ has and C++ has not; engine.h among them runs the threads, and refuses
what makes threads meet. How a kernel is launched stands in its front matter (kernels/front_matter.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from corpus.errors import InternalError, UsageError
from corpus.formats import FORMATS, Array, format_of
from kernels.backend import Loader, Returned
from kernels.calling import Interface, Unfitted
from kernels.formula import Formula, Scope
from kernels.front_matter import CUDA_TYPES, FrontMatter, read_front_matter


class CudaLoader(Loader):
    """Kernels that write into numpy views, through pointers."""

    name = "cuda"

    def unavailable(self) -> str:
        """Needs a compiler, and no GPU."""
        return "" if shutil.which("g++") else "g++ is not installed"

    def versions(self) -> dict[str, str]:
        """The compiler's."""
        return {} if self.unavailable() else {"g++": _compiler()[0]}

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """Compile the file, or take what was compiled before. Raises UsageError if it does not compile."""
        if why := self.unavailable():
            raise UsageError(f"{path} cannot be compiled, because {why}")
        front = read_front_matter(path)
        if function != front.function:
            raise UsageError(f"{path} has no front matter for {function!r}; its entry is {front.function!r}")
        library = _open(front)
        return CudaSubject(front, {dtype: _Kernel(library, n) for n, dtype in enumerate(front.dtypes)})

    def wrap(self, view: Array) -> Array:
        """The view itself; its address is taken at the launch."""
        return view

    def unwrap(self, result: Any) -> Returned:  # noqa: ARG002  the interface asks for it
        """Never reached: a kernel returns nothing."""
        raise InternalError("kernels in CUDA C++ return nothing")


class _Argument(ctypes.Structure):
    """One argument of a kernel, in each of the forms a parameter may want (engine.h has the same)."""

    _fields_ = (("address", ctypes.c_void_p), ("real", ctypes.c_double), ("whole", ctypes.c_longlong))


class _Kernel:
    """One kernel of a library."""

    def __init__(self, library: ctypes.CDLL, number: int) -> None:
        takes = library[f"serial_takes_{number}"]
        takes.restype = ctypes.c_char_p
        text = takes().decode()
        self.parameters = [text[i : i + 3] for i in range(0, len(text), 3)]
        """Three letters each, see `describe` in engine.h: pf4 is a pointer to float, vi8 an integer of 8 bytes."""
        self._launch = library[f"serial_launch_{number}"]
        self._launch.restype = ctypes.c_char_p

    def launch(self, size: Sequence[int], arguments: list[_Argument]) -> None:
        """Run it. size: blocks x, y, z, threads x, y, z, and bytes of dynamic shared memory.

        Raises RuntimeError for what a GPU would end the kernel for.
        """
        fault = self._launch((ctypes.c_uint32 * len(size))(*size), (_Argument * len(arguments))(*arguments))
        if fault:
            raise RuntimeError(fault.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class CudaSubject(Unfitted):
    """A compiled file: its front matter, and a kernel for each dtype."""

    front: FrontMatter
    kernels: dict[str, _Kernel]

    @property
    def names(self) -> set[str]:
        """Those of its front matter."""
        return self.front.used

    def __call__(self, face: Interface) -> Callable[..., None]:
        """A function run(*outputs, *inputs, **attrs) that launches the kernel."""
        self.front.check(face)
        names, first = (*face.outputs, *face.always), face.inputs[0]
        for dtype, kernel in self.kernels.items():
            self._check_parameters(kernel, (*names, *face.extra), {first: dtype})

        def run(*tensors: Array, **named: Any) -> None:
            extra = {name: value for name, value in named.items() if name in face.extra}
            attrs = {name: value for name, value in named.items() if name not in face.extra}
            self._launch({**dict(zip(names, tensors, strict=True)), **extra}, attrs, first)

        return run

    def _check_parameters(self, kernel: _Kernel, tensors: Sequence[str], dtypes: dict[str, str]) -> None:
        """Raises UsageError if the kernel's parameters are others than args says. dtypes: of tensors, where known."""
        where, args, parameters = self.front.path, self.front.args, kernel.parameters
        if len(args) != len(parameters):
            raise UsageError(f"{where}: args has {len(args)} arguments, but {self.front.entry} takes {len(parameters)}")
        for n, (formula, parameter) in enumerate(zip(args, parameters, strict=True), 1):
            if (formula.text in tensors) != (parameter[0] == "p"):
                what, other = ("pointer", "number") if formula.text in tensors else ("number", "pointer")
                raise UsageError(f"{where}: args: {formula.text!r} is a {what}, but parameter {n} is a {other}")
            dtype = dtypes.get(formula.text)
            if dtype and (only := _other_dtype(parameter, dtype)):
                raise UsageError(f"{where}: dtypes has {dtype}, but the kernel takes {formula.text!r} as {only}")

    def _launch(self, tensors: dict[str, Array], attrs: dict[str, Any], first: str) -> None:
        """Raises NotImplementedError for what the kernel does not claim to do, ValueError for an impossible launch."""
        if not all(t.flags.c_contiguous for t in tensors.values()):
            raise NotImplementedError("takes contiguous tensors only")
        dtype = format_of(tensors[first].dtype).name
        if dtype not in self.kernels:
            raise NotImplementedError(f"takes {', '.join(self.kernels)} only")
        kernel, scope = self.kernels[dtype], self.front.scope(tensors, attrs)
        for formula in self.front.requires:
            if not formula.value(scope):
                raise NotImplementedError(f"requires {formula.text}")
        pairs = zip(self.front.args, kernel.parameters, strict=True)
        arguments = [_argument(formula, parameter, scope) for formula, parameter in pairs]
        blocks, threads = (_extent(formulas, scope) for formulas in (self.front.grid, self.front.block))
        shared = self.front.shared.whole(scope)
        _check_limits(blocks, threads, shared)
        if all(blocks):
            kernel.launch((*blocks, *threads, shared), arguments)


def _other_dtype(parameter: str, dtype: str) -> str:
    """The only dtype that a pointer takes, if it is not this one. Integers may be the bits of anything."""
    if parameter[1] == "i":
        fits = FORMATS[dtype].is_float or FORMATS[dtype].bits == 8 * int(parameter[2])
        return "" if fits else f"integers of {parameter[2]} bytes"
    only = _POINTED.get(parameter[1:], dtype)
    return "" if only == dtype else only


_POINTED = {"f8": "float64", "f4": "float32", "f2": "float16", "b2": "bfloat16"}


def _argument(formula: Formula, parameter: str, scope: Scope) -> _Argument:
    if parameter[0] == "v":
        if parameter[1] == "i":
            return _Argument(whole=formula.whole(scope))
        return _Argument(real=formula.number(scope))
    tensor: Array = formula.value(scope)
    if only := _other_dtype(parameter, format_of(tensor.dtype).name):
        raise NotImplementedError(f"takes {formula.text!r} as {only} only")
    return _Argument(address=tensor.ctypes.data)


def _extent(formulas: tuple[Formula, ...], scope: Scope) -> list[int]:
    """Along x, y and z."""
    return [f.whole(scope) for f in formulas] + [1] * (3 - len(formulas))


_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_SHARED = 227 << 10


def _check_limits(blocks: list[int], threads: list[int], shared: int) -> None:
    """What a GPU of today refuses to launch (CUDA C++ Programming Guide, "Compute Capabilities").

    No blocks at all is what an empty case asks for, and no error.
    """
    if not all(0 <= n <= most for n, most in zip(blocks, _MOST_BLOCKS, strict=True)):
        raise ValueError(f"a grid of {_by(blocks)} blocks cannot be launched, {_by(_MOST_BLOCKS)} at most")
    x, y, z = threads
    if not all(1 <= n <= most for n, most in zip(threads, _MOST_THREADS, strict=True)) or x * y * z > 1024:
        raise ValueError(f"a block of {_by(threads)} threads cannot be launched, 1024 in all at most")
    if not 0 <= shared <= _MOST_SHARED:
        raise ValueError(f"{shared} bytes of shared memory cannot be had, {_MOST_SHARED} at most")


def _by(extent: Sequence[int]) -> str:
    return " x ".join(map(str, extent))


# ---- compiling -------------------------------------------------------------------------------------------------------

_HEADERS = Path(__file__).resolve().parents[1] / "serial"
_FLAGS = (
    *("-std=c++17", "-O2", "-shared", "-fPIC", "-w"),
    # nvcc contracts a * b + c into one rounding, and so may not every CPU that shares the cache; which sums a compiler
    # contracts is its own choice besides. Without, a kernel gives the same bits everywhere; budgets allow for either.
    "-ffp-contract=off",
    # Kernels read float as float4, half2 or int as a matter of course.
    "-fno-strict-aliasing",
    # Libraries of many kernels live in one process, and share no names.
    *("-fvisibility=hidden", "-fno-gnu-unique"),
    # What a GPU refuses to read, engine.h reports; libubsan is not needed, and must not be linked.
    *("-fsanitize=alignment", "-fno-sanitize-recover=alignment", "-nodefaultlibs"),
    # The first error, at the place in the user's file where a macro was used.
    *("-fmax-errors=1", "-ftrack-macro-expansion=0", "-fdiagnostics-color=never", "-fno-diagnostics-show-caret"),
)
_LIBRARIES = ("-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc", "-Wl,-z,defs")
_PROVIDED = (
    *("cuda.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h", "cuda_runtime_api.h"),
    *("device_launch_parameters.h", "math_constants.h", "vector_functions.h", "vector_types.h"),
)
"""Headers that a kernel may include; what is in them is there already."""
_MEETING = ("cooperative_groups", "cub/", "cuda_pipeline", "cuda/barrier", "cuda/pipeline", "mma.h")
"""Headers of what makes threads meet."""


@cache
def _compiler() -> tuple[str, str]:
    """Version and target of g++."""
    found = subprocess.run([_gxx(), "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=False)
    version, _, machine = found.stdout.strip().partition("\n")
    return version, machine


def _gxx() -> str:
    return shutil.which("g++") or "g++"


def _open(front: FrontMatter) -> ctypes.CDLL:
    """The library of a file, from the cache if it was compiled before."""
    instances = [front.entry.replace("{T}", CUDA_TYPES[dtype]) for dtype in front.dtypes]
    launchers = "".join(f"SERIAL_KERNEL({n}, {instance})\n" for n, instance in enumerate(instances))
    try:
        library = _cache() / f"{_digest(front.path, launchers)}.so"
        if not library.exists():
            _compile(front, launchers, library)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise UsageError(f"{front.path} cannot be compiled and loaded: {error}") from error


def _cache() -> Path:
    """Where compiled kernels are kept: the folder that the XDG base directory specification names."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return Path(home if Path(home).is_absolute() else "~/.cache").expanduser() / "kernel-assay" / "cuda"


def _digest(path: Path, launchers: str) -> str:
    """Of everything that the library depends on."""
    parts = [*_compiler(), *_FLAGS, *_LIBRARIES, launchers]
    texts = [h.read_bytes() for h in sorted(_HEADERS.glob("*.h"))]
    texts += [file.read_bytes() for file in _included(path)]
    found = hashlib.sha256("\0".join(parts).encode())
    for text in texts:
        found.update(hashlib.sha256(text).digest())
    return found.hexdigest()[:32]


def _included(path: Path) -> list[Path]:
    """The file, and what it includes from beside it."""
    found: list[Path] = []
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.append(file)
        waiting += [(file.parent / os.fsdecode(name)).resolve() for name in _INCLUDE.findall(file.read_bytes())]
    return found


_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def _compile(front: FrontMatter, launchers: str, library: Path) -> None:
    """Others may compile the same at the same time: the library appears whole, or not at all."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=library.parent, prefix="compile-") as folder:
        for name in _PROVIDED:
            (Path(folder) / name).touch()
        made = Path(folder) / library.name
        files = [_HEADERS / "device.h", _HEADERS / "engine.h", front.path.absolute()]
        included = [word for file in files for word in ("-include", str(file))]
        command = [_gxx(), *_FLAGS, "-I", folder, *included, "-x", "c++", "-", "-o", str(made), *_LIBRARIES]
        env = {**os.environ, "LC_ALL": "C", "TMPDIR": folder}
        done = subprocess.run(command, input=launchers, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(_complaint(front, done.stderr))
        made.replace(library)


def _complaint(front: FrontMatter, said: str) -> str:
    """What the compiler says, in one sentence. said: all that it wrote."""
    match = _ERROR.search(said)
    if match is None:
        return f"{front.path} does not compile: {_without_place(said)}"
    file, line, text = Path(match["file"]), match["line"], match["text"]
    place = front.path if file == front.path.absolute() else file
    if word := _REFUSED.search(text):
        return f"{place} uses {word[1]} (line {line}), {_UNABLE}{'' if word[1] == 'asm' else _ALONE}"
    if (header := _MISSING.search(text)) and header[1].startswith(_MEETING):
        return f"{place} uses {header[1]} (line {line}), {_UNABLE}{_ALONE}"
    if match["file"] == "<stdin>" or file.parent == _HEADERS:
        return f"{front.path}: entry = {front.entry!r} cannot be launched: {text}"
    if "<<<" in _line(file, int(line)):
        return f"{place} launches a kernel with <<<>>> (line {line}), {_HOST}"
    where = f"line {line}" if place == front.path else f"{file}, line {line}"
    return f"{front.path} does not compile: {text} ({where})"


_ERROR = re.compile(r"^(?P<file>[^\n]+?):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_REFUSED = re.compile(r"NOT_SERIAL_(\w+)")
_MISSING = re.compile(r"^(\S+): No such file")
_UNABLE = "which this version cannot run on the CPU"
_ALONE = ": only kernels whose threads do not meet"
_HOST = "but only device code is wanted: put host code between #ifndef KERNEL_ASSAY and #endif"


def _line(file: Path, number: int) -> str:
    lines = file.read_text("utf-8", "replace").split("\n") if file.is_file() else []
    return lines[number - 1] if number <= len(lines) else ""


def _without_place(said: str) -> str:
    """What the assembler or the linker complains about, who know no line of the source."""
    for pattern in (r"undefined reference to .*", r"Error: (.*)", r"error: (.*)"):
        if match := re.search(pattern, said):
            return match[0]
    return said.strip().rpartition("\n")[2] or "g++ failed and said nothing"


LOADER = CudaLoader()
