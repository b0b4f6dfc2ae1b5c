"""Subjects in CUDA C++ (.cu files), on the CPU: compiled as they stand by g++, their threads emulated (simt/).

How a kernel is launched stands in its front matter (kernels/backends/cuda_support/front_matter.py). Each case runs
twice, in two orders of threads, and says how (kernels/backends/simt/schedule.py).
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import FORMATS, Array, format_of
from kernel_assay.kernels.backends.cuda_support.driver import MOST_SHARED, address_of, bounds_of
from kernel_assay.kernels.backends.cuda_support.formula import Formula, Scope
from kernel_assay.kernels.backends.cuda_support.front_matter import FrontMatter, Instance, read_front_matter
from kernel_assay.kernels.backends.cuda_support.strides import refused
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Argument, Program, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.faults import Scene
from kernel_assay.kernels.backends.simt.schedule import Schedule
from kernel_assay.kernels.backends.simt.toolchain import (
    HOME,
    BuildError,
    Mode,
    compiler,
    missing,
    no_contraction,
    runtime,
)
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.backends.support.signature import Interface, Unfitted


class CudaLoader(Loader):
    """Kernels that write into numpy views, through pointers."""

    name = "cuda"
    keeps_views = True

    def __init__(self) -> None:
        self._schedule = Schedule()

    def unavailable(self) -> str:
        """Needs a compiler and CUDA's headers, and no GPU."""
        return missing()

    def versions(self) -> dict[str, str]:
        """The compiler's."""
        return {} if self.unavailable() else {"g++": compiler()[0]}

    def preload(self) -> None:
        """Find out what every compilation depends on: workers begin with it."""
        super().preload()
        toolchain.digest_of([], [])

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Choose the order of threads, whether the run is checked, and how the kernel is compiled."""
        self._schedule.set(seed, run, contracted=contracted)

    def warnings(self) -> list[str]:
        """Writes that nothing ordered, and that changed nothing."""
        return self._schedule.warnings

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """Compile the file, or take what was compiled before. Raises UsageError if it does not compile."""
        return self.load_with(path, function, "")

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The same with other front matter."""
        if why := self.unavailable():
            raise UsageError(f"{path} cannot be compiled, because {why}")
        front = read_front_matter(path, launch)
        if function != front.function:
            raise UsageError(f"{path} has no front matter for {function!r}; its entry is {front.function!r}")
        instances = front.instances
        subject = self.kind(front, Program(path, [i.entry for i in instances]), instances, self._schedule)
        subject.build(*self.modes)  # now: the seconds that it takes are no case's
        return subject

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes in which what is loaded may run."""
        return tuple(mode for mode in Mode if mode is not Mode.FUSED or not no_contraction())

    @property
    def kind(self) -> type[CudaSubject]:
        """The class of what is loaded."""
        return CudaSubject

    def wrap(self, view: Array) -> Array:
        """The view itself; its address is taken at the launch."""
        return view

    def unwrap(self, result: Any) -> Returned:  # noqa: ARG002  the interface asks for it
        """Never reached: a kernel returns nothing."""
        raise InternalError("kernels in CUDA C++ return nothing")


@dataclass(slots=True)
class Plan:
    """A launch, as front matter wants it for some tensors and attributes."""

    number: int
    """Of the instance."""
    shape: Shape
    arguments: list[Argument]
    tensors: list[Tensor]
    prepared: Any = None
    """What is kept from one launch to the next, by whoever launches it."""


@dataclass(frozen=True, slots=True)
class CudaSubject(Unfitted):
    """A file: its front matter, its code, and a kernel for each instance."""

    front: FrontMatter
    program: Program
    instances: tuple[Instance, ...]
    schedule: Schedule

    @property
    def names(self) -> set[str]:
        """Names of the front matter's arguments."""
        return self.front.used

    @property
    def nullable(self) -> frozenset[str]:
        """Inputs whose pointer may be null."""
        return self.front.nullable

    def build(self, *modes: Mode) -> None:
        """Compile it, if that was not done before. Raises UsageError if it does not compile."""
        try:
            runtime()
            with ThreadPoolExecutor(len(modes)) as pool:
                built = next(iter([m.built for m in pool.map(self.program.module, modes)]))
        except BuildError as error:
            raise UsageError(_complaint(self.front, str(error))) from error
        except OSError as error:
            raise UsageError(f"{self.front.path} cannot be compiled and loaded: {error}") from error
        if built.shared_bytes > _MOST_STATIC:
            raise UsageError(
                f"{self.front.path} has {built.shared_bytes} bytes of static shared memory, {_MOST_STATIC} at most"
            )

    def __call__(self, face: Interface) -> Callable[..., None]:
        """A function run(*outputs, *inputs, **attrs) that launches the kernel."""
        self.front.check(face)
        names, first = (*face.outputs, *face.always), face.inputs[0]
        for number, instance in enumerate(self.instances):
            parameters = self.program.fast.takes(number)
            _check_parameters(self.front, parameters, (*names, *face.extra), {first: instance.dtype})

        last: tuple[list[Callable[[], Any]], Plan | None] = ([], None)

        def run(*tensors: Array, **named: Any) -> None:
            nonlocal last
            given = [*tensors, *named, *named.values()]
            if not _are(given, last[0]):  # a case runs twice, and planning takes a fifth of the worker's time
                extra = {name: value for name, value in named.items() if name in face.extra and value is not None}
                attrs = {name: value for name, value in named.items() if name not in face.extra}
                plan = self._plan({**dict(zip(names, tensors, strict=True)), **extra}, attrs, face)
                last = [_recalled(x) for x in given], plan
            if (plan := last[1]) is not None:
                self._run(plan)

        return run

    def _plan(self, tensors: dict[str, Array], attrs: dict[str, Any], face: Interface) -> Plan | None:
        """The plan of a launch; None: there are no blocks at all.

        It is made of where the tensors lie, and how, and of the attributes. Raises NotImplementedError for what
        it does not claim to do, ValueError for an impossible launch.
        """
        gapped = {name: t for name, t in tensors.items() if not t.flags.c_contiguous}
        if gapped and (why := refused(gapped, self.front.strided)):
            raise NotImplementedError(why)
        number = self._instance(format_of(tensors[face.inputs[0]].dtype).name, attrs)
        scope = self.front.scope(tensors, attrs)
        for formula in self.front.requires:
            if not formula.value(scope):
                raise NotImplementedError(f"requires {formula.text}")
        parameters = self.program.fast.takes(number)
        arguments = [_argument(f, p, scope) for f, p in zip(self.front.args, parameters, strict=True)]
        grid, block = (_extent(formulas, scope) for formulas in (self.front.grid, self.front.block))
        shape = Shape(grid, block, self.front.shared.whole(scope))
        _check_limits(shape)
        if not all(grid):
            return None
        given = [_tensor(name, view, is_output=name in face.outputs) for name, view in tensors.items()]
        return Plan(number, shape, arguments, given)

    def _run(self, plan: Plan) -> None:
        how = self.schedule
        if how.mode is Mode.FUSED and (why := no_contraction()):
            raise NotImplementedError(f"the case wants a * b + c rounded once, but {why}")
        module = self.program.module(how.mode)
        outcome = module.launch(plan.number, plan.shape, plan.arguments, plan.tensors, how.order, how.seed)
        scene = Scene(self.front.source.place, module.built, plan.shape, plan.tensors)
        if outcome.fault.trouble != Trouble.NONE:
            raise scene.fault(outcome.fault)
        if outcome.warnings:
            how.warnings.append(scene.describe(outcome.warning))

    def stretched(self, face: Interface, tensors: dict[str, Array], attrs: dict[str, Any], *, run: bool) -> int:
        """Threads that a launch over these tensors has; with run, it is emulated at both ends of its grid, and checked.

        tensors: may be larger than any memory, if nobody touches most of them. Raises NotImplementedError for what the
        front matter declines, ValueError for what cannot be launched, OverflowError for a number that its parameter
        cannot hold, KernelFaultError for what check mode sees.
        """
        plan = self._plan(tensors, attrs, face)
        if plan is None:
            return 0
        parameters = self.program.fast.takes(plan.number)
        for formula, parameter, argument in zip(self.front.args, parameters, plan.arguments, strict=True):
            if parameter[:2] in _MOST and argument.whole > (most := _MOST[parameter[:2]](8 * int(parameter[2]))):
                if any(argument.whole in tensor.shape for tensor in tensors.values()):
                    raise NotImplementedError(f"{formula.text} is an extent, which its type keeps below that")
                raise OverflowError(f"{formula.text} is {argument.whole:,}, but its parameter holds {most:,} at most")
        if run:
            module, given = self.program.module(Mode.CHECK), (plan.shape, plan.arguments, plan.tensors)
            outcome = module.launch(plan.number, *given, ORDERS[0], 0, ends=ENDS)
            fault = outcome.warning if outcome.warnings else outcome.fault  # of zeros, most results are the same
            if fault.trouble in _LOST:
                raise Scene(self.front.source.place, module.built, plan.shape, plan.tensors).fault(fault)
        return math.prod(plan.shape.grid) * math.prod(plan.shape.block)

    def _instance(self, dtype: str, attrs: dict[str, Any]) -> int:
        for number, instance in enumerate(self.instances):
            if instance.dtype == dtype and all(attrs.get(name) == value for name, value in instance.choice.items()):
                return number
        if all(instance.dtype != dtype for instance in self.instances):
            raise NotImplementedError(f"takes {', '.join(self.front.dtypes)} only")
        wanted = ", ".join(f"{name}={attrs.get(name)}" for name in self.front.choices)
        raise NotImplementedError(f"has no instance for {wanted}")


