"""The ends of kernels: launches that a GPU refuses, numbers that do not fit, at sizes nobody runs.

Tensors of 2**31 and 2**32 elements, of 2**15 and 2**16 rows and blocks, are mapped, not made, and a few blocks at
either end of the grid are emulated over them in check mode (kernels/worker/stretched.py). What goes wrong there, and
not with few elements, is true of that size; what takes too long, or is more than any GPU holds, is left alone. It is a
warning and no finding: no contract asks for it. Of Triton only 16 bits are looked at: what a program has for its own
number are 32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.interpreter_mends import INTERPRETED
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.oracles.large.parts import BEYOND
from kernel_assay.oracles.spec.axes import Dims, product_of, shape_of
from kernel_assay.oracles.spec.contract import Contract

SECONDS = 10.0
"""For all kernels of a run."""
LAUNCH_SECONDS = 3.0
"""For one launch."""
LAUNCHES = (1 << 16, 1 << 22, (1 << 31) - 1)
"""Extents of one dimension, up to what an int holds: a grid ends at 65,535 along y and z."""
BESIDE = 1 << 10
"""The extent of another dimension: a kernel must not loop over 2**31 elements in a thread."""
BEHIND = 4
"""How far the long dimension goes behind that: what wraps meets the first blocks, which are run, too."""
MOST_BYTES = 1 << 37
"""Of all tensors together: more than a GPU has."""
MOST_WORK = 1 << 9
"""Elements for each thread of the grid; who has more would take too long."""
MOST_TRIED = 256
"""Choices of dtypes and attributes."""
FEW = 64
"""The long dimension, where nothing may be wrong yet; and others beside one that is narrow."""
NARROW = (1 << 15, 1 << 16)
"""Rows, or blocks, that an index of 16 bits counts, with a sign and without."""


def noted(campaign: Campaign, examiner: Examiner, seconds: float = SECONDS) -> Campaign:
    """The campaign with what is wrong with a person's own kernels at such sizes, as far as the time goes."""
    deadline = time.monotonic() + min(seconds, SECONDS)
    mine = [s for s in campaign.subjects if s.is_own and not campaign.checked.get(s.key)]
    found = {s.key: tuple(limits(examiner, s, deadline)) for s in mine}
    return campaign.but(limits={key: said for key, said in found.items() if said})


def limits(examiner: Examiner, subject: Subject, deadline: float) -> Iterator[str]:
    """Yield what is wrong with a kernel, a sentence for each dimension that it is wrong with.

    Nothing of one whose blocks are not emulated, nor of an op whose outputs' shapes have to be computed.
    """
    if not _is_emulated(subject) or examiner.contracts[subject.op].elsewhere is not None:
        return
    emulated = examiner if subject.device == "cpu" or examiner.beside is None else examiner.beside
    ask = _settled(_Ask(emulated.sandbox, examiner.contracts[subject.op], subject, deadline))
    beyond = (_launches(ask.contract), chain(_narrow(ask), _indices(ask)))
    for scenarios in beyond if subject.backend == "cuda" else (_narrow(ask),):
        wrong: set[str] = set()
        for dim, dims, fewer in scenarios:
            if dim not in wrong and (said := ask.wrong(dims, fewer)):
                wrong.add(dim)
                yield f"{_words(dims)}: {said}"


def _is_emulated(subject: Subject) -> bool:
    """Say whether single blocks of it can be run on the CPU."""
    return subject.backend == "cuda" or (subject.backend, subject.device) == (INTERPRETED, "cpu")


