"""Subjects in CUDA C++ (.cu files). On the CPU: compiled as they stand by g++, their threads emulated (simt/).

On a GPU: compiled by NVRTC and launched through the driver; what they are given is copied there and back, with the red
zones around it. An error after which nothing runs on the GPU any more ends the process, as a crash of the subject.

How a kernel is launched stands in its front matter (kernels/backends/cuda_support/front_matter.py). Each case runs
twice, in two orders of threads, and says how (kernels/backends/simt/schedule.py).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.kernels.backends.cuda_support.complaints import complaint
from kernel_assay.kernels.backends.cuda_support.device_code import compilers, kept_for
from kernel_assay.kernels.backends.cuda_support.driver import (
    DRIVER,
    MOST_SHARED,
    Apart,
    Arena,
    Window,
    address_of,
    bounds_of,
    exact,
    send_all,
)
from kernel_assay.kernels.backends.cuda_support.formula import Formula, Scope
from kernel_assay.kernels.backends.cuda_support.front_matter import FrontMatter, Instance, read_front_matter
from kernel_assay.kernels.backends.cuda_support.gpu_memory import OnGpu, absent
from kernel_assay.kernels.backends.cuda_support.parameters import check_parameters, other_dtype
from kernel_assay.kernels.backends.cuda_support.strides import refused
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Argument, Program, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.faults import Scene
from kernel_assay.kernels.backends.simt.processor import no_contraction
from kernel_assay.kernels.backends.simt.schedule import Schedule
from kernel_assay.kernels.backends.simt.toolchain import (
    BuildError,
    Mode,
    compiler,
    missing,
    runtime,
)
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.backends.support.signature import Interface, Unfitted


class CudaLoader(Loader):
    """Kernels that write into numpy views, through pointers."""

    name = "cuda"
    keeps_views = True
    judges = True

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
        """What the emulator doubts and does not call a fault: the first of each launch."""
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
        """Modes in which what is loaded may run; in a debugger others than the first are built when they are wanted."""
        if os.environ.get(toolchain.DEBUG):
            return (Mode.FAST,)
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
            raise UsageError(complaint(self.front, str(error))) from error
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
            check_parameters(self.front, parameters, (*names, *face.extra), {first: instance.dtype})

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
        check_limits(shape)
        if not all(grid):
            return None
        given = [_tensor(name, view, is_output=name in face.outputs) for name, view in tensors.items()]
        return Plan(number, shape, arguments, given)

    def _run(self, plan: Plan) -> None:
        how = self.schedule
        if how.mode is Mode.FUSED and (why := no_contraction()):
            raise NotImplementedError(f"the case wants a * b + c rounded once, but {why}")
        module = self.program.module(how.mode)
        given = plan.shape, plan.arguments, plan.tensors
        outcome = module.launch(plan.number, *given, how.order, how.seed, undefined=how.undefined, shares=how.shares)
        scene = Scene(self.front.source.place, module.built, plan.shape, plan.tensors)
        if outcome.fault.trouble != Trouble.NONE:
            raise scene.fault(outcome.fault)
        if outcome.warnings:
            how.warnings.append(scene.describe(outcome.warning))

    def stretched(self, face: Interface, tensors: dict[str, Array], attrs: dict[str, Any], *, run: bool) -> Shape:
        """Shape of a launch over these tensors; with run, it is emulated at both ends of its grid, and checked.

        tensors: may be larger than any memory, if nobody touches most of them. Raises NotImplementedError for what the
        front matter declines, ValueError for what cannot be launched, OverflowError for a number that its parameter
        cannot hold, KernelFaultError for what check mode sees.
        """
        plan = self._plan(tensors, attrs, face)
        if plan is None:
            return Shape((0,), (0,))
        parameters = self.program.fast.takes(plan.number)
        for formula, parameter, argument in zip(self.front.args, parameters, plan.arguments, strict=True):
            if parameter[:2] in _MOST and argument.whole > (most := _MOST[parameter[:2]](8 * int(parameter[2]))):
                if any(argument.whole in tensor.shape for tensor in tensors.values()):
                    raise NotImplementedError(f"{formula.text} is an extent, which its type keeps below that")
                raise OverflowError(f"{formula.text} is {argument.whole:,}, but its parameter holds {most:,} at most")
        if run:
            module, given = self.program.module(Mode.CHECK), (plan.shape, plan.arguments, plan.tensors)
            outcome = module.launch(plan.number, *given, ORDERS[0], 0, ends=ENDS)
            # Of zeros, most results are the same: a race is a warning.
            fault = outcome.warning if outcome.warning.trouble in _LOST else outcome.fault
            if fault.trouble in _LOST:
                raise Scene(self.front.source.place, module.built, plan.shape, plan.tensors).fault(fault)
        return plan.shape

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


def _argument(formula: Formula, parameter: str, scope: Scope) -> Argument:
    if parameter[0] == "v":
        if parameter[1] in "iu":
            return Argument(whole=formula.whole(scope))
        return Argument(real=formula.number(scope))
    if formula.text not in scope:
        return Argument()  # an input that the case does not have
    tensor: Array = formula.value(scope)
    if only := other_dtype(parameter, format_of(tensor.dtype).name):
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


def check_limits(shape: Shape) -> None:
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


# ---- on a GPU --------------------------------------------------------------------------------------------------------

_ARENA = Apart() if exact() else Arena()
_VALUES = {
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "i1": ctypes.c_int8,
    "i2": ctypes.c_int16,
    "i4": ctypes.c_int32,
    "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u2": ctypes.c_uint16,
    "u4": ctypes.c_uint32,
    "u8": ctypes.c_uint64,
}
"""Of numbers, by the letters that describe a parameter."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments of a launch, and the addresses of all of them, as the driver takes them."""

    values: list[Any]
    addresses: Any

    @property
    def address(self) -> int:
        """Address of the list of addresses."""
        return ctypes.addressof(self.addresses)


