"""Make the cells of a matrix, and refuse what its definition names and nobody has."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TypeVar

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.reference_place import ReferencePlace
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.matrix_record import ANY, AXES, BUILTIN, Cell, CellResult, Standing
from kernel_assay.fuzz.checking.selection import UserKernels, of_described_dtype
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.checking.user_references import add_reference
from kernel_assay.fuzz.matrix.spec import Definition, Expected, Kernel, Where
from kernel_assay.fuzz.planning.plan import fitting_shapes, layouts_of, with_layouts
from kernel_assay.fuzz.timing.shapes import NAMES, shape_set
from kernel_assay.kernels.backend_registry import loader_of, on_gpu
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import add_contract, contract_of, origin_of
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract

_PREFIX = f"{BUILTIN}:"
_W = TypeVar("_W", bound=Where)


@dataclass(frozen=True)
class Cells:
    """The cells of a definition, whose own ops are known from then on. Raises UsageError for what nobody has."""

    definition: Definition
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    @cached_property
    def ops(self) -> tuple[str, ...]:
        """Names of all ops."""
        matrix, at = self.definition.matrix, self.definition.at
        names = []
        for number, op in enumerate(matrix.contracts):
            with about(at("contracts", number)):
                names.append(add_contract(Path(self.definition.beside(op))).name)
        for number, op in enumerate(matrix.references):
            with about(at("references", number)):
                names.append(add_reference(self.definition.beside(op)).name)
        for number, op in enumerate(matrix.ops):
            with about(at("ops", number)):
                contract_of(op)
        if not matrix.ops and not names:
            raise UsageError(f"{at('ops')}: a matrix needs an op: name some under ops, references or contracts")
        return tuple(dict.fromkeys((*matrix.ops, *names)))

    @cached_property
    def own(self) -> dict[str, tuple[str, Subject]]:
        """A person's own kernels, by how they are written: what to call them elsewhere, and what is known of them."""
        found = {}
        for number, said in enumerate(self.definition.matrix.subjects):
            text = _text(said)
            if text == BUILTIN or text.startswith(_PREFIX):
                continue
            with about(self.definition.at("subjects", number)):
                place = self.definition.beside(text)
                (subject,) = UserKernels((place,)).subjects((said.op,) if isinstance(said, Kernel) else self.ops)
                found[text] = place, subject if self.definition.matrix.dtypes else of_described_dtype(subject)
        return found

    def shapes(self, cell: Cell) -> tuple[Dims, ...]:
        """The extents of a cell's cases; none: they are drawn."""
        contract, own = contract_of(cell.op), self.definition.matrix.shape_sets
        if cell.shapes in own or cell.shapes == ANY:
            return tuple(dims for dims in own.get(cell.shapes, ()) if set(dims) == set(contract.dims))
        return shape_set(contract, cell.shapes)

    def plan(self, only: Sequence[str] = ()) -> list[CellResult]:
        """All cells, in order; those that are skipped, cannot run here or are not asked for say so.

        only: patterns as `device=cpu`. Raises UsageError for an entry that fits no cell.
        """
        matrix = self.definition.matrix
        self._must_be_known()
        cells = list({cell.name: cell for cell in self._every()}.values())
        self._must_be_used(cells)
        for kind, entries in (("include", matrix.include), ("exclude", matrix.exclude)):
            self._must_fit(kind, entries, cells)
        cells = [c for c in cells if not matrix.include or _first(matrix.include, c)]
        cells = [c for c in cells if not _first(matrix.exclude, c)]
        for kind, some in (("skip", matrix.skip), ("xfail", matrix.xfail)):
            self._must_fit(kind, some, cells)
        if not cells:
            raise UsageError(f"{self.definition.path}: no cell is left; take something out of include or exclude")
        if not any(_asked(cell, only) for cell in cells):
            raise UsageError(f"no cell of {self.definition.path} is one of --only {' --only '.join(only)}")
        return [self._planned(cell, _asked(cell, only)) for cell in cells]

    def expected(self, cell: Cell) -> Expected | None:
        """The entry that says that a cell fails."""
        return _first(self.definition.matrix.xfail, cell)

    def expired(self) -> Iterator[str]:
        """Yield a sentence for each entry whose time is over."""
        for number, entry in enumerate(self.definition.matrix.xfail):
            if entry.until < self.today:
                place = self.definition.at("xfail", number)
                yield f"{place}: it was expected until {entry.until} ({entry.issue}): repair that, or move the date"

    def _planned(self, cell: Cell, asked: bool) -> CellResult:
        """The record of a cell before anything is run."""
        kernel = [self.own[cell.subject][1].source_digest] if cell.subject in self.own else []
        made = CellResult(cell=cell, source=" ".join([*kernel, *_digest(origin_of(cell.op))]))
        if not asked:
            return made.but(reason="left out by --only", wanted=False)
        if skip := _first(self.definition.matrix.skip, cell):
            return made.but(standing=Standing.SKIPPED, reason=skip.reason)
        if why := _unavailable(cell.backend, cell.device):
            skipped = self.definition.matrix.missing == "skip"
            return made.but(standing=Standing.SKIPPED if skipped else Standing.NOT_RUN, reason=why)
        return made

    def _every(self) -> Iterator[Cell]:
        """Yield all combinations that there are: an op has some dtypes, layouts and shapes, a kernel some of them."""
        matrix = self.definition.matrix
        for op, device in product(self.ops, matrix.devices):
            contract = contract_of(op)
            for subject, backend, kernels in self._kernels(op, device):
                for dtype, shapes, layout in product(matrix.dtypes or contract.dtypes, matrix.shapes, matrix.layouts):
                    cell = Cell(
                        op=op,
                        dtype=dtype,
                        shapes=shapes,
                        layout=layout,
                        device=device,
                        subject=subject,
                        backend=backend,
                    )
                    takers = [s for s in kernels if dtype in contract.dtypes and takes(s, dtype)]
                    if takers and self._has_shapes(cell) and _has_layout(contract, layout, takers):
                        yield cell

    def _kernels(self, op: str, device: str) -> Iterator[tuple[str, str, list[Subject]]]:
        """Yield the kernels of an op that may run on a device: what they are called, their backend, and themselves."""
        house: dict[str, list[Subject]] = {}
        for one in subjects_of(op):
            if not one.planted:
                house.setdefault(one.backend, []).append(one)
        here = not _no_device(device)
        for said in self.definition.matrix.subjects:
            text = _text(said)
            if text in self.own:
                subject = self.own[text][1]
                if subject.op == op and _ever(subject.backend, device):
                    yield text, subject.backend, [subject]
                continue
            for backend, kernels in house.items():
                named = text == _PREFIX + backend
                usable = text == BUILTIN and not (here and _unavailable(backend, device))
                if (named or usable) and _ever(backend, device):
                    yield BUILTIN, backend, kernels

    def _has_shapes(self, cell: Cell) -> bool:
        if cell.shapes == ANY:
            return True
        if found := self.shapes(cell):
            with about(self.definition.at("shape_sets", cell.shapes)):  # of those that ship only what fits is there
                fitting_shapes(contract_of(cell.op), found)
        return bool(found)

    def _must_be_known(self) -> None:
        """Raise UsageError for a name that nothing has anywhere."""
        matrix = self.definition.matrix
        known = {"dtypes": FORMATS, "layouts": (ANY, *LAYOUTS), "shapes": (ANY, *NAMES, *matrix.shape_sets)}
        for axis, names in known.items():
            for number, name in enumerate(getattr(matrix, axis)):
                if name not in names:
                    place = self.definition.at(axis, number)
                    raise UsageError(f"{place}: {name!r} is not known; the known ones are {', '.join(names)}")
        dims = {op: frozenset(contract_of(op).dims) for op in self.ops}
        for name, shapes in matrix.shape_sets.items():
            place = self.definition.at("shape_sets", name)
            if name not in matrix.shapes:
                raise UsageError(f"{place}: nothing names this set; add it to shapes")
            if not any(frozenset(shape) in dims.values() for shape in shapes):
                every = "; ".join(f"{op}: {', '.join(contract_of(op).dims)}" for op in self.ops)
                raise UsageError(f"{place}: no shape has all dims of an op ({every})")
        for number, said in enumerate(map(_text, matrix.subjects)):
            if said.startswith(_PREFIX):
                with about(self.definition.at("subjects", number)):
                    loader_of(said.removeprefix(_PREFIX))

    def _must_be_used(self, cells: Sequence[Cell]) -> None:
        """Raise UsageError for a value of an axis that no cell has."""
        matrix = self.definition.matrix
        there = {
            "subjects": {name for cell in cells for name in (cell.subject, _PREFIX + cell.backend)},
            "shapes": {cell.shapes for cell in cells},
            "layouts": {cell.layout for cell in cells},
            "dtypes": {cell.dtype for cell in cells},
            "devices": {cell.device for cell in cells},
            "ops": {cell.op for cell in cells},
        }
        for axis, used in there.items():
            for number, value in enumerate(self.ops if axis == "ops" else map(_text, getattr(matrix, axis))):
                if value not in used:
                    place = self.definition.at(axis, number)
                    raise UsageError(f"{place}: no cell has {value!r}, for nothing else in the matrix goes with it")

    def _must_fit(self, kind: str, entries: Iterable[Where], cells: Sequence[Cell]) -> None:
        for number, entry in enumerate(entries):
            if not any(entry.fits(cell) for cell in cells):
                raise UsageError(f"{self.definition.at(kind, number)}: it fits no cell")


