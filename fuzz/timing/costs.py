"""The work of a case: bytes that must be moved, and arithmetic operations, by which times become rates."""

from __future__ import annotations

import math

from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.checking.large_policy import bytes_of as bytes_of  # noqa: PLC0414  one place for both
from kernel_assay.oracles.spec.contract import Contract


def operations_of(contract: Contract, case: Case) -> int:
    """Count arithmetic operations: two for each product and its sum, else one for each element of the largest tensor."""
    if contract.work is not None:
        return 2 * contract.work(contract.dims_of(case))
    shapes = [t.shape for t in case.tensors.values()]
    shapes += [spec.shape for spec in contract.output_specs(case).values()]
    return max(map(math.prod, shapes))
