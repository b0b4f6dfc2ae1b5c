"""The kernels of sweep.cu on the first GPU, by the driver's own interface and NVRTC."""

from __future__ import annotations

import ctypes
import struct
from functools import cached_property
from pathlib import Path

import numpy as np

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.device.gpu import Argument, Gpu
from kernel_assay.oracles.device.sweep import DIGITS, LISTED, Found, Judge, first_of, gate_tables

SOURCE = Path(__file__).with_name("sweep.cu")
WORDS = 3 + 2 * LISTED
"""Of 64 bits, in what the kernels find."""
_GRID, _BLOCK = 132 * 16, 256


def arguments_of(case: Case) -> tuple[str, int]:
    """The kernel for a part, and how many elements it has. Raises InternalError if there is none for it."""
    (size, *_), dtypes = [t.size for t in case.tensors.values()], {t.dtype for t in case.tensors.values()}
    for domain in contract_of(case.op).domains:
        if dtypes == {domain.dtype} and domain.attrs.items() <= case.attrs.items():
            return domain.kernel, size
    raise InternalError(f"there is no kernel that judges {case.label}")


class DeviceJudge(Judge):
    """Judge a part by the kernels."""

    def __init__(self, shared: Array, numerics: Numerics, handle: bytes) -> None:
        """handle: of the memory of the GPU that the outputs lie in; empty, or useless: they lie in `shared`."""
        self._gpu = Gpu(0, SOURCE.read_text("utf-8"))
        self._shared, self._numerics = shared, numerics
        self._got = self._opened(handle)
        self.opened = bool(self._got)
        if not self.opened:
            self._got = self._gpu.take(shared.size)
        self._found = self._gpu.take(8 * WORDS)

    def _opened(self, handle: bytes) -> int:
        """Memory of another process; 0 if it cannot be had."""
        try:
            return self._gpu.opened(handle) if handle else 0
        except InternalError:
            return 0

    @cached_property
    def _tables(self) -> list[Argument]:
        tables = gate_tables(self._numerics)
        arrays = (tables.numbers, tables.act, tables.own, tables.wanted, tables.budgets, tables.accepted)
        addresses = [ctypes.c_void_p(self._gpu.sent(array)) for array in arrays]
        return [*addresses, ctypes.c_double(tables.u), ctypes.c_double(tables.tiny)]

    def judge(self, case: Case) -> Found:
        """Every element."""
        name, count = arguments_of(case)
        if not self.opened:
            specs = contract_of(case.op).output_specs(case)
            assert all(spec.dtype in DIGITS for spec in specs.values())
            self._gpu.send(self._got, self._shared[: 2 * count])
        words = fresh()
        self._gpu.send(self._found, words)
        places = [ctypes.c_void_p(self._got), ctypes.c_void_p(self._found)]
        numbers = [ctypes.c_uint64(first_of(case)), ctypes.c_uint64(count)]
        rest = map(ctypes.c_int, DIGITS[str(case.attrs["to"])]) if name == "conversions" else self._tables
        self._gpu.launch(name, _GRID, _BLOCK, [*places, *numbers, *rest])
        self._gpu.fetch(self._found, words)
        return found_in(words)


def fresh() -> Array:
    """The findings of kernels that have not looked yet."""
    words = np.zeros(WORDS, np.uint64)
    words[1] = np.iinfo(np.uint64).max
    return words


def found_in(words: Array) -> Found:
    """Read what the kernels have found."""
    failed = int(words[0])
    listed = min(failed, LISTED)
    pairs = zip(words[3 : 3 + listed].tolist(), words[3 + LISTED :][:listed].tolist(), strict=True)
    (rho,) = struct.unpack("d", words[2].tobytes())
    return Found(failed, tuple(sorted(pairs)), rho)
