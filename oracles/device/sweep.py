"""Judging billions of outputs: on the host by the contract, on a GPU by sweep.cu, of which this makes the tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import Tensors, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics, TensorSpec
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.failure_mask import default_accept, failing
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.activations import kept, silu, silu_error, widened
from kernel_assay.oracles.spec.contract import Question, Reals

LISTED = 16
"""Of the elements that fail, so many are named."""
ROW = 256
"""Elements of a row of a part (corpus.inputs.distributions.every_bits)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Faults of a part."""

    failed: int
    """How many elements."""
    listed: tuple[tuple[int, int], ...]
    """Number among all inputs, and bits of the output, of some of them."""
    rho: float = 0.0
    """The largest share of its budget that an element used which passed, where that is known."""


class Judge(ABC):
    """Judges part after part of one domain."""

    @abstractmethod
    def judge(self, case: Case) -> Found:
        """Find what is wrong with the output that is there now. case: the part."""


def first_of(case: Case) -> int:
    """The number that the first element of a part has among all inputs."""
    recipe = next(iter(case.tensors.values()))
    return (recipe.origin[0] if recipe.origin else 0) * ROW


class HostJudge(Judge):
    """Judge a part by the contract."""

    def __init__(self, shared: Array, numerics: Numerics) -> None:
        self._shared, self._numerics = shared, numerics

    def judge(self, case: Case) -> Found:
        """Every element; what is close to its budget is for others to decide."""
        contract = contract_of(case.op)
        reference = Reference(contract, case, materialize_all(case))
        ((name, spec),) = contract.output_specs(case).items()
        got = output_in(self._shared, spec)
        with np.errstate(all="ignore"):
            bad = np.flatnonzero(failing(got, reference.want[name], reference.budget(self._numerics)[name]))
        bits = got.reshape(-1)[bad[:LISTED]].view(format_of(spec.dtype).carrier)
        numbers = bad[:LISTED] + first_of(case)
        return Found(bad.size, tuple(zip(numbers.tolist(), bits.tolist(), strict=True)))


def output_in(shared: Array, spec: TensorSpec) -> Array:
    """The output that lies at the beginning of some memory."""
    fmt = format_of(spec.dtype)
    count = int(np.prod(spec.shape, dtype=np.int64))
    return shared[: count * fmt.dtype.itemsize].view(fmt.dtype).reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class GateTables:
    """Tables of silu_gate in float16 for sweep.cu's `gated`."""

    numbers: Reals
    """Every float16 by its bits, (65536,)."""
    act: Reals
    """silu of each of them."""
    own: Reals
    """How wrong a subject may have that, before it is multiplied."""
    wanted: Reals
    """(6, 65536): gates NaN, Inf and -Inf with every other input, then these as the other input with every gate."""
    budgets: Reals
    accepted: NDArray[np.uint8]
    u: float
    tiny: float


_CLASSES = (0x7E00, 0x7C00, 0xFC00)
"""Bits of NaN, Inf and -Inf."""


def gate_tables(numerics: Numerics) -> GateTables:
    """Make the tables by the contract's own functions. numerics: those of the subject."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    special = np.array(_CLASSES, np.uint16).view(np.float16)[:, None]
    grid = np.broadcast_to(every, (3, 1 << 16)), np.broadcast_to(special, (3, 1 << 16))
    inputs = {"gate": np.concatenate(grid[::-1]), "up": np.concatenate(grid)}
    recipe = TensorRecipe(shape=(6, 1 << 16), dtype="float16", fill=Fill(distribution="raw_bits"))
    case = Case(op="silu_gate", tensors={"gate": recipe, "up": recipe})
    contract = contract_of(case.op)
    reference = Reference(contract, case, inputs)
    with np.errstate(all="ignore"):
        want, budget = reference.want["out"], reference.budget(numerics)["out"]
        accept = default_accept(want, has_inf=True) if budget.accept is None else budget.accept
        q = _question(case, {"gate": every, "up": every}, numerics)
        act = np.asarray(silu(widened(q, "gate")), np.float64)
        own = kept(q, act, silu_error(q, q.real("gate"), act))
    return GateTables(
        every.astype(np.float64), act, own, want, np.broadcast_to(budget.error, want.shape), accept, q.u, q.tiny
    )


def _question(case: Case, inputs: Tensors, numerics: Numerics) -> Question:
    return Question(case=case, inputs=inputs, attrs={}, want={}, numerics=numerics.spelled_out(case.dtype))


DIGITS = {"float16": (10, 5), "bfloat16": (7, 8)}
"""Bits of significand and of exponent."""
