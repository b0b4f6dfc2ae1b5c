"""Arithmetic of floats wide and narrow, compared with fractions that are rounded once."""

import math
import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from _simt import Kernels, blank

pytestmark = pytest.mark.usefixtures("simt_cache")

FORMATS = {"half": (11, -14, 15), "bfloat": (8, -126, 127), "float": (24, -126, 127), "double": (53, -1022, 1023)}
"""Bits of the significand, least and greatest exponent of a normal number."""
DTYPES = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64}
C_TYPES = {"half": "__half", "bfloat": "__nv_bfloat16", "float": "float", "double": "double"}
WAYS = ("rn", "rz", "ru", "rd")


def rounded(x, form, way="rn"):
    """A fraction as a number of the format: to nearest even, or towards zero (z), up (u) or down (d)."""
    precision, least, most = FORMATS[form] if isinstance(form, str) else form
    x = Fraction(x)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent = max(exponent - (abs(x) < Fraction(2) ** exponent), least)
    step = Fraction(2) ** (exponent - precision + 1)
    down, rest = divmod(x / step, 1)
    up = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2), "rz": x < 0 < rest, "ru": rest, "rd": 0}
    found = (down + bool(up[way])) * step
    greatest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** most
    if abs(found) <= greatest:
        return float(found)
    stays = way in {"rz", "rd" if x > 0 else "ru"}
    return (1 if x > 0 else -1) * (float(greatest) if stays else math.inf)


def root(x):
    """Of a fraction, as a fraction that is rounded as the root is; None if there is none."""
    if x < 0:
        return None
    scale = 1 << 1300
    near = math.isqrt(math.floor(x * scale * scale))
    return Fraction(near, scale) if Fraction(near, scale) ** 2 == x else Fraction(2 * near + 1, 2 * scale)


def over(a, b):
    return a / b if b else None


SUMS = {
    "add": ("a, b", lambda a, b, c: a + b),
    "sub": ("a, b", lambda a, b, c: a - b),
    "mul": ("a, b", lambda a, b, c: a * b),
    "div": ("a, b", lambda a, b, c: over(a, b)),
    "fma": ("a, b, c", lambda a, b, c: a * b + c),
    "sqrt": ("a", lambda a, b, c: root(a)),
    "rcp": ("a", lambda a, b, c: over(1, a)),
}
NARROW = {"sqrt": "hsqrt(a)", "rcp": "hrcp(a)"}


def table(form):
    """Expression -> its exact value, and how it is rounded."""
    found = {}
    for name, (arguments, value) in SUMS.items():
        if form in {"half", "bfloat"}:
            found[NARROW.get(name, f"__h{name}({arguments})")] = value, "rn"
        else:
            letter = "" if name == "fma" and form == "double" else form[0]
            middle = "fmaf" if name == "fma" and form == "float" else letter + name
            found |= {f"__{middle}_{way}({arguments})": (value, way) for way in WAYS}
    if form in {"half", "bfloat"}:
        found |= {"a + b": (SUMS["add"][1], "rn"), "a * b": (SUMS["mul"][1], "rn"), "-a": (lambda a, b, c: -a, "rn")}
        found["__hfma2({a, b}, {b, a}, {c, c}).y"] = SUMS["fma"][1], "rn"
    return found


TABLES = {form: table(form) for form in FORMATS}


def kernel(form):
    c_type, count = C_TYPES[form], len(TABLES[form])
    lines = "".join(f"  *out++ = {e};" for e in TABLES[form])
    return f"""
__global__ void {form}_sums({c_type}* out, const {c_type}* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {c_type} a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2];
  out += i * {count};
{lines}
}}
"""


