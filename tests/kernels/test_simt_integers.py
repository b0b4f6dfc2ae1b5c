"""Functions of integers and of packed words give what their descriptions in the CUDA Math API say."""

import random

import numpy as np
import pytest
from _simt import Kernels, blank

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
    """__byte_perm: a nibble selects a byte; its highest bit, that byte's sign spread."""
    found = 0
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = (b << 32 | a) >> (8 * (nibble & 7)) & 255
        found |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << (8 * i)
    return found


def lanes(x, bits, *, is_signed):
    found = [x >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [signed(v, bits) for v in found] if is_signed else found


def packed(values, bits):
    return sum((v & ((1 << bits) - 1)) << (i * bits) for i, v in enumerate(values))


def dot(a, b, c, *, is_signed, wide=8, offset=0):
    """__dp4a; with wide=16 __dp2a, whose second operand's bytes begin at `offset`."""
    whole, narrow = lanes(a, wide, is_signed=is_signed), lanes(b, 8, is_signed=is_signed)[offset:]
    return c + sum(x * y for x, y in zip(whole, narrow, strict=False))


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
    "__mul24((int)a, (int)b)": lambda a, b, c: s32(signed(a, 24) * signed(b, 24)),
    "__umul24(a, b)": lambda a, b, c: u32((a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "__mulhi((int)a, (int)b)": lambda a, b, c: s32(a) * s32(b) >> 32,
    "__umulhi(a, b)": lambda a, b, c: a * b >> 32,
    "(long long)__umul64hi(ab, ba)": lambda a, b, c: signed((a << 32 | b) * (b << 32 | a) >> 64, 64),
    "__sad((int)a, (int)b, c)": lambda a, b, c: u32(abs(s32(a) - s32(b)) + c),
    "__hadd((int)a, (int)b)": lambda a, b, c: s32(a) + s32(b) >> 1,
    "__funnelshift_l(a, b, c)": lambda a, b, c: u32((b << 32 | a) << (c & 31) >> 32),
    "__funnelshift_r(a, b, c)": lambda a, b, c: u32((b << 32 | a) >> (c & 31)),
    "__byte_perm(a, b, c)": permuted,
    "__dp4a((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True)),
    "__dp4a(a, b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False)),
    "__dp4a(*(char4*)&a, *(char4*)&b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True)),
    "__dp4a(*(uchar4*)&a, *(uchar4*)&b, c)": lambda a, b, c: u32(dot(a, b, c, is_signed=False)),
    "__dp2a_lo((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True, wide=16)),
    "__dp2a_hi((int)a, (int)b, (int)c)": lambda a, b, c: s32(dot(a, b, c, is_signed=True, wide=16, offset=2)),
    "min((int)a, (int)b)": lambda a, b, c: min(s32(a), s32(b)),
    "max(a, b)": lambda a, b, c: max(a, b),
    "min((long long)(int)a, (long long)(int)b)": lambda a, b, c: min(s32(a), s32(b)),
    "max((int)a, b)": lambda a, b, c: max(a, b),
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
    "vavgu": ("u", lambda x, y: (x + y + 1) >> 1),
    "vmaxs": ("s", max),
    "vmins": ("s", min),
    "vmaxu": ("u", max),
    "vminu": ("u", min),
    "vcmpeq": ("u", lambda x, y: -(x == y)),
    "vcmpne": ("u", lambda x, y: -(x != y)),
    "vcmpgts": ("s", lambda x, y: -(x > y)),
    "vcmpgtu": ("u", lambda x, y: -(x > y)),
    "vcmplts": ("s", lambda x, y: -(x < y)),
    "vcmpges": ("s", lambda x, y: -(x >= y)),
    "vcmpgeu": ("u", lambda x, y: -(x >= y)),
    "vabsdiffu": ("u", lambda x, y: abs(x - y)),
    "vneg": ("s", lambda x, _: -x),
    "vabs": ("s", lambda x, _: abs(x)),
}
"""Name without its number of lanes -> how lanes are read and results are cut, and what is done to two of them."""


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
            arguments = "a" if name in {"vneg", "vabs"} else "a, b"
            found[f"__{name}{count}({arguments})"] = of_lanes(how, function, 32 // count)
    return found


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


def test_every_function_gives_its_value_for_edges_and_drawn_words(tmp_path):
    draw = random.Random(5)
    words = [
        [draw.choice(EDGES) if draw.random() < 0.5 else draw.getrandbits(32) for _ in range(3)] for _ in range(300)
    ]
    kernels, x = Kernels(tmp_path, SOURCE), np.array(words, np.uint32)
    found = kernels.right(
        "every", grid=5, block=64, out=blank((len(words), len(EXPRESSIONS)), np.int64), x=x, n=len(words)
    )
    for row, word in zip(found.tolist(), words, strict=True):
        wanted = {e: f(*word) for e, f in EXPRESSIONS.items()}
        assert dict(zip(EXPRESSIONS, row, strict=True)) == wanted, [hex(w) for w in word]
