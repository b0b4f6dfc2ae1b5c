"""Functions of integers and of packed words give what their descriptions in the CUDA Math API say."""

import random

import numpy as np
import pytest
from _simt import Gpu, Kernels, blank

from kernel_assay.kernels.backends.cuda_support.driver import device_count

pytestmark = pytest.mark.usefixtures("simt_cache")


def u32(x):
    return x & 0xFFFFFFFF


def s32(x):
    return signed(x, 32)


def signed(x, bits):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def bits_set(x):
    return x.bit_count()


def leading_zeros(x, bits):
    return bits - x.bit_length()


def first_set(x):
    return (x & -x).bit_length()


def permuted(a, b, selector):
    """__byte_perm: the lower three bits of a nibble select a byte."""
    return sum(((b << 32 | a) >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i) for i in range(4))


def lanes(x, bits, *, is_signed):
    found = [x >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [signed(v, bits) for v in found] if is_signed else found


def packed(values, bits):
    return sum((v & ((1 << bits) - 1)) << (i * bits) for i, v in enumerate(values))


def dot(a, b, c, *, is_signed, wide=8, offset=0):
    """__dp4a; with wide=16 __dp2a, whose second operand's bytes begin at `offset`."""
    whole, narrow = lanes(a, wide, is_signed=is_signed), lanes(b, 8, is_signed=is_signed)[offset:]
    return c + sum(x * y for x, y in zip(whole, narrow, strict=False))


def distance(a, b, bits, *, is_signed):
    pairs = zip(lanes(a, bits, is_signed=is_signed), lanes(b, bits, is_signed=is_signed), strict=True)
    return sum(abs(x - y) for x, y in pairs)


def nth_set(mask, base, n):
    """__fns: the place of the n-th bit from `base` on, downwards for negative n."""
    places = [base] if n == 0 else range(base, 32) if n > 0 else range(base, -1, -1)
    found = [i for i in places if mask >> i & 1]
    return found[max(abs(n), 1) - 1] if len(found) >= max(abs(n), 1) else 0xFFFFFFFF


def clamped(x, bits, *, is_signed):
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(x, low), high)


