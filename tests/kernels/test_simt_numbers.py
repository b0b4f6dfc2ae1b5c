"""Functions of floats where the host differs from a GPU: signalling NaN, zeros, integers of 64 bits, turns."""

import itertools
import math
import random

import numpy as np
import pytest
from _simt import Gpu, Kernels, blank
from test_simt_reals import WAYS, rounded

from kernel_assay.kernels.backends.cuda_support.driver import device_count

pytestmark = pytest.mark.usefixtures("simt_cache")

EXTREMES = ("fmin{f}(a, b)", "fmax{f}(a, b)", "min(a, b)", "max(a, b)")
INTEGERS = {
    f"__{source}2{to}_{way}({letter})": (letter, to, way)
    for source, letter in (("ll", "i"), ("ull", "u"))
    for to in ("float", "double")
    for way in WAYS
}
TURNS = {"sinpi(x)": math.sin, "cospi(x)": math.cos, "sinpif((float)x)": math.sin, "cospif((float)x)": math.cos}
LENGTHS = {
    "norm3d(x, 2.0, 3.0)": lambda x: math.hypot(x, 2, 3),
    "norm4d(x, 1.0, 2.0, 3.0)": lambda x: math.hypot(x, 1, 2, 3),
    "rhypot(x, 2.0)": lambda x: 1 / math.hypot(x, 2),
    "rnorm3d(x, 2.0, 3.0)": lambda x: 1 / math.hypot(x, 2, 3),
    "rnorm4d(x, 1.0, 2.0, 3.0)": lambda x: 1 / math.hypot(x, 1, 2, 3),
    "norm3d(1e300 * x, 2e300, 3e300) * 1e-300": lambda x: math.hypot(x, 2, 3),
    "(double)norm3df(1e30f * (float)x, 2e30f, 3e30f) * 1e-30": lambda x: math.hypot(x, 2, 3),
    "(double)rnorm4df((float)x, 1.0f, 2.0f, 3.0f)": lambda x: 1 / math.hypot(x, 1, 2, 3),
}


def stores(lines, target="out"):
    return "".join(f"  *{target}++ = {line};" for line in lines)


SOURCE = f"""
__device__ float f_of(unsigned x) {{ return __uint_as_float(x); }}
__global__ void extremes(float* out, double* out_wide, const unsigned* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out += i * {len(EXTREMES)}, out_wide += i * {len(EXTREMES)};
  {{ float a = f_of(x[2 * i]), b = f_of(x[2 * i + 1]); {stores(e.format(f="f") for e in EXTREMES)} }}
  {{ double a = __hiloint2double((int)x[2 * i], 0), b = __hiloint2double((int)x[2 * i + 1], 0);
    {stores((e.format(f="") for e in EXTREMES), "out_wide")} }}
}}
__global__ void integers(double* out, const long long* x, int n) {{
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= n) return;
  long long i = x[k]; unsigned long long u = (unsigned long long)i;
  out += k * {len(INTEGERS)};
{stores(INTEGERS)}
}}
__global__ void lengths(double* out, const double* points, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = points[i];
  out += i * {len(TURNS) + len(LENGTHS)};
{stores([*TURNS, *LENGTHS])}
}}
"""


GPU = pytest.param("gpu", marks=pytest.mark.skipif(not device_count(), reason="needs a GPU"))


@pytest.fixture(scope="module", params=["emulator", GPU])
def kernels(request, simt_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    if request.param == "emulator":
        return Kernels(folder, SOURCE)
    return Gpu(folder, SOURCE, "extremes", "integers", "lengths")


def run(kernels, entry, x, n, *outs):
    named = dict(zip(("out", "out_wide"), outs, strict=False))
    return kernels.right(entry, grid=-(-n // 64), block=64, **named, x=x, n=n)


def extreme(name, a, b):
    """What IEEE 754-2008 calls minNum and maxNum, but for signalling NaN; -0 below +0."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    order = [(x, -(math.copysign(1, x) < 0)) for x in (a, b)]
    return (min if "min" in name else max)(order)[0]


def test_signalling_nan_is_no_number_and_zeros_have_an_order(kernels):
    # In the high half of a double the same bits are as special: infinities aside, which are NaN or large there.
    words = [0x7F800001, 0xFF800001, 0x7FC00000, 0x7FF00001, 0x7FF80000, 0, 0x80000000, 0x3F800000, 0xBF800000, 1]
    x = np.array([*itertools.product(words, words)], np.uint32)
    outs = blank((len(x), len(EXTREMES)), np.float32), blank((len(x), len(EXTREMES)), np.float64)
    found, wide = run(kernels, "extremes", x, len(x), *outs)
    operands = (found, x.view(np.float32)), (wide, (x.astype(np.uint64) << np.uint64(32)).view(np.float64))
    for values, pairs in operands:
        for row, (a, b) in zip(values.tolist(), pairs.tolist(), strict=True):
            for got, name in zip(row, EXTREMES, strict=True):
                wanted = extreme(name, a, b)
                assert (math.isnan(got) and math.isnan(wanted)) or repr(got) == repr(wanted), (name, a, b)


def test_integers_of_64_bits_are_rounded_once(kernels):
    draw = random.Random(11)
    edges = [0, 1, -1, 2**63 - 1, -(2**63), 2**62 + 1, 2**53 + 1, 2**24 + 1, 2**63 - 513, 2**40 + 2**15, -(2**54) - 3]
    drawn = [draw.getrandbits(64) - 2**63 >> draw.randrange(0, 60) for _ in range(200)]
    x = np.array([*edges, *drawn], np.int64)
    found = run(kernels, "integers", x, len(x), blank((len(x), len(INTEGERS)), np.float64))
    for row, number in zip(found.tolist(), x.tolist(), strict=True):
        for got, (expression, (letter, to, way)) in zip(row, INTEGERS.items(), strict=True):
            assert got == rounded(number if letter == "i" else number % 2**64, to, way), (expression, number)


def test_turns_are_exact_at_quarters_and_lengths_do_not_overflow(kernels):
    x = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, -0.5, -1.0, 7.0, 1e6 + 0.5, 0.3, -2.7, 12345.678, 1e-3])
    found = run(kernels, "lengths", x, len(x), blank((len(x), len(TURNS) + len(LENGTHS)), np.float64))
    for row, point in zip(found.tolist(), x.tolist(), strict=True):
        for got, (expression, function) in zip(row, TURNS.items(), strict=False):
            point_here = float(np.float32(point)) if "float" in expression else point
            turn = math.fmod(point_here, 2)
            exact = {0: function(0), 1: function(math.pi)} if function is math.cos else {0: 0, 1: 0}
            if turn * 2 == round(turn * 2) and abs(turn) % 1 == 0:
                assert got == round(exact[abs(int(turn)) % 2]), (expression, point)
            assert got == pytest.approx(function(math.pi * turn), rel=1e-6, abs=1e-7), (expression, point)
        for got, (expression, function) in zip(row[len(TURNS) :], LENGTHS.items(), strict=True):
            rel = 1e-6 if "(float)" in expression or "float" in expression else 1e-14
            assert got == pytest.approx(function(point), rel=rel), (expression, point)