def packed(parameters: Sequence[str], arguments: Sequence[Argument], there: Callable[[int], int]) -> Packed:
    """The arguments of a kernel. parameters: as Module.takes; there: address on the host -> address on the GPU."""
    values: list[Any] = []
    for argument, parameter in zip(arguments, parameters, strict=True):
        if parameter[0] == "p":
            values.append(ctypes.c_void_p(there(argument.address) if argument.address else None))
        else:
            values.append(_VALUES[parameter[1:]](argument.whole if parameter[1] in "iu" else argument.real))
    return Packed(values, (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values)))


class GpuCudaSubject(CudaSubject):
    """A file whose kernels run on the GPU; what they take is read from what g++ made of it."""

    @cached_property
    def kernels(self) -> list[Any]:
        """Compiled for this GPU when they are first wanted. Raises UsageError if they do not compile."""
        compiled = kept_for(self.front, DRIVER.architecture)
        return DRIVER.kernels(compiled.binary, compiled.names)

    def _run(self, plan: Plan) -> None:
        if plan.prepared is None:
            plan.prepared = _Prepared({t.address: Window.at(t.address, t.bytes) for t in plan.tensors})
        apart = plan.prepared.apart
        send_all(_ARENA, apart)
        values, shape = plan.prepared.values(self.program.fast.takes(plan.number), plan.arguments), plan.shape
        kernel, wait = self.kernels[plan.number], exact() or not apart  # else a fetch waits
        DRIVER.launch(kernel, shape.grid, shape.block, shape.dynamic_shared, values.address, wait=wait)
        for window in apart:
            window.fetch()


class _Prepared:
    """The part of a launch that stays: the windows on its tensors, and its arguments while those stay."""

    def __init__(self, windows: dict[int, Window]) -> None:
        """windows: by the address on the host of the tensor that lies in each."""
        self._windows = windows
        self.apart = list(dict.fromkeys(windows.values()))
        self._places: list[int] = []
        self._packed: Packed | None = None

    def values(self, parameters: Sequence[str], arguments: Sequence[Argument]) -> Packed:
        """The arguments for where the windows are now."""
        places = [window.there(window.start) for window in self.apart]
        if self._packed is None or places != self._places:
            self._places = places
            self._packed = packed(parameters, arguments, lambda address: self._windows[address].there(address))
        return self._packed


class ResidentSubject(GpuCudaSubject):
    """A file launched on tensors that are on the GPU already: what it is called with only stands for them."""

    there: ClassVar[dict[int, int]] = {}
    """Address of an array that stands for a tensor -> the tensor's on the GPU."""
    waits: ClassVar[bool] = True
    """Whether a call ends when its kernel does."""

    def _run(self, plan: Plan) -> None:
        shape = plan.shape
        values = packed(self.program.fast.takes(plan.number), plan.arguments, lambda address: self.there[address])
        kernel = self.kernels[plan.number]
        DRIVER.launch(kernel, shape.grid, shape.block, shape.dynamic_shared, values.address, wait=self.waits)


class GpuCudaLoader(OnGpu, CudaLoader):
    """Kernels on the GPU."""

    judges = False

    def warm(self) -> None:
        """Make the context."""
        DRIVER.check()

    def unavailable(self) -> str:
        """Needs a GPU, and NVIDIA's packages."""
        if why := absent("cuda"):
            return why
        return super().unavailable() or ("" if "nvrtc" in compilers() else "NVRTC is not installed")

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes in which what is loaded is compiled by g++: only its parameters are read."""
        return (Mode.FAST,)

    @property
    def kind(self) -> type[CudaSubject]:
        """The class of what is loaded."""
        return GpuCudaSubject

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """Compile the file for the GPU, too. Raises UsageError if it does not compile."""
        subject = super().load_with(path, function, launch)
        assert isinstance(subject, GpuCudaSubject)
        assert subject.kernels  # compiled now, too
        return subject

    def load_there(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """Load it for tensors that are on the GPU already."""
        return _ResidentLoader().load_with(path, function, launch)

    def wait_for_launches(self, *, wait: bool) -> None:
        """Tell those that are on the GPU already."""
        ResidentSubject.waits = wait

    def wrap_there(self, tensor: Any) -> Array:
        """An array of the same layout that is never touched: its address means the tensor's."""
        dtype, strides = format_of(str(tensor.dtype).removeprefix("torch.")).dtype, tensor.stride()
        size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True)) if tensor.numel() else 1
        room = np.empty(size * dtype.itemsize, np.uint8)  # takes no memory before it is touched
        stand = np.ndarray(tuple(tensor.shape), dtype, room.data, 0, [s * dtype.itemsize for s in strides])
        ResidentSubject.there[address_of(stand)] = tensor.data_ptr()
        return stand


class _ResidentLoader(GpuCudaLoader):
    """Loads subjects for them."""

    @property
    def kind(self) -> type[CudaSubject]:
        """The class of what is loaded."""
        return ResidentSubject


LOADER = CudaLoader()
ON_GPU = GpuCudaLoader()
