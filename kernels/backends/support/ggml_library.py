"""GGML by way of ctypes: one operation at a time, on numpy's memory, on the calling thread.

Of GGML's library only what kernels/*/ggml_*.py need. A graph of one node is planned and computed for every call; its
tensors have no memory of their own, but point into the arrays that a subject is given. An assertion that fails inside
ends the process, so whatever GGML does not take is declined here.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.blocks import BLOCKS, ELEMENTS
from kernel_assay.corpus.formats import Array

_TYPES = {"float32": 0, "float16": 1, "int32": 26}
_TYPES |= {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q8_1": 9}
"""enum ggml_type, by our names."""
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "add": (c_void_p, c_void_p),
    "argmax": (c_void_p,),
    "gelu_erf": (c_void_p,),
    "get_rows": (c_void_p, c_void_p),
    "mul": (c_void_p, c_void_p),
    "mul_mat": (c_void_p, c_void_p),
    "norm": (c_void_p, c_float),
    "rms_norm": (c_void_p, c_float),
    "silu": (c_void_p,),
    "soft_max_ext": (c_void_p, c_void_p, c_float, c_float),
    "sum_rows": (c_void_p,),
}
"""What ggml_<name> takes besides the context."""
_AXES, _ROOM = 4, 1 << 20
"""Axes of a tensor, innermost first; bytes for the description of one graph."""


class _InitParams(Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class _Tensor(Structure):
    """struct ggml_tensor."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * _AXES),
        ("nb", c_size_t * _AXES),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
        ("extra", c_void_p),
        ("padding", c_char * 8),
    )


class _Plan(Structure):
    """struct ggml_cplan."""

    _fields_ = (
        ("work_size", c_size_t),
        ("work_data", c_void_p),
        ("n_threads", c_int),
        ("threadpool", c_void_p),
        ("abort_callback", c_void_p),
        ("abort_data", c_void_p),
        ("use_ref", c_bool),
    )


class _Traits(Structure):
    """struct ggml_type_traits: functions of a type's reference implementation."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", c_int64),
        ("blck_size_interleave", c_int64),
        ("type_size", c_size_t),
        ("is_quantized", c_bool),
        ("to_float", c_void_p),
        ("from_float_ref", c_void_p),
    )


class _CpuTraits(Structure):
    """struct ggml_type_traits_cpu: functions that are written for this processor."""

    _fields_ = (("from_float", c_void_p), ("vec_dot", c_void_p), ("vec_dot_type", c_int), ("nrows", c_int64))


_ROW = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64)
"""Of a row: source, sink, number of elements."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed blocks of a format of corpus.blocks, in the last axis of an array of bytes."""

    raw: Array
    form: str


def compute(op: str, out: Array, *arguments: Array | Packed | float | None) -> None:
    """Let ggml_<op> write into out, whose axes are those of the result without leading ones.

    Raises NotImplementedError for arrays with gaps and for empty ones, which some of its operations do not take.
    """
    if not out.size:
        return
    decline_gaps(out, *(a.raw if isinstance(a, Packed) else a for a in arguments))
    _library().compute(op, out, arguments)


def decline_gaps(*arrays: Array | float | None) -> None:
    """Raise NotImplementedError for arrays that are empty or do not lie in memory without gaps, row by row."""
    for array in arrays:
        if isinstance(array, np.ndarray) and not (array.size and array.flags.c_contiguous):
            raise NotImplementedError("ggml is given whole rows without gaps only")


def quantize(out: Array, x: Array, form: str, *, reference: bool) -> None:
    """Pack numbers by the reference in C, or by what is written for this processor."""
    if out.size:
        decline_gaps(out, x)
        library = _library()
        traits = library.traits(form).from_float_ref if reference else library.cpu_traits(form).from_float
        _ROW(traits)(x.ctypes.data, out.ctypes.data, x.size)


def dequantize(out: Array, raw: Array, form: str) -> None:
    """Unpack numbers by the reference in C. Raises NotImplementedError for q8_1, for which it has none."""
    function = _library().traits(form).to_float
    if function is None:
        raise NotImplementedError(f"ggml does not unpack {form}")
    if out.size:
        decline_gaps(out, raw)
        _ROW(function)(raw.ctypes.data, out.ctypes.data, out.size)


def partner(form: str) -> str:
    """The format of the activations that weights of this format are multiplied with."""
    wanted = _library().cpu_traits(form).vec_dot_type
    return next(name for name, number in _TYPES.items() if number == wanted)


