"""Launches of a kernel that is no op, in check mode: each in two orders of threads, compared with what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.cuda import check_limits
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Argument, Module, Shape, Tensor, Trouble
from kernel_assay.kernels.backends.simt.faults import Scene
from kernel_assay.kernels.backends.simt.program.findings import KINDS
from kernel_assay.kernels.backends.simt.schedule import UNDEFINED
from kernel_assay.kernels.programs.witness import Witness

_ZONE = 4096
"""Bytes on either side of an array that are nobody's."""
_ALIGNED = 256
"""As cudaMalloc's memory is."""
ORDER_DEPENDENT, WRONG = "order-dependent", "wrong-result"


class Problem(NamedTuple):
    """The first thing that is wrong with a launch."""

    kind: str
    message: str


@dataclass(slots=True)
class Expectations:
    """All that a person's file says of outputs."""

    serial: Callable[..., Mapping[str, Any]] | None = None
    """Takes arguments by name, and gives outputs that are right."""
    tolerance: float | None = None
    """Absolute and relative, of floats."""
    deterministic: bool = False
    """Whether outputs may not depend on the order."""
    place: str = ""


@dataclass(slots=True)
class Launcher:
    """One kernel."""

    module: Module
    source: Path
    expected: Expectations
    notes: dict[str, str] = field(default_factory=dict)
    """The first of each kind of what is no finding."""

    def problem(self, case: Witness) -> Problem | None:
        """Launch it in its own order, and in the first one; None: nothing is wrong. Raises UsageError."""
        right = self._right(case)
        first: dict[str, Array] | None = None
        for order, seed in dict.fromkeys([(case.order, case.seed), (ORDERS[0], 0)]):
            outputs, problem = self._launched(case, order, seed)
            problem = problem or _difference(outputs, right, self.expected, f"in order {order}, seed {seed},")
            if problem:
                return problem
            if first is not None and (problem := _dependence(first, outputs, case)):
                if self.expected.deterministic:
                    return problem
                self.notes.setdefault(problem.kind, f"{problem.kind}: {problem.message}")
            first = outputs
        return None

    def _launched(self, case: Witness, order: str, seed: int) -> tuple[dict[str, Array], Problem | None]:
        """Outputs by name, and what was seen at once."""
        shape = Shape(_whole(case.grid), _whole(case.block), case.shared)
        try:
            check_limits(shape)
        except ValueError as error:
            raise UsageError(str(error)) from error
        arguments, tensors, placed = self._arguments(case)
        done = self.module.launch(0, shape, arguments, tensors, order, seed, undefined=UNDEFINED[0])
        outputs = {tensor.name: placed[tensor.name] for tensor in tensors if tensor.is_output}
        scene, trouble = Scene(self.source, self.module.built, shape, tensors), Trouble(done.fault.trouble)
        if trouble is Trouble.UNSUPPORTED:
            raise UsageError(scene.describe(done.fault))
        if trouble is not Trouble.NONE:
            return outputs, Problem(KINDS[trouble], scene.describe(done.fault))
        if done.warnings and "warning" not in self.notes:
            kind = KINDS[Trouble(done.warning.trouble)]
            self.notes["warning"] = f"harmless {kind}: {scene.describe(done.warning)}"
        return outputs, None

    def _arguments(self, case: Witness) -> tuple[list[Argument], list[Tensor], dict[str, Array]]:
        """The arguments, and the arrays that they point to."""
        takes = self.module.takes(0)
        if len(takes) != len(case.arguments):
            raise UsageError(f"{case.entry} takes {len(takes)} arguments, and inputs() gives {len(case.arguments)}")
        arguments, tensors, placed = list[Argument](), list[Tensor](), dict[str, Array]()
        for given, parameter in zip(case.arguments, takes, strict=True):
            array = given.array()
            _check(given.name, array, parameter, is_value=given.role == "value")
            if given.role == "value":
                number = array[()]
                arguments.append(Argument(real=float(number), whole=0 if array.dtype.kind == "f" else int(number)))
                continue
            there = placed[given.name] = _placed(array, undefined=given.role == "out")
            address, is_output, is_defined = there.ctypes.data, given.role != "in", given.role == "inout"
            tensors.append(Tensor(given.name, address, array.nbytes, array.itemsize, is_output, is_defined=is_defined))
            arguments.append(Argument(address=address))
        return arguments, tensors, placed

    def _right(self, case: Witness) -> dict[str, Array]:
        """Outputs as `serial` has them; none without it."""
        if self.expected.serial is None:
            return {}
        arrays = {given.name: given.array() for given in case.arguments}
        values = {name: a if a.ndim else a[()].item() for name, a in arrays.items()}
        roles = {given.name: given.role for given in case.arguments}
        right = self.expected.serial(**values)
        if not isinstance(right, Mapping) or not all(roles.get(name) in {"out", "inout"} for name in right):
            raise UsageError(f"{self.expected.place}: serial() must return a dict of arrays by the names of outputs")
        return {name: np.asarray(array) for name, array in right.items()}


