"""Products in any order: the limits hold whichever factors a kernel multiplies first, and are no wider than need be."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.numerics.estimate import input_of
from kernel_assay.oracles.numerics.following.intervals import Arithmetic
from kernel_assay.oracles.spec.contract import Question

SPREAD = 38
"""Largest decimal exponent of a factor."""
NUMBERS = st.builds(
    lambda digits, exponent: np.float32(digits * 10.0**exponent),
    st.sampled_from([-9.7, -1.0, 0.0, 1.0, 3.3]),
    st.integers(-SPREAD, SPREAD - 1),
)


def arithmetic(factors):
    """The arithmetic of float32, and the factors as a reference gets them."""
    inputs = {f"x{i}": np.array([x], np.float32) for i, x in enumerate(factors)}
    case = Case(op="op", tensors={name: TensorRecipe(shape=(1,), dtype="float32") for name in inputs})
    q = Question(case=case, inputs=inputs, attrs={}, want={}, numerics=Numerics().spelled_out("float32"))
    a = Arithmetic.of(q)
    return [input_of(a, name) for name in inputs]


def formula(factors, inverse):
    """A product from left to right, some of it divided by."""
    made = factors[0]
    for x, divides in zip(factors[1:], inverse[1:], strict=True):
        made = made / x if divides else made * x
    return made


@st.composite
def orders(draw):
    """Factors, which of them divide, and the order in which a kernel takes them."""
    factors = draw(st.lists(NUMBERS, min_size=3, max_size=5))
    inverse = [False, *draw(st.lists(st.booleans(), min_size=len(factors) - 1, max_size=len(factors) - 1))]
    return factors, inverse, draw(st.permutations(range(len(factors)))), draw(st.integers(0, 4))


def multiplied(factors, inverse, order, split):
    """In float32: from left to right, divisors as reciprocals or together below a line; or in two groups."""
    one = np.float32(1)
    terms = [one / factors[i] if inverse[i] else factors[i] for i in order]
    if split == 0:
        return reduce(np.multiply, terms)
    if split == 1:
        above = [factors[i] for i in order if not inverse[i]]
        below = [factors[i] for i in order if inverse[i]]
        return reduce(np.multiply, above, one) / reduce(np.multiply, below, one)
    if split >= len(terms):
        return reduce(np.multiply, reversed(terms))
    return reduce(np.multiply, terms[:split]) * reduce(np.multiply, terms[split:])


def accepts(span, made):
    """Whether a number lies within its limits, or may be anything."""
    (low,), (high,), (value,) = span.low, span.high, span.value
    if np.isneginf(low) and np.isposinf(high):
        return True
    step = 2.0**-149 + 2.0**-24 * abs(value)  # the output is rounded after all
    return bool(np.isnan(made) and np.isnan(low)) or low - step <= made <= high + step or made in {low, high}


@settings(max_examples=600, deadline=None)
@given(orders())
def test_an_honest_product_lies_within_the_limits(given):
    factors, inverse, order, split = given
    if any(x == 0 and i for x, i in zip(factors, inverse, strict=True)):
        return  # a pole, which has no limits at all
    with np.errstate(all="ignore"):
        span = formula(arithmetic(factors), inverse).span
        made = multiplied(factors, inverse, order, split)
    assert accepts(span, made), (span, made)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.015625, 100.0, width=32), min_size=3, max_size=5))
def test_the_limits_of_plain_numbers_are_those_of_their_roundings(factors):
    (value,), (low,), (high,) = formula(arithmetic(map(np.float32, factors)), [False] * len(factors)).span
    assert high - low <= 4 * len(factors) * 2.0**-24 * abs(value)


@pytest.mark.parametrize(
    "move", [lambda x: x.reshape(1, 1), lambda x: np.broadcast_to(x, (3, 1)), lambda x: x[:, None].T], ids="rbt"
)
def test_factors_are_known_through_moves(move):
    x, r, w = arithmetic([9.2e18, 1.1e-19, 1.4e-38])
    assert move(x * r * 1.0).product is not None
    assert (move(x * r) * w).span.low.min() == 0.0  # r * w is less than any number


def test_what_is_assigned_meanwhile_is_no_factor():
    x, r, w = arithmetic([9.2e18, 1.1e-19, 1.4e-38])
    made = x * r
    r[...] = 1.0
    assert (made * w).span.low.min() > 0.0