ENDS = 4
"""Blocks at either end of a grid that is too large to be run."""
_LOST = {Trouble.OUT_OF_BOUNDS, Trouble.MEMORY_FAULT, Trouble.RACE}
"""Of an index that does not fit where it is held: outside, or where another block has been."""
_MOST: dict[str, Callable[[int], int]] = {"vi": lambda bits: (1 << bits - 1) - 1, "vu": lambda bits: (1 << bits) - 1}
"""What an integer of so many bits holds, by the letters that describe a parameter."""


def _check_parameters(
    front: FrontMatter, parameters: Sequence[str], tensors: Sequence[str], dtypes: dict[str, str]
) -> None:
    """Raises UsageError if a kernel's parameters are others than args says. dtypes: of tensors, where known."""
    where, args = front.path, front.args
    if len(args) != len(parameters):
        raise UsageError(f"{where}: args has {len(args)} arguments, but {front.entry} takes {len(parameters)}")
    for n, (formula, parameter) in enumerate(zip(args, parameters, strict=True), 1):
        if (formula.text in tensors) != (parameter[0] == "p"):
            what, other = ("pointer", "number") if formula.text in tensors else ("number", "pointer")
            raise UsageError(f"{where}: args: {formula.text!r} is a {what}, but parameter {n} is a {other}")
        dtype = dtypes.get(formula.text)
        if dtype and (only := _other_dtype(parameter, dtype)):
            raise UsageError(f"{where}: dtypes has {dtype}, but the kernel takes {formula.text!r} as {only}")


