"""Large cases: which they are, and how long one may take. Nobody but the worker makes the whole of one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.oracles.large.parts import sample
from kernel_assay.oracles.spec.contract import Contract

LARGE = 32 << 20
"""Bytes of inputs and outputs above which a case is judged by parts of it and by its peers."""
BANDWIDTH = 32 << 20
"""Bytes a second that any subject gets through, with both runs and what is compared behind them."""
RATE = 2e9
"""Multiplications a second, where the contract counts them: those of a plain loop on one core of a CPU."""


def bytes_of(contract: Contract, case: Case, outputs: Mapping[str, TensorSpec] | None = None) -> int:
    """Bytes of all inputs and outputs; outputs: what the contract says of them, where that is known already."""
    known = contract.output_specs(case) if outputs is None else outputs
    forms = [(t.shape, t.dtype) for t in case.tensors.values()]
    forms += [(spec.shape, spec.dtype) for spec in known.values()]
    return sum(math.prod(shape) * format_of(dtype).dtype.itemsize for shape, dtype in forms)


def is_large(contract: Contract, case: Case, outputs: Mapping[str, TensorSpec] | None = None) -> bool:
    """Whether a case is judged by parts. One of which no part is small enough is an ordinary one, and takes long.

    outputs: as for bytes_of.
    """
    if bytes_of(contract, case, outputs) <= LARGE:
        return False
    try:
        sample(contract, case)
    except UsageError:
        return False
    return True


def patience(contract: Contract, case: Case) -> float:
    """Seconds that an execution of a large case gets beside those that any one gets."""
    work = contract.work(contract.dims_of(case)) if contract.work else 0.0
    return bytes_of(contract, case) / BANDWIDTH + 2.0 * work / RATE