CONVERSIONS = {
    **{f"__float2half_{w}(f)": ("f", "half", w) for w in WAYS},
    **{f"__float2bfloat16_{w}(f)": ("f", "bfloat", w) for w in WAYS},
    "__float2half(f)": ("f", "half", "rn"),
    "__half(f)": ("f", "half", "rn"),
    "__nv_bfloat16(f)": ("f", "bfloat", "rn"),
    "__double2half(d)": ("d", "half", "rn"),
    "__double2bfloat16(d)": ("d", "bfloat", "rn"),
    "__double2float_rn(d)": ("d", "float", "rn"),
    "__double2float_rz(d)": ("d", "float", "rz"),
    "(float)d": ("d", "float", "rn"),
    "__floats2half2_rn(1.0f, f).y": ("f", "half", "rn"),
    "__float22bfloat162_rn(make_float2(f, 1.0f)).x": ("f", "bfloat", "rn"),
}
WHOLE = {
    f"__{source}2{name}_{way}({letter})": (letter, bits, is_signed, way)
    for source, letter in (("float", "f"), ("double", "d"), ("half", "h"), ("bfloat16", "b"))
    for name, bits, is_signed in (("int", 32, True), ("uint", 32, False), ("ll", 64, True), ("ull", 64, False))
    for way in WAYS
    if bits == 32 or source in {"float", "double"}
}
FLOAT8 = {
    f"__nv_cvt_float_to_fp8(f, {saturates}, {form})": (saturates, form)
    for saturates in ("__NV_SATFINITE", "__NV_NOSAT")
    for form in ("__NV_E4M3", "__NV_E5M2")
}
MORE = """
__global__ void converted(double* out, long long* out_whole, unsigned char* out_bytes, const double* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double d = x[i]; float f = x[i]; __half h = x[i]; __nv_bfloat16 b = x[i];
%s%s%s
}
"""
"""Functions that are as good as the host's here, in single precision, and their values in double."""
SINGLE = {
    "__expf(a)": np.exp,
    "__exp10f(a)": lambda a: 10.0**a,
    "__logf(a)": np.log,
    "__log2f(a)": np.log2,
    "__log10f(a)": np.log10,
    "__powf(a, 1.5f)": lambda a: a**1.5,
    "__sinf(a)": np.sin,
    "__cosf(a)": np.cos,
    "__tanf(a)": np.tan,
    "__fdividef(a, 3.0f)": lambda a: a / 3,
    "__saturatef(a)": lambda a: np.clip(a, 0, 1),
    "__frsqrt_rn(a)": lambda a: a**-0.5,
    "rsqrtf(a)": lambda a: a**-0.5,
    "rcbrtf(a)": lambda a: 1 / np.cbrt(a),
    "exp10f(a)": lambda a: 10.0**a,
    "sinpif(a)": lambda a: np.sin(np.pi * a),
    "cospif(a)": lambda a: np.cos(np.pi * a),
    "normcdff(a)": np.vectorize(lambda a: 0.5 * math.erfc(-a / math.sqrt(2))),
    "erfcxf(a)": np.vectorize(lambda a: math.exp(a * a) * math.erfc(a)),
    "rhypotf(a, 2.0f)": lambda a: 1 / np.hypot(a, 2),
    "norm3df(a, 2.0f, 3.0f)": lambda a: np.sqrt(a * a + 13),
    "rnorm3df(a, 2.0f, 3.0f)": lambda a: 1 / np.sqrt(a * a + 13),
    "norm4df(a, 1.0f, 2.0f, 3.0f)": lambda a: np.sqrt(a * a + 14),
}
ONE_HALF = {
    **{
        f"h{n}(a)": getattr(np, n)
        for n in ("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tanh", "ceil", "floor", "rint", "trunc")
    },
    "hexp10(a)": lambda a: 10.0**a,
    "hrsqrt(a)": lambda a: a**-0.5,
    "htanh_approx(a)": np.tanh,
    "__habs(a)": np.abs,
    "h2exp({a, a}).y": np.exp,
    "__hmax(a, a)": np.abs,
}


def functions(name, c_type, lines):
    body = "".join(f"  *out++ = {e};" for e in lines)
    return f"""
__global__ void {name}({c_type}* out, const {c_type}* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {c_type} a = x[i];
  out += i * {len(lines)};
{body}
}}
"""


