"""Small kernels in CUDA C++, run by the emulator directly, and what it says of them."""

import ctypes
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from kernel_assay.kernels.backends.cuda_support.device_code import compile_for
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Argument, Outcome, Program, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.faults import Scene
from kernel_assay.kernels.backends.simt.toolchain import Mode

FAST, CHECK = Mode.FAST, Mode.CHECK
NOTHING = Trouble.NONE
ENTRY = re.compile(
    r'^(?P<template>template <.*>\n)?(?:extern "C" )?__global__ void (?:__launch_bounds__\([^)]*\) )?(?P<name>\w+)\(',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Ran:
    """A launch, in words too."""

    outcome: Outcome
    scene: Scene

    @property
    def trouble(self):
        return Trouble(self.outcome.fault.trouble)

    @property
    def said(self):
        """Of the fault; nothing if there is none."""
        return self.scene.describe(self.outcome.fault) if self.outcome.fault.trouble else ""

    @property
    def warned(self):
        return self.scene.describe(self.outcome.warning) if self.outcome.warnings else ""


class Gpu:
    """The same kernels where there is a GPU: what they give is what the hardware gives."""

    def __init__(self, folder, source, *entries):
        path = folder / "kernels.cu"
        path.write_text(source)
        front = SimpleNamespace(path=path, numerics={}, instances=[SimpleNamespace(entry=e) for e in entries])
        compiled = compile_for(front, DRIVER.architecture, "nvrtc")
        self.kernels = dict(zip(entries, DRIVER.kernels(compiled.binary, compiled.names), strict=True))

    def right(self, entry, *, grid=1, block=32, **arguments):
        """One launch; arguments as of Kernels.run, numbers are int. Its outputs."""
        values, there = [], {}
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                there[name] = int(DRIVER.call("cuMemAlloc", value.nbytes))
                DRIVER.call("cuMemcpyHtoD", there[name], value.ctypes.data, value.nbytes)
            values.append(ctypes.c_void_p(there[name]) if name in there else ctypes.c_int(value))
        packed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        DRIVER.launch(self.kernels[entry], (grid, 1, 1), (block, 1, 1), 0, ctypes.addressof(packed))
        outs = []
        for name, address in there.items():
            if name.startswith("out"):
                outs.append(np.empty_like(arguments[name]))
                DRIVER.call("cuMemcpyDtoH", outs[-1].ctypes.data, address, outs[-1].nbytes)
            DRIVER.call("cuMemFree", address)
        return outs if len(outs) > 1 else outs[0]


class Kernels:
    """A file: every `__global__ void` at the beginning of a line, and instances of templates by name."""

    def __init__(self, folder, source, *instances):
        self.path = folder / "kernels.cu"
        self.path.write_text(source)
        plain = [m["name"] for m in ENTRY.finditer(source) if not m["template"]]
        self.entries = [*plain, *instances]
        self.program = Program(self.path, self.entries)

    def line(self, words):
        """The one with these words in a comment at its end."""
        lines = self.path.read_text().split("\n")
        found = [n for n, line in enumerate(lines, 1) if line.endswith(f"// {words}")]
        assert len(found) == 1, (words, found)
        return found[0]

    def placed(self, text):
        """The text, with the line of `words` for each <words>; in brackets the file stands before it."""
        lines = re.sub("<([^<>]+)>", lambda m: f"line {self.line(m[1])}", text)
        return lines.replace("(line", f"({self.path.name}, line")

    def run(self, entry, *, grid=1, block=32, shared=0, order=ORDERS[0], seed=1, mode=FAST, undefined=0, **arguments):
        """One launch. arguments: of the kernel, in its order; tensors called out... are outputs, all others inputs."""
        module = self.program.module(mode)
        shape = Shape(extent(grid), extent(block), shared)
        tensors = [
            Tensor(name, a.ctypes.data, a.nbytes, a.itemsize, name.startswith("out"))
            for name, a in arguments.items()
            if isinstance(a, np.ndarray)
        ]
        given = [argument(a) for a in arguments.values()]
        number = self.entries.index(entry)
        outcome = module.launch(number, shape, given, tensors, order, seed, undefined=undefined)
        return Ran(outcome, Scene(self.path, module.built, shape, tensors))

    def right(self, entry, **how):
        """The outputs, the same in every order and mode, without an alarm. The arrays given stay as they are."""
        found = None
        for mode in (FAST, CHECK):
            for order in ORDERS:
                copies = {k: aligned(v) if k.startswith("out") else v for k, v in how.items()}
                ran = self.run(entry, **copies, mode=mode, order=order)
                assert not ran.said + ran.warned, f"{mode}, {order}: {ran.said}{ran.warned}"
                outputs = [v for k, v in copies.items() if k.startswith("out")]
                for one, other in zip(outputs, found or outputs, strict=True):
                    np.testing.assert_array_equal(wide(one), wide(other), f"{mode} {order}")
                found = outputs
        return found[0] if len(found) == 1 else found


def wide(array):
    """numpy sees no NaN in types that are not its own."""
    return array.astype(np.float64) if array.dtype.kind == "V" else array


def extent(given):
    return (*given, 1, 1)[:3] if isinstance(given, tuple) else (given, 1, 1)


def argument(given):
    if given is None:
        return Argument()
    if isinstance(given, np.ndarray):
        return Argument(address=given.ctypes.data)
    return Argument(whole=given, real=given) if isinstance(given, int) else Argument(real=given)


def aligned(array):
    """The same at an address that a tile or a vector may have."""
    room = np.empty(array.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    found = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def blank(shape, dtype=np.float32):
    """An output nobody has written: NaN, or -1."""
    found = np.empty(shape, dtype)
    found.view(np.uint8)[...] = 0xFF
    return found