def _text(said: str | Kernel) -> str:
    return said.file if isinstance(said, Kernel) else said


def _first(entries: Iterable[_W], cell: Cell) -> _W | None:
    return next((entry for entry in entries if entry.fits(cell)), None)


def _digest(origin: str) -> list[str]:
    """A digest of the file of an op of one's own; none of a built-in one."""
    if reference := ReferencePlace.read(origin):
        return [reference.digest]
    return [hashlib.sha256(Path(origin).read_bytes()).hexdigest()[:16]] if origin else []


def _asked(cell: Cell, only: Collection[str]) -> bool:
    """Whether a cell fits all that is asked for. Raises UsageError for a pattern of no axis."""
    for text in only:
        axis, equals, pattern = text.partition("=")
        if axis not in AXES or not equals:
            raise UsageError(f"--only {text} names no axis; write AXIS=PATTERN, of {', '.join(AXES)}")
        if not fnmatchcase(getattr(cell, axis), pattern):
            return False
    return True


def _has_layout(contract: Contract, layout: str, takers: Sequence[Subject]) -> bool:
    """Whether some input can lie so, for one of these kernels."""
    if layout == ANY:
        return True
    with suppress(UsageError):
        return bool(with_layouts(contract, (layout,), layouts_of(contract, takers)))
    return False


def _ever(backend: str, device: str) -> bool:
    """Whether a backend has anything to do with a kind of device."""
    return device == "cpu" or backend in on_gpu()


def _no_device(device: str) -> str:
    """Why there is no such device; empty: there is."""
    try:
        places_of(device)
    except UsageError as error:
        return str(error)
    return ""


def _unavailable(backend: str, device: str) -> str:
    """Why kernels of a backend cannot run on a device, in a sentence; empty: they can."""
    loader = loader_of(backend) if device == "cpu" else on_gpu()[backend]
    why = loader.unavailable()
    return _no_device(device) or (f"backend {backend!r} is not available here, because {why}" if why else "")