SOURCE = "".join(
    [
        *map(kernel, FORMATS),
        MORE
        % (
            f"  out += i * {len(CONVERSIONS)};" + "".join(f"  *out++ = (double){e};" for e in CONVERSIONS),
            f"  out_whole += i * {len(WHOLE)};" + "".join(f"  *out_whole++ = {e};" for e in WHOLE),
            f"  out_bytes += i * {len(FLOAT8)};" + "".join(f"  *out_bytes++ = {e};" for e in FLOAT8),
        ),
        functions("single", "float", SINGLE),
        functions("one_half", "__half", ONE_HALF),
        functions("one_bfloat", "__nv_bfloat16", ONE_HALF),
    ]
)


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("reals"), SOURCE)


def run(kernels, entry, x, *shapes, **outs):
    n = len(x)
    return kernels.right(entry, grid=-(-n // 64), block=64, **outs, x=x, n=n)


def numbers(form, count, seed):
    """Of the whole range, and of near 1; sums and products of some lie half-way between two numbers."""
    draw = random.Random(seed)
    precision, least, most = FORMATS[form]
    found = []
    for _ in range(count):
        near = draw.random() < 0.6
        bits = draw.choice((1, 3, precision // 2, precision))
        exponent = draw.randint(-6, 6) if near else draw.randint(least - precision + 1, most)
        found.append(math.ldexp(draw.choice((-1, 1)) * (draw.getrandbits(bits) | 1), exponent - bits + 1))
    return np.array(found).astype(DTYPES[form])


HALF_WAY = {
    # 1.5 * (1 + 2**-7) lies between two numbers of 8 bits, and what is added is too small for a double to show it.
    "bfloat": [(1.5, 1 + 2.0**-7, s * 2.0**-e) for s in (-1, 1) for e in (60, 100)],
    "half": [(1 - 2.0**-10, 2.0**-11 + 2.0**-21, s * (1 + 2.0**-10)) for s in (-1, 1)],
}


@pytest.mark.parametrize("form", FORMATS)
def test_sums_products_and_roots_are_rounded_once(kernels, form):
    x = numbers(form, 900, seed=3).reshape(-1, 3)
    x = np.concatenate([x, np.array(HALF_WAY.get(form, [(1, 1, 1)])).astype(x.dtype)])
    found = run(kernels, f"{form}_sums", x, out=blank((len(x), len(TABLES[form])), x.dtype)).astype(np.float64)
    checked = 0
    for row, triple in zip(found, x.astype(np.float64), strict=True):
        for got, (expression, (value, way)) in zip(row.tolist(), TABLES[form].items(), strict=True):
            exact = value(*map(Fraction, triple.tolist()))
            if exact is not None:
                checked += 1
                assert got == rounded(exact, form, way), (expression, triple)
    assert checked > 0.8 * found.size


@pytest.mark.parametrize("form", ["half", "bfloat"])
def test_infinities_and_nan_go_through(kernels, form):
    special = [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan]
    x = np.array([(a, b, c) for a in special for b in special for c in special]).astype(DTYPES[form])
    found = run(kernels, f"{form}_sums", x, out=blank((len(x), len(TABLES[form])), x.dtype)).astype(np.float64)
    a, b, c = x.astype(np.float64).T
    with np.errstate(all="ignore"):
        wanted = {"__hadd(a, b)": a + b, "__hfma(a, b, c)": a * b + c, "__hdiv(a, b)": a / b, "hsqrt(a)": np.sqrt(a)}
    for expression, values in wanted.items():
        got = found[:, list(TABLES[form]).index(expression)]
        np.testing.assert_array_equal(got, values, expression)
        assert [*np.signbit(got[values == 0])] == [*np.signbit(values[values == 0])], expression


def whole(x, bits, way, *, is_signed, double):
    """NaN is 0, or the highest bit if one of the types is a wide one (PTX ISA, cvt)."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    if math.isnan(x):
        return 1 << (bits - 1) if double or bits == 64 else 0
    if math.isinf(x):
        return high if x > 0 else low
    found = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}[way](x)
    return min(max(found, low), high)


def float8(x, saturates, form):
    """The value; NaN where there is none."""
    bits, greatest = ((4, -6, 8), 448.0) if form == "__NV_E4M3" else ((3, -14, 15), 57344.0)
    if math.isnan(x):
        return x
    found = x if math.isinf(x) else rounded(x, bits)
    if abs(found) <= greatest:
        return found
    if saturates == "__NV_SATFINITE":
        return math.copysign(greatest, x)
    return math.nan if form == "__NV_E4M3" else math.copysign(math.inf, x)


def test_conversions(kernels):
    ties = [
        s * (1 + m * 2.0**-e) * 2.0**p for s in (-1, 1) for m in (1, 3) for e in (3, 4, 8, 11, 24) for p in (-20, 0, 8)
    ]
    edges = [
        0,
        0.5,
        1.5,
        2.5,
        255.5,
        448,
        464,
        465,
        480,
        57344,
        61440,
        61441,
        65504,
        65519,
        65520,
        1e30,
        2.0**31 - 0.5,
        2.0**63,
    ]
    x = np.array([*ties, *edges, *(-e for e in edges), math.inf, -math.inf, math.nan, *numbers("double", 60, 5) * 1e-3])
    with np.errstate(over="ignore"):
        single, half, bfloat = (
            x.astype(np.float32),
            x.astype(np.float16),
            [rounded(v, "bfloat") if math.isfinite(v) else v for v in x],
        )
    operands = {"d": x, "f": single, "h": half, "b": bfloat}
    n = len(x)
    outs = {
        "out": blank((n, len(CONVERSIONS)), np.float64),
        "out_whole": blank((n, len(WHOLE)), np.int64),
        "out_bytes": blank((n, len(FLOAT8)), np.uint8),
    }
    found, wholes, bytes_ = run(kernels, "converted", x, **outs)
    for i in range(n):
        value = {k: float(v[i]) for k, v in operands.items()}
        for got, (expression, (letter, form, way)) in zip(found[i].tolist(), CONVERSIONS.items(), strict=True):
            v = value[letter]
            wanted = rounded(v, form, way) if math.isfinite(v) else v
            assert got == pytest.approx(wanted, rel=0, abs=0, nan_ok=True), (expression, v)
        for got, (expression, (letter, bits, is_signed, way)) in zip(wholes[i].tolist(), WHOLE.items(), strict=True):
            wanted = whole(value[letter], bits, way, is_signed=is_signed, double=letter == "d")
            assert got & ((1 << bits) - 1) == wanted & ((1 << bits) - 1), (expression, value[letter])
        for got, (expression, (saturates, form)) in zip(bytes_[i].tolist(), FLOAT8.items(), strict=True):
            dtype = ml_dtypes.float8_e4m3fn if form == "__NV_E4M3" else ml_dtypes.float8_e5m2
            read = float(np.array(got, np.uint8).view(dtype))
            wanted = float8(value["f"], saturates, form)
            assert read == pytest.approx(wanted, rel=0, abs=0, nan_ok=True), (expression, value["f"])


def test_functions_of_one_number(kernels):
    x = np.linspace(0.05, 3.0, 60).astype(np.float32)
    found = run(kernels, "single", x, out=blank((60, len(SINGLE)), np.float32))
    for column, (expression, function) in zip(found.T, SINGLE.items(), strict=True):
        np.testing.assert_allclose(column, function(x.astype(np.float64)), rtol=2e-6, atol=2e-7, err_msg=expression)


@pytest.mark.parametrize("form", ["half", "bfloat"])
def test_functions_of_one_narrow_number_are_rounded_once(kernels, form):
    x = np.linspace(0.05, 3.0, 60).astype(DTYPES[form])
    found = run(kernels, f"one_{form}", x, out=blank((60, len(ONE_HALF)), x.dtype)).astype(np.float64)
    for column, (expression, function) in zip(found.T.tolist(), ONE_HALF.items(), strict=True):
        wanted = [rounded(Fraction(float(v)), form) for v in function(x.astype(np.float64))]
        assert column == wanted, expression
