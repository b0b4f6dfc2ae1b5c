"""What torch finds of two outputs where they lie is what numpy finds on the host; on a GPU too, where there is one."""

import numpy as np
import pytest

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.oracles.large.suspects import MOST, Room, sizes, suspects

torch = pytest.importorskip("torch")

from kernel_assay.oracles.device import suspects as module  # noqa: E402  it imports torch
from kernel_assay.oracles.device.suspects import DeviceRoom  # noqa: E402

needs_gpu = pytest.mark.skipif(not device_count(), reason="there is no CUDA device")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
SHAPES = [(64, 300), (3, 5, 70), (1000,), (9, 1), (1, 3000), ()]


def values(dtype, shape, seed=1, scale=3.0):
    random = np.random.default_rng(seed)
    fmt = format_of(dtype)
    made = random.standard_normal(shape) * scale
    with np.errstate(all="ignore"):
        return np.asarray((made if fmt.is_float else np.abs(made) * 7).astype(fmt.dtype))


def nudged(x, seed=2):
    """A peer: the neighbour of some elements."""
    bits = x.copy().reshape(-1).view(format_of(x.dtype).carrier)
    some = np.random.default_rng(seed).random(bits.size) < 0.3
    bits[some] ^= 1
    return bits.view(x.dtype).reshape(x.shape)


def there(x, device):
    carrier = x.reshape(-1).view(f"i{x.itemsize}").reshape(x.shape)
    return torch.from_numpy(carrier.copy()).to(device).view(getattr(torch, format_of(x.dtype).name))


def both(x, y, device, *, bitwise=False, slab=module.SLAB, want=None):
    """What the host finds, and what the device finds in the same room; want: a reference in place of the peer."""
    with np.errstate(all="ignore"):
        rows, columns = sizes(y)
        room = Room(1e-3, 1e-30, rows, columns, bitwise)
        here = suspects(x, y, room)
        sent = (torch.from_numpy(np.asarray(part).copy()).to(device) for part in (rows, columns))
        other = there(y, device) if want is None else torch.from_numpy(want).to(device)
        found = module.suspects(there(x, device), other, DeviceRoom(1e-3, 1e-30, *sent, bitwise), MOST, slab)
    return here, found


def assert_same(here, found):
    assert found.at.tolist() == here.at.tolist()
    assert found.ratio.tolist() == here.ratio.tolist()
    assert found.beyond == here.beyond


@devices
@pytest.mark.parametrize("dtype", sorted(FORMATS))
@pytest.mark.parametrize("shape", SHAPES)
def test_it_finds_what_the_host_finds(dtype, shape, device):
    x = values(dtype, shape)
    assert_same(*both(x, nudged(x), device))
    assert_same(*both(x, nudged(x), device, bitwise=True))
    here, found = both(x, x.copy(), device)
    assert (found.at.size, found.beyond) == (0, 0)
    assert_same(here, found)


@devices
@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_one_wrong_element_is_the_first_suspect(dtype, device):
    x = values(dtype, (300, 400))
    y = nudged(x)
    x[123, 45] = format_of(dtype).max if FORMATS[dtype].is_float else 127
    here, found = both(x, y, device)
    assert found.at[0] == 123 * 400 + 45
    assert_same(here, found)


@devices
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
def test_nan_and_inf_are_met_as_on_the_host(dtype, device):
    x = values(dtype, (50, 60))
    y = x.copy()
    x[3], y[3, ::2] = np.nan, np.nan
    x[7, 7], y[8, 8], x[9, 9], y[9, 9], x[10, 10], y[10, 10] = np.inf, -np.inf, np.inf, np.inf, np.inf, -np.inf
    here, found = both(x, y, device)
    assert found.beyond == 30 + 3
    assert_same(here, found)


@devices
def test_of_too_many_equal_ones_the_same_are_taken(device):
    x = values("float32", (200, 300))
    y = x.copy()
    x[:] = np.nan
    here, found = both(x, y, device)
    assert (len(found.at), found.beyond) == (MOST, 60000)
    assert_same(here, found)


@devices
def test_slabs_of_rows_are_put_together(device):
    x = values("float32", (200, 300))
    y = nudged(x)
    assert_same(*both(x, y, device, slab=1000))


@devices
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_a_reference_is_rounded_first(dtype, device):
    want = np.random.default_rng(3).standard_normal((70, 80)) * (1 if FORMATS[dtype].is_float else 1000)
    want = want if FORMATS[dtype].is_float else np.rint(want)
    y = want.astype(format_of(dtype).dtype)
    x = y.copy()
    x[12, 34] += 1
    here, found = both(x, y, device, want=want)
    assert found.at.tolist() == [12 * 80 + 34]
    assert_same(here, found)
    assert both(y, y, device, want=want, bitwise=True)[1].at.size == 0
    assert both(x, y, device, want=want, bitwise=True)[1].ratio.tolist() == [np.inf]


@devices
@pytest.mark.parametrize("dtype", sorted(FORMATS))
@pytest.mark.parametrize("shape", [*SHAPES, (0, 4), (4, 0)])
def test_sizes_are_those_of_the_host(dtype, shape, device):
    y = values(dtype, shape)
    if FORMATS[dtype].is_float and y.ndim == 2 and y.size:
        y[0, 0] = np.nan
    for mine, due in zip(module.sizes(there(y, device)), sizes(y), strict=True):
        assert mine.shape == due.shape
        np.testing.assert_allclose(mine.cpu().numpy(), due, rtol=1e-12)
