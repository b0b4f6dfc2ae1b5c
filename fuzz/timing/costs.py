"""The work of a case: bytes that must be moved, and arithmetic operations, by which times become rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import Peaks, Timed
from kernel_assay.fuzz.checking.large_policy import bytes_of as bytes_of  # noqa: PLC0414  one place for both
from kernel_assay.kernels.sandbox.peaks import TF32
from kernel_assay.oracles.spec.contract import Contract

_FASTER = 1.05
"""Times a measured peak, from where on a time cannot be true."""
_FACTORS = {"m", "n", "k", "blocks"}
"""Dims of products of matrices and vectors."""


def operations_of(contract: Contract, case: Case) -> int:
    """Count arithmetic operations: two for each product and its sum, else one for each element of the largest tensor."""
    dims = contract.dims_of(case)
    if {"queries", "keys", "head"} <= set(dims):  # two products; masks are not counted, as is usual
        return 4 * math.prod(dims.values())
    if set(dims) <= _FACTORS and "m" in dims and len(dims) > 1:
        return 2 * math.prod(dims.values()) * (ELEMENTS if "blocks" in dims else 1)
    if contract.work is not None:
        return 2 * contract.work(dims)
    shapes = [t.shape for t in case.tensors.values()]
    shapes += [spec.shape for spec in contract.output_specs(case).values()]
    return max(map(math.prod, shapes))


def product_of(contract: Contract, subject: Subject, case: Case) -> str:
    """The dtype in which a product of matrices is made, as peaks name it; empty: it is none."""
    if not contract.product:
        return ""
    return TF32 if case.dtype == "float32" and subject.numerics.tf32 != "none" else case.dtype


def too_fast(timed: Sequence[Timed], peaks: Peaks, cores: int) -> dict[tuple[str, str], str]:
    """Find times that the measured peaks do not allow: case id and subject -> a sentence.

    cores: those that an implementation may use beside the one that was measured.
    """
    return {
        (one.case.id, one.subject): f"it is faster than this machine can be: a call took {one.median:.3g} s, and by its "
        f"measured peaks it takes {peaks.possible_seconds(one, cores):.3g} s at least"
        for one in timed
        if one.ranked and one.median * _FASTER < peaks.possible_seconds(one, cores)
    }