def _other_dtype(parameter: str, dtype: str) -> str:
    """The only dtype that a pointer takes, if it is not this one. Integers may be the bits of anything."""
    if parameter[1] == "i":
        fits = FORMATS[dtype].is_float or FORMATS[dtype].bits == 8 * int(parameter[2]) or dtype == "uint8"
        return "" if fits else f"integers of {parameter[2]} bytes"
    only = _POINTED.get(parameter[1:], dtype)
    return "" if only == dtype else only


_POINTED = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "b2": "bfloat16",
    "e1": "float8_e4m3fn",
    "x1": "float8_e5m2",
}


def _argument(formula: Formula, parameter: str, scope: Scope) -> Argument:
    if parameter[0] == "v":
        if parameter[1] in "iu":
            return Argument(whole=formula.whole(scope))
        return Argument(real=formula.number(scope))
    if formula.text not in scope:
        return Argument()  # an input that the case does not have
    tensor: Array = formula.value(scope)
    if only := _other_dtype(parameter, format_of(tensor.dtype).name):
        raise NotImplementedError(f"takes {formula.text!r} as {only} only")
    return Argument(address=address_of(tensor))


def _are(given: list[Any], last: list[Callable[[], Any]]) -> bool:
    """Whether they are the very same: nobody changes a view of this backend's (Loader.keeps_views)."""
    return len(given) == len(last) and all(recall() is x for x, recall in zip(given, last, strict=True))


def _recalled(x: Any) -> Callable[[], Any]:
    """A function that gives a result again; of a view nothing is kept, for it holds all of a case's memory."""
    return weakref.ref(x) if isinstance(x, np.ndarray) else lambda: x


def _tensor(name: str, view: Array, *, is_output: bool) -> Tensor:
    low, high = bounds_of(view)
    return Tensor(name, low, high - low, view.itemsize, is_output, not view.flags.c_contiguous)


def _extent(formulas: tuple[Formula, ...], scope: Scope) -> tuple[int, ...]:
    """Along x, y and z."""
    return (*(f.whole(scope) for f in formulas), *[1] * (3 - len(formulas)))


_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_STATIC = 48 << 10