@dataclass(frozen=True, slots=True)
class _Ask:
    """A kernel, and who emulates it."""

    sandbox: Sandbox
    contract: Contract
    subject: Subject
    deadline: float
    attrs: Mapping[str, Scalar] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """As `attrs`, those of each case."""

    def wrong(self, dims: Dims, fewer: Dims | None) -> str:
        """The fault of these extents, and not of fewer; without those it is not run."""
        said = self._answer(dims, run=False)
        if fewer is None:
            return said.get("refused", "")
        if "wrong" in said:
            return said["wrong"]
        threads = int(said.get("threads", 0))
        if math.prod(dims.values()) > MOST_WORK * threads or "threads" not in self._answer(fewer, run=True):
            return ""
        return self._answer(dims, run=True).get("wrong", "")

    def blocks(self, dims: Dims) -> int:
        """Along the longest side of the grid that these extents have; -1: they are not launched."""
        return int(self._answer(dims, run=False).get("blocks", -1))

    def _case(self, dims: Dims) -> Case:
        """A case of zeros that nobody makes."""
        contract, needed = self.contract, self.sandbox.needs.get(self.subject.key, ())
        inputs = {n: i for n, i in contract.inputs.items() if n not in contract.optional or n in needed}
        shapes = {name: shape_of(spec.axes, dims, self.attrs) for name, spec in inputs.items()}
        tensors = {name: TensorRecipe(shape=shape, dtype=self.dtypes[name]) for name, shape in shapes.items()}
        return Case(op=contract.name, tensors=tensors, attrs=dict(self.attrs))

    def _answer(self, dims: Dims, *, run: bool) -> dict[str, str]:
        case = self._case(dims)
        shapes = {name: (spec.shape, spec.dtype) for name, spec in self.contract.output_specs(case).items()}
        shapes |= {name: (recipe.shape, recipe.dtype) for name, recipe in case.tensors.items()}
        size = sum(math.prod(shape) * format_of(dtype).bits // 8 for shape, dtype in shapes.values())
        most = LAUNCH_SECONDS if run else SECONDS  # a new worker has to load the kernel first
        left = min(most, self.deadline - time.monotonic())
        if left <= 0.0 or size > MOST_BYTES:
            return {}
        return self.sandbox.stretch(self.subject.key, {"tensors": shapes, "attrs": case.attrs, "run": run}, left)


def _settled(ask: _Ask) -> _Ask:
    """The same with dtypes and attributes that the kernel takes, as near to the first of each as may be."""
    contract, few = ask.contract, _extents(ask.contract, dict.fromkeys(ask.contract.dims, FEW))
    first = next(iter(contract.inputs))
    taken = [v for v in contract.variants if not ask.subject.dtypes or v[first] in ask.subject.dtypes]
    every = (dict(zip(contract.attrs, values, strict=True)) for values in product(*contract.attrs.values()))
    asks = [replace(ask, attrs=a, dtypes=v) for a, v in islice(product(every, taken), MOST_TRIED)]
    return next((one for one in asks if one.blocks(few) >= 0), asks[0])


def _launches(contract: Contract) -> Iterator[tuple[str, Dims, None]]:
    """One dimension long, all others short."""
    for dim, extent in ((d, n) for d in contract.dims for n in LAUNCHES):
        yield dim, _extents(contract, {dim: extent}), None


def _narrow(ask: _Ask) -> Iterator[tuple[str, Dims, Dims]]:
    """More of one dimension than an index of 16 bits counts, and as much of it as makes so many blocks."""
    for dim, others, count in product(ask.contract.dims, (1, FEW), NARROW):
        base = {name: min(others, d.high) for name, d in ask.contract.dims.items()}
        few, many = (_extents(ask.contract, {**base, dim: extent}) for extent in (FEW, count + BEHIND))
        yield dim, many, few
        if (blocks := ask.blocks(many)) > FEW:
            more = _extents(ask.contract, {**base, dim: many[dim] * count // (blocks - 1) + BEHIND})
            yield from [(dim, more, few)] if more != many else []


def _indices(ask: _Ask) -> Iterator[tuple[str, Dims, Dims]]:
    """A tensor with more elements than an index of 32 bits counts; the same with few."""
    contract, attrs = ask.contract, ask.attrs
    for count in BEYOND:
        for axes in contract.axes:
            names, factor = product_of(axes, attrs)
            for dim in dict.fromkeys(names):
                widest = max((n for n in names if n != dim), key=lambda n: contract.dims[n].high, default="")
                base = _extents(contract, {widest: min(BESIDE, contract.dims[widest].high)} if widest else {})
                rest = factor * math.prod(base[name] for name in names if name != dim)
                yield (
                    dim,
                    _extents(contract, {**base, dim: count // rest + BEHIND}),
                    _extents(contract, {**base, dim: FEW}),
                )


def _extents(contract: Contract, said: Dims) -> Dims:
    """All dimensions, as small as may be where nothing is said; multiples of what they must be."""
    least = {name: max(1, d.low) for name, d in contract.dims.items()}
    return {
        n: -(-extent // contract.dims[n].multiple) * contract.dims[n].multiple
        for n, extent in (least | dict(said)).items()
    }


def _words(dims: Dims) -> str:
    return ", ".join(f"{name} = {extent:,}" for name, extent in dims.items() if extent > 1)
