"""The work of a case: bytes that must be moved, and arithmetic operations, by which times become rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import Peaks, Timed
from kernel_assay.kernels.sandbox.peaks import TF32
from kernel_assay.oracles.spec.contract import Contract

_FASTER = 1.05
"""Times a measured peak, from where on a time cannot be true."""
_FACTORS = {"m", "n", "k", "blocks"}
"""Dims of products of matrices and vectors."""


def bytes_of(contract: Contract, case: Case) -> int:
    """Count the bytes of inputs and outputs; of a table that is indexed no more rows than there are indices."""
    return sum(_input_bytes(contract, case, name, t) for name, t in case.tensors.items()) + _output_bytes(
        contract, case
    )


def least_bytes_of(contract: Contract, case: Case) -> int:
    """Count those that must be moved: of an op of one's own the outputs, as nobody knows what of its inputs is read."""
    return _output_bytes(contract, case) if contract.origin else bytes_of(contract, case)


def _output_bytes(contract: Contract, case: Case) -> int:
    return sum(math.prod(s.shape) * format_of(s.dtype).dtype.itemsize for s in contract.output_specs(case).values())


def _input_bytes(contract: Contract, case: Case, name: str, recipe: TensorRecipe) -> int:
    spec, shape = contract.inputs[name], list(recipe.shape)
    for other, indices in case.tensors.items():
        axis = contract.inputs[other].below
        if axis in spec.axes:
            at = spec.axes.index(axis)
            shape[at] = min(shape[at], math.prod(indices.shape))
    elements = min(math.prod(shape), LAYOUTS[recipe.layout](recipe.shape).length)  # broadcast ones have fewer
    return elements * format_of(recipe.dtype).dtype.itemsize


def operations_of(contract: Contract, case: Case) -> int:
    """Count arithmetic operations: two for each product and its sum, else one for each element of the largest one."""
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
        (
            one.case.id,
            one.subject,
        ): f"it is faster than this machine can be: a call took {one.median:.3g} s, and by its "
        f"measured peaks it takes {peaks.possible_seconds(one, cores):.3g} s at least"
        for one in timed
        if one.ranked and one.median * _FASTER < peaks.possible_seconds(one, cores)
    }