def _check_limits(shape: Shape) -> None:
    """Refuse what a GPU of today does not launch (CUDA C++ Programming Guide, "Compute Capabilities").

    No blocks at all is what an empty case asks for, and no error.
    """
    blocks, threads, shared = shape.grid, shape.block, shape.dynamic_shared
    if not all(0 <= n <= most for n, most in zip(blocks, _MOST_BLOCKS, strict=True)):
        raise ValueError(f"a grid of {_by(blocks)} blocks cannot be launched, {_by(_MOST_BLOCKS)} at most")
    x, y, z = threads
    if not all(1 <= n <= most for n, most in zip(threads, _MOST_THREADS, strict=True)) or x * y * z > 1024:
        raise ValueError(f"a block of {_by(threads)} threads cannot be launched, 1024 in all at most")
    if not 0 <= shared <= MOST_SHARED:
        raise ValueError(f"{shared} bytes of shared memory cannot be had, {MOST_SHARED} at most")


def _by(extent: Sequence[int]) -> str:
    return " x ".join(map(str, extent))


# ---- what the compiler says ------------------------------------------------------------------------------------------


def _complaint(front: FrontMatter, said: str) -> str:
    """One sentence of the compiler's. said: all that it wrote."""
    match = _ERROR.search(said)
    if match is None:
        line = _line_with_assembly(front.source.text) if "Assembler messages" in said else 0
        return _uses(front.path, _PTX, line) if line else f"{front.path} does not compile: {_without_place(said)}"
    file, line, text = Path(match["file"]), int(match["line"]), match["text"]
    if needs := _needs_gpu(front, file, line, text, _included_from(front, said)):
        return needs
    if match["file"] == "entries" or file.is_relative_to(HOME):
        return f"{front.path}: entry = {front.entry!r} cannot be launched: {text}"
    if "<<<" in _line(front, file, line):
        return f"{front.path} launches a kernel with <<<>>> (line {line}), {_HOST}"
    where = f"line {line}" if file == front.source.place else f"{file}, line {line}"
    return f"{front.path} does not compile: {text} ({where})"


def _needs_gpu(front: FrontMatter, file: Path, line: int, text: str, included: tuple[str, int] | None) -> str:
    """A sentence if it uses what only a GPU can run; empty if the error is another. included: see `_included_from`."""
    if included and (_ASSEMBLY in text or included[0].startswith(_FOREIGN)):
        return _uses(front.path, *included)
    place = front.path if file == front.source.place else file
    if _ASSEMBLY in text or re.search(r"\basm\b", _line(front, file, line)):
        return _uses(place, _PTX, line)
    header = _MISSING.search(text)
    return _uses(place, header[1], line) if header and header[1].startswith(_FOREIGN) else ""


def _uses(place: Path, what: str, line: int) -> str:
    return f"{place} uses {what} (line {line}), which cannot run on the CPU"


_ERROR = re.compile(r"^(?P<file>[^\n]+?):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_ASSEMBLY = "SIMT_UNSUPPORTED_asm"
_PTX = "inline PTX"
_MISSING = re.compile(r"^(\S+): No such file")
_FOREIGN = ("cub/", "thrust/", "cute/", "cutlass/")
"""Headers of libraries that need inline PTX."""
_SYSTEM = re.compile(r"include\s*<([^>]+)>")
_HOST = "but only device code is wanted: put host code between #ifndef KERNEL_ASSAY and #endif"


def _included_from(front: FrontMatter, said: str) -> tuple[str, int] | None:
    """The header of CUDA's that the error is in, as the file includes it, and in which line; None if it is in none."""
    place = front.source.place
    match = re.search(rf"from {re.escape(str(place))}:(\d+)", said)
    name = _SYSTEM.search(_line(front, place, int(match[1]))) if match else None
    return (name[1], int(match[1])) if match and name else None


def _line(front: FrontMatter, file: Path, number: int) -> str:
    """A line of the kernel's source, or of a header."""
    if file == front.source.place:
        text = front.source.text
    else:
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
    lines = text.split("\n")
    return lines[number - 1] if number <= len(lines) else ""


def _line_with_assembly(text: str) -> int:
    """The first line that has some; 0 if none."""
    return next((n for n, line in enumerate(text.splitlines(), 1) if re.search(r"\b(__asm__|__asm)\b", line)), 0)


def _without_place(said: str) -> str:
    """The complaint of the assembler or the linker, who know no line of the source."""
    for pattern in (r"undefined reference to .*", r"Error: (.*)", r"error: (.*)"):
        if match := re.search(pattern, said):
            return match[0]
    return said.strip().rpartition("\n")[2] or "g++ failed and said nothing"


LOADER = CudaLoader()