def missing() -> str:
    """The reason why there is no GGML here; empty if there is."""
    return "" if find_spec("libggml") else "libggml-python is not installed"


@cache
def _library() -> _Library:
    """Loaded when it is first used. Raises NotImplementedError if it is not installed."""
    spec = find_spec("libggml")
    if spec is None or spec.origin is None:
        raise NotImplementedError(missing())
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a debugger would be started on whatever fails
    return _Library(Path(spec.origin).parent / "lib64")


class _Library:
    """The two shared libraries, and one context for descriptions of graphs."""

    def __init__(self, folder: Path) -> None:
        # By these names, under which the one is linked to the other; the wheel has each three times.
        self._base = ctypes.CDLL(str(folder / "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
        self._cpu = ctypes.CDLL(str(folder / "libggml-cpu.so.0"), mode=ctypes.RTLD_GLOBAL)
        self._cpu.ggml_cpu_init()
        self._memory = ctypes.create_string_buffer(_ROOM)
        begin = self._function("ggml_init", c_void_p, _InitParams)
        self._context = begin(_InitParams(_ROOM, ctypes.addressof(self._memory), True))
        self._reset = self._function("ggml_reset", None, c_void_p)
        self._tensor = self._function("ggml_new_tensor_4d", c_void_p, c_void_p, c_int, *[c_int64] * _AXES)
        self._graph = self._function("ggml_new_graph_custom", c_void_p, c_void_p, c_size_t, c_bool)
        self._expand = self._function("ggml_build_forward_expand", None, c_void_p, c_void_p)
        self._ops = {op: self._function(f"ggml_{op}", c_void_p, c_void_p, *a) for op, a in _ARGUMENTS.items()}

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._base, name)
        function.restype, function.argtypes = result, arguments
        return function

    @cached_property
    def _plan(self) -> Any:
        function = self._cpu.ggml_graph_plan
        function.restype, function.argtypes = _Plan, (c_void_p, c_int, c_void_p)
        return function

    @cached_property
    def _run(self) -> Any:
        function = self._cpu.ggml_graph_compute
        function.restype, function.argtypes = c_int, (c_void_p, POINTER(_Plan))
        return function

    def traits(self, form: str) -> Any:
        """GGML's knowledge of a type."""
        return self._function("ggml_get_type_traits", POINTER(_Traits), c_int)(_TYPES[form]).contents

    def cpu_traits(self, form: str) -> Any:
        """The knowledge of a type that GGML's backend for CPUs has."""
        function = self._cpu.ggml_get_type_traits_cpu
        function.restype, function.argtypes = POINTER(_CpuTraits), (c_int,)
        return function(_TYPES[form]).contents

    def compute(self, op: str, out: Array, arguments: tuple[Array | Packed | float | None, ...]) -> None:
        """One node. Raises RuntimeError if GGML gives up."""
        self._reset(self._context)
        node = self._ops[op](self._context, *map(self._argument, arguments))
        made = _Tensor.from_address(node)
        shape = tuple(made.ne)[::-1]
        if (made.type, shape) != (_TYPES[out.dtype.name], (1,) * (_AXES - out.ndim) + out.shape):
            raise RuntimeError(f"ggml_{op} gives type {made.type} of shape {shape}")
        made.data = out.ctypes.data
        graph = self._graph(self._context, 16, False)
        self._expand(graph, node)
        plan = self._plan(graph, 1, None)
        work = np.empty(plan.work_size, np.uint8)
        plan.work_data = work.ctypes.data
        if status := self._run(graph, ctypes.byref(plan)):
            raise RuntimeError(f"ggml_{op} ends with status {status}")

    def _argument(self, value: Array | Packed | float | None) -> Any:
        """A tensor over the memory of an array; numbers as they are."""
        if isinstance(value, Packed):
            count = value.raw.shape[-1] // BLOCKS[value.form].size * ELEMENTS
            return self._described(value.raw, value.form, (*value.raw.shape[:-1], count))
        return self._described(value, value.dtype.name, value.shape) if isinstance(value, np.ndarray) else value

    def _described(self, memory: Array, kind: str, shape: tuple[int, ...]) -> int:
        if kind not in _TYPES:
            raise NotImplementedError(f"ggml is not given {kind} here")
        node: int = self._tensor(self._context, _TYPES[kind], *shape[::-1], *[1] * (_AXES - len(shape)))
        _Tensor.from_address(node).data = memory.ctypes.data
        return node