def _whole(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Along x, y and z."""
    return (*extent, *[1] * (3 - len(extent)))


def _placed(array: Array, *, undefined: bool) -> Array:
    """A copy with room around it, aligned as on a device; undefined: of bytes that nobody would expect."""
    room = np.empty(array.nbytes + 2 * _ZONE + _ALIGNED, np.uint8)
    start = _ZONE + -(room.ctypes.data + _ZONE) % _ALIGNED
    view = room[start : start + array.nbytes]
    view[:] = UNDEFINED[0] if undefined else np.frombuffer(array.tobytes(), np.uint8)
    return view.view(array.dtype).reshape(array.shape)


_LIKE = {"i": "iub", "u": "iub", "f": "f"}
"""Kinds of dtypes that a parameter of a kind takes; others take any."""


def _check(name: str, array: Array, parameter: str, *, is_value: bool) -> None:
    """Refuse what a parameter cannot be given. parameter: see Module.takes."""
    pointer, kind, size = parameter[0] == "p", parameter[1], parameter[2]
    if pointer == is_value:
        raise UsageError(f"{name} is {'an array' if pointer else 'a number'} for the kernel, and something else here")
    fits = is_value or size == "0" or kind not in _LIKE or str(array.itemsize) == size
    if not fits or (not is_value and array.dtype.kind not in _LIKE.get(kind, array.dtype.kind)):
        wanted = {"f": "floats", "i": "integers", "u": "integers without sign"}[kind]
        raise UsageError(f"{name} points to {wanted} of {size} bytes in the kernel, and is {array.dtype.name} here")
    if is_value and kind in "iu" and array.dtype.kind == "f":
        raise UsageError(f"{name} is a whole number for the kernel, and {array[()]} here")


def _difference(
    outputs: Mapping[str, Array], right: Mapping[str, Array], expected: Expectations, when: str
) -> Problem | None:
    """The first element that is not as `serial` has it."""
    for name, wanted in right.items():
        got = outputs[name]
        if wanted.shape != got.shape:
            raise UsageError(f"{expected.place}: serial() gives {name} of shape {wanted.shape}, but it has {got.shape}")
        if got.dtype.kind != "f":
            off = got != wanted
        elif expected.tolerance is None:
            raise UsageError(f"{expected.place} must say how exact {name} is, as in TOLERANCE = 1e-5")
        else:
            off = ~np.isclose(got, wanted, expected.tolerance, expected.tolerance, equal_nan=True)
        if off.any():
            at = int(np.flatnonzero(off.ravel())[0])
            return Problem(WRONG, f"{name}[{at}] is {got.flat[at]} {when} and must be {wanted.flat[at]} (serial)")
    return None


def _dependence(first: Mapping[str, Array], other: Mapping[str, Array], case: Witness) -> Problem | None:
    """The first output that differs between two orders."""
    for name, array in first.items():
        raw, there = (x.reshape(-1).view(np.uint8) for x in (array, other[name]))
        if (off := np.flatnonzero(raw != there)).size:
            at = int(off[0]) // array.itemsize
            words = f"{name}[{at}] is {array.flat[at]} in order {case.order}, seed {case.seed}"
            return Problem(ORDER_DEPENDENT, f"{words}, and {other[name].flat[at]} in order {ORDERS[0]}")
    return None