SCALAR = {
    "__popc(a)": lambda a, b, c: bits_set(a),
    "__popcll(ab)": lambda a, b, c: bits_set(a) + bits_set(b),
    "__clz((int)a)": lambda a, b, c: leading_zeros(a, 32),
    "__clzll(ab)": lambda a, b, c: leading_zeros(a << 32 | b, 64),
    "__ffs((int)a)": lambda a, b, c: first_set(a),
    "__ffsll(ab)": lambda a, b, c: first_set(a << 32 | b),
    "__brev(a)": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "(long long)__brevll(ab)": lambda a, b, c: signed(int(f"{a << 32 | b:064b}"[::-1], 2), 64),
    "__fns(a, b & 31, (int)(c % 67) - 33)": lambda a, b, c: nth_set(a, b & 31, c % 67 - 33),
    "__mul24((int)a, (int)b)": lambda a, b, c: s32(signed(a, 24) * signed(b, 24)),
    "__umul24(a, b)": lambda a, b, c: u32((a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "__mulhi((int)a, (int)b)": lambda a, b, c: s32(a) * s32(b) >> 32,
    "__umulhi(a, b)": lambda a, b, c: a * b >> 32,
    "(long long)__umul64hi(ab, ba)": lambda a, b, c: signed((a << 32 | b) * (b << 32 | a) >> 64, 64),
    "__mul64hi(ab, ba)": lambda a, b, c: signed(a << 32 | b, 64) * signed(b << 32 | a, 64) >> 64,
    "__sad((int)a, (int)b, c)": lambda a, b, c: u32(abs(s32(a) - s32(b)) + c),
    "__hadd((int)a, (int)b)": lambda a, b, c: s32(a) + s32(b) >> 1,
    "__rhadd((int)a, (int)b)": lambda a, b, c: s32(a) + s32(b) + 1 >> 1,
    "__uhadd(a, b)": lambda a, b, c: a + b >> 1,
    "__urhadd(a, b)": lambda a, b, c: a + b + 1 >> 1,
    "__usad(a, b, c)": lambda a, b, c: u32(abs(a - b) + c),
    "__funnelshift_lc(a, b, c % 80)": lambda a, b, c: u32((b << 32 | a) << min(c % 80, 32) >> 32),
    "__funnelshift_rc(a, b, c % 80)": lambda a, b, c: u32((b << 32 | a) >> min(c % 80, 32)),
    "__funnelshift_l(a, b, c)": lambda a, b, c: u32((b << 32 | a) << (c & 31) >> 32),
    "__funnelshift_r(a, b, c)": lambda a, b, c: u32((b << 32 | a) >> (c & 31)),
    "__byte_perm(a, b, c)": permuted,
    "__dp4a((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True)),
    "__dp4a(a, b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False)),
    "__dp4a(*(char4*)&a, *(char4*)&b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True)),
    "__dp4a(*(uchar4*)&a, *(uchar4*)&b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False)),
    "__dp2a_lo((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True, wide=16)),
    "__dp2a_hi((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True, wide=16, offset=2)),
    "__dp2a_lo(a, b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False, wide=16)),
    "__dp2a_hi(a, b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False, wide=16, offset=2)),
    "__dp2a_hi(*(short2*)&a, *(char4*)&b, (int)c)": lambda a, b, c: s32(
        dot(a, b, c, is_signed=True, wide=16, offset=2)
    ),
    "__dp2a_lo(*(ushort2*)&a, *(uchar4*)&b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False, wide=16)),
    **{f"__vsads{n}(a, b)": lambda a, b, c, n=n: distance(a, b, 32 // n, is_signed=True) for n in (2, 4)},
    **{f"__vsadu{n}(a, b)": lambda a, b, c, n=n: distance(a, b, 32 // n, is_signed=False) for n in (2, 4)},
    "min((int)a, (int)b)": lambda a, b, c: min(s32(a), s32(b)),
    "max(a, b)": lambda a, b, c: max(a, b),
    "min((long long)(int)a, (long long)(int)b)": lambda a, b, c: min(s32(a), s32(b)),
    "max((int)a, b)": lambda a, b, c: max(a, b),
    "llmin(ab, ba)": lambda a, b, c: min(signed(a << 32 | b, 64), signed(b << 32 | a, 64)),
    "(long long)ullmax(ab, ba)": lambda a, b, c: signed(max(a << 32 | b, b << 32 | a), 64),
    "umin(a, b)": lambda a, b, c: min(a, b),
    "abs((int)a)": lambda a, b, c: s32(abs(s32(a))),
}
"""Of unsigned a, b, c, and ab with a in its high half. min of int and unsigned compares as unsigned, as in C."""
LANES = {
    "vadd": ("u", lambda x, y: x + y),
    "vsub": ("u", lambda x, y: x - y),
    "vaddss": ("s clamped", lambda x, y: x + y),
    "vsubss": ("s clamped", lambda x, y: x - y),
    "vaddus": ("u clamped", lambda x, y: x + y),
    "vsubus": ("u clamped", lambda x, y: x - y),
    "vavgs": ("s", lambda x, y: (x + y + (x + y >= 0)) >> 1),
    "vhaddu": ("u", lambda x, y: (x + y) >> 1),
    "vabsdiffs": ("s", lambda x, y: abs(x - y)),
    "vavgu": ("u", lambda x, y: (x + y + 1) >> 1),
    "vmaxs": ("s", max),
    "vmins": ("s", min),
    "vmaxu": ("u", max),
    "vminu": ("u", min),
    "vabsdiffu": ("u", lambda x, y: abs(x - y)),
    "vneg": ("s", lambda x, _: -x),
    "vnegss": ("s clamped", lambda x, _: -x),
    "vabs": ("s", lambda x, _: abs(x)),
    "vabsss": ("s clamped", lambda x, _: abs(x)),
}
"""Name without its number of lanes -> how lanes are read and results are cut, and what is done to two of them."""


COMPARISONS = {
    "eq": ("u", lambda x, y: x == y),
    "ne": ("u", lambda x, y: x != y),
    **{f"gt{s}": (s, lambda x, y: x > y) for s in "su"},
    **{f"ge{s}": (s, lambda x, y: x >= y) for s in "su"},
    **{f"lt{s}": (s, lambda x, y: x < y) for s in "su"},
    **{f"le{s}": (s, lambda x, y: x <= y) for s in "su"},
}
STEPS = {
    "viaddmax": lambda add, x, y, z: max(add(x, y), z),
    "viaddmin": lambda add, x, y, z: min(add(x, y), z),
    "vimax3": lambda _, x, y, z: max(x, y, z),
    "vimin3": lambda _, x, y, z: min(x, y, z),
    "vimax": lambda _, x, y, z: max(x, y),
    "vimin": lambda _, x, y, z: min(x, y),
}
"""Name without its type -> what is done to three numbers; sums wrap around."""


def steps():
    """Those functions for every type, and with negative results made 0."""
    found = {}
    for name, function in STEPS.items():
        for kind, bits in (("s32", 32), ("u32", 32), ("s16x2", 16), ("u16x2", 16)):
            for end in ("", "_relu") if kind[0] == "s" else ("",):
                if name in {"vimax", "vimin"} and not end:
                    continue  # CUDA has none
                cast = "(int)" if kind == "s32" else ""
                third = f", {cast}c" if name not in {"vimax", "vimin"} else ""
                call = f"__{name}_{kind}{end}({cast}a, {cast}b{third})"
                found[call] = of_steps(function, bits, is_signed=kind[0] == "s", low=0 if end else None)
    return found


def of_steps(function, bits, *, is_signed, low):
    def add(x, y):
        return signed(x + y, bits) if is_signed else (x + y) & ((1 << bits) - 1)

    def value(a, b, c):
        words = [lanes(v, bits, is_signed=is_signed) for v in (a, b, c)]
        found = [function(add, x, y, z) for x, y, z in zip(*words, strict=True)]
        found = [max(v, low) for v in found] if low is not None else found
        return (s32 if is_signed and bits == 32 else u32)(packed(found, bits))

    return value


CHOICES = {
    "([&] { bool p; int v = __vibmax_s32((int)a, (int)b, &p); return 2ll * v + p; }())": (
        lambda a, b, c: 2 * max(s32(a), s32(b)) + (s32(a) >= s32(b))
    ),
    "([&] { bool p; unsigned v = __vibmin_u32(a, b, &p); return 2ll * v + p; }())": (
        lambda a, b, c: 2 * min(a, b) + (a <= b)
    ),
    "([&] { bool p, q; unsigned v = __vibmin_s16x2(a, b, &p, &q); return 4ll * v + 2 * p + q; }())": (
        lambda a, b, c: chosen(a, b, min, is_signed=True)
    ),
    "([&] { bool p, q; unsigned v = __vibmax_u16x2(a, b, &p, &q); return 4ll * v + 2 * p + q; }())": (
        lambda a, b, c: chosen(a, b, max, is_signed=False)
    ),
}


def chosen(a, b, function, *, is_signed):
    """Of each half the better one, and whether it is the first word's: of the high half, of the low half."""
    pairs = list(zip(lanes(a, 16, is_signed=is_signed), lanes(b, 16, is_signed=is_signed), strict=True))
    low, high = (function(x, y) == x for x, y in pairs)
    return 4 * packed([function(x, y) for x, y in pairs], 16) + 2 * high + low


def of_lanes(how, function, bits):
    is_signed = how[0] == "s"

    def value(a, b, _):
        pairs = zip(lanes(a, bits, is_signed=is_signed), lanes(b, bits, is_signed=is_signed), strict=True)
        found = [function(x, y) for x, y in pairs]
        return packed([clamped(v, bits, is_signed=is_signed) for v in found] if "clamped" in how else found, bits)

    return value


def expressions():
    found = dict(SCALAR)
    for name, (how, function) in LANES.items():
        for count in (2, 4):
            arguments = "a" if name.startswith(("vneg", "vabs")) and "diff" not in name else "a, b"
            found[f"__{name}{count}({arguments})"] = of_lanes(how, function, 32 // count)
    for name, (how, function) in COMPARISONS.items():
        for count in (2, 4):
            for prefix, true in (("vcmp", -1), ("vset", 1)):
                value = of_lanes(how, lambda x, y, f=function, t=true: t * f(x, y), 32 // count)
                found[f"__{prefix}{name}{count}(a, b)"] = value
    return {**found, **steps(), **CHOICES}


EXPRESSIONS = expressions()
SOURCE = f"""
__global__ void every(long long* out, const unsigned* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2];
  long long ab = (unsigned long long)a << 32 | b, ba = (unsigned long long)b << 32 | a;
  out += i * {len(EXPRESSIONS)};
{"".join(f"  *out++ = {e};" for e in EXPRESSIONS)}
}}
"""
EDGES = (0, 1, 0x80, 0x7F, 0xFF, 0x8000, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x01020304)


def drawn_words():
    draw = random.Random(5)
    return [[draw.choice(EDGES) if draw.random() < 0.5 else draw.getrandbits(32) for _ in range(3)] for _ in range(300)]


def check(found, words):
    for row, word in zip(found.tolist(), words, strict=True):
        wanted = {e: f(*word) for e, f in EXPRESSIONS.items()}
        assert dict(zip(EXPRESSIONS, row, strict=True)) == wanted, [hex(w) for w in word]


def test_every_function_gives_its_value_for_edges_and_drawn_words(tmp_path):
    words = drawn_words()
    kernels, x = Kernels(tmp_path, SOURCE), np.array(words, np.uint32)
    out = blank((len(words), len(EXPRESSIONS)), np.int64)
    check(kernels.right("every", grid=5, block=64, out=out, x=x, n=len(words)), words)


@pytest.mark.skipif(not device_count(), reason="needs a GPU: there the values are those of the hardware")
def test_a_gpu_gives_the_same(tmp_path):
    words, out = drawn_words(), blank((300, len(EXPRESSIONS)), np.int64)
    x, kernels = np.array(words, np.uint32), Gpu(tmp_path, SOURCE, "every")
    check(kernels.right("every", grid=5, block=64, out=out, x=x, n=len(words)), words)
