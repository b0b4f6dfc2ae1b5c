import ml_dtypes
import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.oracles.numerics.rounding import round_to

SMALL = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def finite_values(fmt):
    """All finite values >= 0, ascending."""
    with np.errstate(invalid="ignore"):
        values = np.arange(fmt.sign_bit, dtype=fmt.carrier).view(fmt.dtype).astype(np.float64)
    return values[np.isfinite(values)]


def same(found, wanted):
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_midpoints_and_both_neighbours(name, sign):
    fmt = FORMATS[name]
    values = finite_values(fmt)
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    even = np.where(np.arange(len(low)) % 2 == 0, low, high)  # the bit pattern is the index
    assert same(round_to(sign * middle, fmt), sign * even)
    assert same(round_to(sign * np.nextafter(middle, 0.0), fmt), sign * low)
    assert same(round_to(sign * np.nextafter(middle, np.inf), fmt), sign * high)


@pytest.mark.parametrize("name", SMALL)
def test_every_value_rounds_to_itself(name):
    fmt = FORMATS[name]
    values = np.concatenate([finite_values(fmt), -finite_values(fmt)])
    assert same(round_to(values, fmt), values)


@pytest.mark.parametrize(
    ("name", "threshold", "at", "beyond"),
    [
        ("float16", 65520.0, np.inf, np.inf),
        ("float8_e5m2", 61440.0, np.inf, np.inf),
        ("float8_e4m3fn", 464.0, 448.0, np.nan),
        ("bfloat16", 2.0**128 - 2.0**119, np.inf, np.inf),
        ("float32", 2.0**128 - 2.0**103, np.inf, np.inf),
    ],
)
def test_overflow_threshold(name, threshold, at, beyond):
    fmt = FORMATS[name]
    x = np.array([np.nextafter(threshold, 0), threshold, np.nextafter(threshold, np.inf), 1e300, np.inf])
    assert same(np.abs(round_to(-x, fmt).astype(np.float64)), np.array([fmt.max, at, beyond, beyond, beyond]))


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.is_float])
def test_special_values_and_shapes(name):
    fmt = FORMATS[name]
    found = round_to(np.array([[0.0, -0.0], [np.nan, fmt.eta]]), fmt)
    assert found.shape == (2, 2)
    assert found.dtype == fmt.dtype
    assert same(found, np.array([[0.0, -0.0], [np.nan, fmt.eta]]))
    assert round_to(np.float64(1.0), fmt).shape == ()
    assert round_to(np.zeros((0, 3)), fmt).shape == (0, 3)


def test_ml_dtypes_alone_would_round_twice():
    x = np.array([np.nextafter(1.0 + 2.0**-8, 2.0)])  # just above a midpoint of bfloat16
    assert x.astype(ml_dtypes.bfloat16)[0] == 1.0
    assert round_to(x, FORMATS["bfloat16"])[0] == 1.0 + 2.0**-7


def test_integers_are_refused():
    with pytest.raises(UsageError, match="int8 is no float format"):
        round_to(np.zeros(1), FORMATS["int8"])
