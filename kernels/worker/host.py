"""Cases in memory of the host, and subjects that are called there: by numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import FORMATS, Array, format_of
from kernel_assay.corpus.inputs.fingerprint import rows_digest_of
from kernel_assay.corpus.inputs.materialize import Tensors, digest, materialize_all
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backends.support.base import Returned
from kernel_assay.kernels.backends.support.guard import GAP, Guarded
from kernel_assay.kernels.backends.support.mapped_memory import Mapped
from kernel_assay.kernels.backends.support.walls import Walled, is_walled, order_of
from kernel_assay.kernels.boundary.output_transfer import Sealed
from kernel_assay.kernels.boundary.protocol import Round
from kernel_assay.kernels.worker.executor import Access, Head, Setting, loaded_by
from kernel_assay.kernels.worker.timed import host_round

_LENT = 1 << 20
"""Bytes, for guarded memory of any case that is not large by far."""
_LENT_TIMED = 1 << 26
"""The same, for all cases that are timed and not large: so who keeps results by pointers gives old ones."""
_PAGE = 1 << 12
_SMALL = 1 << 20
"""Bytes of a result that are copied to be compared."""


@cache
def _lent(size: int) -> Array:
    """Bytes in which one small case lies after the other: pointers come again, as they do in any program.

    Who takes a pointer for the name of the values there is found by that, and found again in a new process.
    """
    return np.empty(size, np.uint8)


class HostAccess(Access):
    """Subjects that are called with a backend's tensors over memory of the host."""

    @property
    def streamed(self) -> bool:  # type: ignore[override]
        """Whether the loader has chosen a stream of its own for the last call."""
        return self.loader.streamed

    def load(self, subject: Subject) -> Callable[..., Any]:
        """Load it by its backend's loader."""
        return loaded_by(self.loader.load_with, subject)

    def given(self, tensor: Array) -> Any:
        """The backend's tensor over a view of its own."""
        return self.loader.wrap(tensor[...])

    def form(self, given: Any) -> Any:
        """What its loader says."""
        return self.loader.form(given)

    def returned(self, result: Any) -> Returned:
        """Read it by the loader."""
        return self.loader.unwrap(result)

    def written(self, tensor: Array) -> Returned:
        """The memory itself."""
        return Returned(tensor, format_of(tensor.dtype).name, True, 0)

    def kept(self, result: Returned, *, large: bool) -> Returned:
        """Copy what lies in the memory; of a large case, all, into a file that nobody can write to any more."""
        if large and result.dtype in FORMATS:
            sealed = Sealed(result.array)
            return replace(result, array=sealed.array, sealed=sealed)
        return result if result.address else Returned(result.array.copy(), result.dtype, result.contiguous, 0)

    def is_alike(self, first: Returned, second: Returned) -> bool:
        """Compare the bytes of what is small."""
        return bool(first.array.nbytes <= _SMALL and first.array.tobytes() == second.array.tobytes())

    def same(self, first: Array, second: Array) -> bool:
        """Compare bytes."""
        return first.tobytes() == second.tobytes()

    def bits(self, values: Returned) -> Array:
        """Signed integers."""
        flat: Array = np.ascontiguousarray(values.array).reshape(-1)
        return flat.view(f"i{flat.itemsize}")

    def is_nan(self, bits: Array, dtype: str) -> Array:
        """Compare with itself: ml_dtypes are no types of numpy's."""
        values = bits.view(format_of(dtype).dtype)
        return np.asarray(values != values)  # noqa: PLR0124

    def first(self, mask: Array) -> int:
        """Find the first that is set."""
        return int(np.argmax(mask))

    def payload(self, values: Returned) -> bytes | Sealed:
        """The file, or a copy of the bytes."""
        return values.sealed or bytes(values.array.tobytes())

    def told_apart(self, first: Returned, second: Returned, at: int) -> Head:
        """Digests of both, and the bits of the element."""
        names = ("digest", "digest_again")
        digests = (blake2b(self.bits(r).view(np.uint8).data, digest_size=16).hexdigest() for r in (first, second))
        bits = tuple(int.from_bytes(self.bits(r)[at].tobytes(), sys.byteorder) for r in (first, second))
        return {**dict(zip(names, digests, strict=True)), "differing_bits": bits}

    def settle(self, memory: Any) -> None:
        """Touch each page: a large case is mapped anew for each run."""
        memory.slab[::_PAGE].max(initial=0)

    def hide(self, memory: Any) -> None:
        """Write the byte of gaps over them."""
        for one in memory.inputs:
            memory.slab[one.start : one.stop] = GAP

    def timed_round(self, make: Callable[[int], Callable[[], Any]], asked: Round) -> tuple[Any, int]:
        """Time them by the clock of the host."""
        return host_round(make, asked)

    def prepare(self, memory: Any, case: Case, run: int, order: int) -> None:
        """Tell the loader."""
        self.loader.stage(memory.slab, memory.tensors()[1])
        self.loader.prepare(order, run, contracted=case.contracted)


class HostSetting(Setting):
    """One case, materialized, in guarded memory."""

    def __init__(
        self,
        case: Case,
        specs: dict[str, TensorSpec],
        *,
        large: bool = False,
        walls: bool = True,
        timed: bool = False,
    ) -> None:
        """walls: whether inputs may lie between walls, too; timed: whether rounds of calls run in it."""
        super().__init__(case, specs)
        self.large, self.walls, self.timed = large, walls, timed
        # Of a large case memory is made now: whether there is room for it is nothing that a subject does.
        self.inputs: Tensors = self.memory.tensors()[0] if large else materialize_all(case)
        self.digest = "" if large else digest(self.inputs)
        self.rows = rows_digest_of(case, self.inputs) if large else ""

    def may_be_walled(self, access: Access) -> bool:
        """Whether a subject is run between walls, too."""
        return access.loader.walled and self.walls and not self.large and is_walled(self._order)

    @cached_property
    def _order(self) -> int:
        """A number that the seeds of the case give."""
        return order_of(self.case)

    @cached_property
    def memory(self) -> Guarded:
        """The slab with all buffers."""
        if self.large:
            return Mapped(self.case.tensors, self.specs)
        return Guarded(self.case.tensors, self.inputs, self.specs, lent=_lent(_LENT_TIMED if self.timed else _LENT))

    @cached_property
    def walled(self) -> HostSetting:
        """The same case, its inputs between walls."""
        made, inputs = copy(self), Walled(self.case.tensors, self.inputs, self._order)
        vars(made).update(_kept={}, memory=Guarded(self.case.tensors, self.inputs, self.specs, inputs))
        return made
