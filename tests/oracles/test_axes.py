"""Axes: how many elements a tensor has, by all of them together and one by one."""

import math

import numpy as np
import pytest

from oracles.axes import product_of, shape_of
from oracles.bounds import classes_of
from oracles.contract import INTERVAL, NAN, NINF, PINF

DIMS = {"rows": 3, "half": 5, "heads": 2, "group": 7}


@pytest.mark.parametrize(
    "axes", [(), ("rows",), ("rows", "half*2"), ("heads*group", "rows", "half*2*{part}"), ("rows", "half*q4_0")]
)
def test_the_product_of_all_axes_counts_the_elements(axes):
    names, factor = product_of(axes, {"part": 2})
    assert math.prod(DIMS[name] for name in names) * factor == math.prod(shape_of(axes, DIMS, {"part": 2}))


@pytest.mark.parametrize("shape", [(), (4,), (2, 2)])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1.0])
def test_each_element_may_be_of_its_own_class(shape, odd):
    values = np.full(shape, odd)
    names = {np.inf: PINF, -np.inf: NINF, 1.0: INTERVAL}
    mask = classes_of(values)
    assert (mask.dtype, mask.shape, set(mask.reshape(-1).tolist())) == (np.uint8, shape, {names.get(odd, NAN)})


def test_classes_are_told_apart_in_one_array():
    assert classes_of(np.array([0.0, np.nan, np.inf, -np.inf])).tolist() == [INTERVAL, NAN, PINF, NINF]
