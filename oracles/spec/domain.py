"""The cases that an op may be asked: what lies within the ranges of its contract, and what does not.

A case that is made from another one (by a move of shrinking, as a neighbour, under a law, in another dtype) may leave
them, and then a reference may fail or a kernel fail for what nobody has promised. Every such case is dropped by
`stays`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.contract import Contract, Input


def outside(contract: Contract, case: Case) -> frozenset[str]:
    """Say what of a case the contract does not allow, in a few words each; nothing if it allows all of it.

    Numbers as attributes are free: a contract names those that are tried, and no range.
    """
    try:
        contract.check(case)
    except UsageError as error:
        return frozenset({str(error)})
    dims, attrs = contract.dims_of(case), contract.attrs_of(case)
    found = [*_dims(contract, dims), *_choices(contract, attrs)]
    for name, recipe in case.tensors.items():
        found += (f"{name} {what}" for what in _tensor(contract.inputs[name], recipe, dims, attrs))
    return frozenset(found)


def stays(contract: Contract, case: Case, granted: Callable[[], AbstractSet[str]]) -> bool:
    """Whether a case is within its contract, but for what is granted: what is outside of the case it comes from."""
    found = outside(contract, case)
    return not found or found <= granted()


def _dims(contract: Contract, dims: Dims) -> Iterator[str]:
    for name, extent in dims.items():
        dim = contract.dims[name]
        if extent < dim.low:
            yield f"{name} is below {dim.low}"
        if extent > dim.high:
            yield f"{name} is above {dim.high}"
        if extent % dim.multiple:
            yield f"{name} is no multiple of {dim.multiple}"


def _choices(contract: Contract, attrs: Attrs) -> Iterator[str]:
    for name, values in contract.attrs.items():
        if isinstance(attrs[name], bool | str) and not _listed(attrs[name], values):
            yield f"{name} has another value"


def _listed(value: Scalar, values: tuple[Scalar, ...]) -> bool:
    return any(value == one and type(value) is type(one) for one in values)


def _tensor(spec: Input, recipe: TensorRecipe, dims: Dims, attrs: Attrs) -> Iterator[str]:
    if spec.layouts and recipe.layout not in spec.layouts:
        yield "has another layout"
    if spec.distributions and recipe.fill.distribution not in spec.distributions:
        yield "has another distribution"
    if recipe.specials and not (spec.specials and not spec.ranged):
        yield "has special values"
    due = spec.params(dims, attrs)
    if any(recipe.fill.params.get(name) != value for name, value in due.items()):
        yield "knows another range"
    if spec.ranged and (recipe.fill.scale != 1.0 or recipe.fill.params.get("shift")):
        yield "is moved out of its range"
    if (spec.ranged or spec.counts) and not all(_within(spec, recipe, bits, due) for _, bits in recipe.pokes):
        yield "has elements out of its range"


def _within(spec: Input, recipe: TensorRecipe, bits: int, due: dict[str, int | float]) -> bool:
    fmt = format_of(recipe.dtype)
    with np.errstate(invalid="ignore"):
        value = float(np.array(bits, fmt.carrier).view(fmt.dtype)[()])
    return 0 <= value < due["below"] if spec.counts else due["low"] <= value <= due["high"]
