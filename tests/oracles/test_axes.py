"""Axes: how many elements a tensor has, by all of them together and one by one."""

import math

import numpy as np
import pytest

from kernel_assay.oracles.numerics.bounds import classes_of
from kernel_assay.oracles.spec.axes import dims_in, is_packed, product_of, shape_of, solve
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF

DIMS = {"rows": 3, "half": 5, "heads": 2, "group": 7}


@pytest.mark.parametrize(
    "axes", [(), ("rows",), ("rows", "half*2"), ("heads*group", "rows", "half*2*{part}"), ("rows", "half*q4_0")]
)
def test_the_product_of_all_axes_counts_the_elements(axes):
    names, factor = product_of(axes, {"part": 2})
    assert math.prod(DIMS[name] for name in names) * factor == math.prod(shape_of(axes, DIMS, {"part": 2}))


@pytest.mark.parametrize(
    ("extents", "dims"),
    [
        ([], {}),
        ([("rows", 3), ("half*2", 10)], {"rows": 3, "half": 5}),
        ([("heads", 2), ("heads*group*4", 56)], {"heads": 2, "group": 7}),
        ([("heads*group*4", 56), ("heads", 2)], {"heads": 2, "group": 7}),
        ([("heads*group", 14)], {"heads": 14, "group": 1}),
        ([("heads*group*half", 210), ("group", 7), ("half", 5)], {"heads": 6, "group": 7, "half": 5}),
        ([("heads", 0), ("heads*group", 0)], {"heads": 0, "group": 1}),
        ([("rows*q4_0", 54)], {"rows": 3}),
        ([("2", 2)], {}),
        ([("rows", 3), ("rows", 4)], None),
        ([("half*2", 9)], None),
        ([("heads", 2), ("heads*group", 7)], None),
        ([("heads", 0), ("heads*group", 7)], None),
        ([("heads", 2), ("group", 7), ("heads*group", 15)], None),
        ([("2", 3)], None),
    ],
)
def test_extents_tell_the_dims(extents, dims):
    assert solve(tuple(extents)) == dims
    if dims is not None:
        assert shape_of([axis for axis, _ in extents], dims, {}) == tuple(extent for _, extent in extents)


@pytest.mark.parametrize(
    ("axis", "packed", "dims"),
    [
        ("rows", False, ("rows",)),
        ("rows*2", False, ("rows",)),
        ("heads*group*{part}", False, ("heads", "group")),
        ("blocks*q8_1", True, ("blocks",)),
        ("blocks*{format}", True, ("blocks",)),
        ("blocks*{activations}", True, ("blocks",)),
        ("2", False, ()),
    ],
)
def test_what_an_axis_speaks_of(axis, packed, dims):
    assert is_packed(axis) is packed
    assert dims_in(axis) == dims


@pytest.mark.parametrize("shape", [(), (4,), (2, 2)])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1.0])
def test_each_element_may_be_of_its_own_class(shape, odd):
    values = np.full(shape, odd)
    names = {np.inf: PINF, -np.inf: NINF, 1.0: INTERVAL}
    mask = classes_of(values)
    assert (mask.dtype, mask.shape, set(mask.reshape(-1).tolist())) == (np.uint8, shape, {names.get(odd, NAN)})


def test_classes_are_told_apart_in_one_array():
    assert classes_of(np.array([0.0, np.nan, np.inf, -np.inf])).tolist() == [INTERVAL, NAN, PINF, NINF]
