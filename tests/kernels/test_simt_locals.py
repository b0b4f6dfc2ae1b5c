"""Local variables: what they hold until they are set, and arrays that are indexed beyond their ends."""

import numpy as np
import pytest
from _simt import CHECK, FAST, NOTHING, Kernels, blank

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Trouble
from kernel_assay.kernels.backends.simt.subscripts import subscripts
from kernel_assay.kernels.backends.simt.toolchain import build

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include "part.cuh"
#define ME (int)threadIdx.x
#define TAKE(array, i) array[i]
__constant__ float table[4] = {1, 2, 3, 4};

// ---- variables that nobody has set ----
__global__ void unset_sum(float* out, const float* x, int n) {
  float sum;
  for (int i = 0; i < n; ++i) sum += x[i];
  out[ME] = sum;
}
__global__ void unset_maximum(float* out, const float* x, int n) {
  float top;
  for (int i = 0; i < n; ++i) top = fmaxf(top, x[i] - 100);
  out[ME] = top;
}
__global__ void unset_flag(float* out, const float* x, int n) {
  int all;
  for (int i = 0; i < n; ++i) all = all && x[i] >= 0;
  out[ME] = all ? 1 : 0;
}
__global__ void unset_half(float* out, const float* x, int n) {
  __half top;
  for (int i = 0; i < n; ++i) top = __hmax(top, __half(x[i] - 100));
  out[ME] = top;
}
__global__ void unset_array(float* out, const float* x, int n) {
  float large[300];
  for (int i = 1; i < 300; ++i) large[(i * n) % 300] = x[i % 32];
  out[ME] = large[n - 7];
}

// ---- right ----
__global__ void partly_filled(float* out, const float* x, int n) {
  float kept[16];
  int count = 0;
  for (int i = 0; i < n; ++i)
    if (x[i] > 2) kept[count++] = x[i];
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += kept[i];
  out[ME] = sum;
}
__global__ void shuffled(float* out, const float* x, int n) {
  float v;
  if (ME < n) v = x[ME];
  float other = __shfl_down_sync(~0u, v, 1);
  unsigned votes = __ballot_sync(~0u, ME < n && v > 2);
  out[ME] = ME + 1 < n ? other + votes : 0;
}
__global__ void first_row(float* out, const float* x, int n) {
  __shared__ float tile[4][8];
  float mine[2][4], cube[2][2][2];
  tile[0][ME] = x[ME];
  for (int i = 0; i < 8; ++i) mine[0][i] = x[i], cube[0][0][i] = x[i];
  __syncthreads();
  float (*rows)[4] = mine, (&row)[4] = mine[0], sum = 0;
  auto& common = tile[0];
  for (int i = 0; i < n; ++i) sum += mine[0][i] + (*rows)[i] + rows[0][i] + row[i] + tile[0][31 - i];
  for (int i = 0; i < 4; ++i) sum += 0 * cube[0][i][0];
  out[ME] = common[31 - ME] + sum;
}
template <class T, int N>
__global__ void first_row_of(T* out, const T* x, int n) {
  __shared__ T tile[4][N];
  T mine[4][N / 2];
  struct { T rows[2][N]; } pair;
  tile[0][ME] = x[ME];
  for (int i = 0; i < 2 * N; ++i) mine[0][i] = pair.rows[0][i] = x[i];
  __syncthreads();
  auto of = [&](int i) { return mine[0][i] + pair.rows[0][i] + tile[0][i]; };
  out[ME] = of(ME % (2 * N));
}
struct Tail { float first; float rest[1]; };
struct Open { float first; float rest[]; };
__global__ void struct_hack(float* out, const float* x, int n) {
  auto tail = reinterpret_cast<const Tail*>(x);
  auto open = reinterpret_cast<const Open*>(x);
  out[ME] = ME < 31 ? tail->rest[ME] + open->rest[ME] : 0;
}
__global__ void past_the_end(float* out, const float* x, int n) {
  float mine[4], two[3][2], sum = 0;
  struct { int k; float v[2]; } deep[2];
  for (float *at = mine; at != &mine[4]; ++at) *at = x[n];
  for (float* at = &two[0][0]; at != &two[3][0]; ++at) *at = x[n];
  for (float* at = two[0]; at != two[3]; ++at) sum += *at;
  for (const float& v : mine) sum += v;
  float *far = &mine[ME], *row = two[ME], *farther = &deep[ME].v[ME];
  if (ME < 2) *far = *row = *farther = 1;
  out[ME] = sum;
}
__global__ void addresses(float* out, const float* x, int n) {
  __shared__ float parts[4];
  float* mine = &parts[ME];
  if (ME < 4) *mine = x[ME];
  __syncthreads();
  out[ME] = ME < 4 && parts[ME] > n ? parts[ME] : 0;
}

// ---- wrong ----
__global__ void reads(float* out, const float* x, int n) {
  float mine[4];
  for (int i = 0; i < 4; ++i) mine[i] = x[i];
  out[ME] = mine[n & 7];  // reads
}
__global__ void writes(float* out, const float* x, int n) {
  float mine[4];
  for (int i = 0; i < n; ++i) mine[i] = x[i];  // writes
  out[ME] = mine[ME % 4];
}
__global__ void below(float* out, const float* x, signed char n) {
  float mine[4] = {x[0]};
  out[ME] = mine[n];  // below
}
__global__ void large(float* out, const float* x, unsigned n) {
  float mine[4] = {x[0]};
  out[ME] = mine[n + 0xfffffff0u];  // large
}
__global__ void rows(float* out, const float* x, int n) {
  float mine[2][4] = {x[0]};
  out[ME] = mine[n - 5][0];  // rows
}
struct Pack { float at[4]; };
__global__ void member(float* out, const float* x, int n) {
  Pack packs[2] = {x[0]};
  out[ME] = packs[n & 1].at[n - 3];  // member
}
template <class T, int N>
__global__ void in_template(T* out, const T* x, int n) {
  T mine[N] = {x[0]};
  out[ME] = mine[n - 3];  // in a template
}
__global__ void constants(float* out, const float* x, int n) {
  out[ME] = table[n - 3];  // constants
}
__global__ void several_lines(float* out, const float* x, int n) {
  float mine[4] = {x[0]};
  out[ME] = mine[  // ]
      n - 3
  ];  // several lines
}
__global__ void in_header(float* out, const float* x, int n) { out[ME] = fourth(x, n); }
__global__ void shared_array(float* out, const float* x, int n) {
  __shared__ float parts[8];
  if (ME < n + 2) parts[ME] = x[ME];  // of all
  __syncthreads();
  out[ME] = parts[ME % 8];
}
__global__ void by_macro(float* out, const float* x, int n) {
  float mine[8] = {x[0]};
  out[ME] = TAKE(mine, n + ME / 31) * 0;
}
"""
PART = """#pragma once
__device__ inline float fourth(const float* x, int n) {
  float mine[3] = {x[0]};
  return mine[n - 4];
}
"""
A = "thread 0 of block 0"
WRONG = {
    "reads": (7, "thread 0 of block 0 uses mine[7] (<reads>), but it has 4 elements"),
    "writes": (5, f"{A} uses mine[4] (<writes>), but it has 4 elements"),
    "below": (-1, f"{A} uses mine[-1] (<below>), but it has 4 elements"),
    "large": (7, f"{A} uses mine[4294967287] (<large>), but it has 4 elements"),
    "rows": (7, f"{A} uses mine[2] (<rows>), but it has 2 elements"),
    "member": (7, f"{A} uses at[4] (<member>), but it has 4 elements"),
    "in_template<float, 4>": (7, f"{A} uses mine[4] (<in a template>), but it has 4 elements"),
    "constants": (7, f"{A} uses table[4] (<constants>), but it has 4 elements"),
    "several_lines": (7, f"{A} uses mine[4] (<several lines>), but it has 4 elements"),
    "in_header": (7, f"{A} uses mine[3] (part.cuh, line 4), but it has 3 elements"),
}


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("locals")
    (folder / "part.cuh").write_text(PART)
    return Kernels(folder, SOURCE, "in_template<float, 4>", "first_row_of<float, 8>")


X = np.arange(32, dtype=np.float32)


def run(kernels, entry, n=7, **how):
    out = blank(32)
    return kernels.run(entry, out=out, x=X, n=n, **how), out


# ---- variables that nobody has set -----------------------------------------------------------------------------------


@pytest.fixture
def young():
    if int(toolchain.compiler()[0].partition(".")[0]) < 12:
        pytest.skip("g++ leaves what is not set as it is")


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("unset_sum", 21),
        ("unset_maximum", -94),
        ("unset_flag", 1),
        ("unset_half", -94),
    ],
)
def test_what_depends_on_a_variable_that_nobody_has_set_is_wrong_or_differs(young, kernels, entry, wanted):
    found = [run(kernels, entry, mode=mode)[1] for mode in (FAST, CHECK)]
    assert not np.array_equal(*found)
    assert not all((out == wanted).all() for out in found)


def test_a_large_array_that_nobody_has_set_is_no_zeros(young, kernels):
    assert run(kernels, "unset_array")[1][0] < -1e38


@pytest.mark.parametrize(("version", "known"), [("11.4.0", False), ("12.2.0", True), ("13", True), ("", False)])
def test_an_old_compiler_is_not_asked_for_what_it_does_not_know(monkeypatch, version, known):
    monkeypatch.setattr(toolchain, "compiler", lambda: (version, "x86_64-linux-gnu"))
    for mode in (FAST, CHECK):
        assert any("auto-var-init" in flag for flag in toolchain.flags_of(mode)) is known


def test_what_variables_hold_is_part_of_what_a_library_is_known_by(young, kernels, monkeypatch):
    before = build(kernels.path, ["reads"], FAST), toolchain.headers(FAST)
    monkeypatch.setitem(toolchain._UNSET, FAST, "zero")
    assert build(kernels.path, ["reads"], FAST).library != before[0].library
    assert toolchain.headers(FAST) != before[1]


# ---- right -----------------------------------------------------------------------------------------------------------


def test_a_part_of_an_array_may_stay_unset(kernels):
    assert kernels.right("partly_filled", out=blank(32), x=X, n=7).tolist() == [18] * 32


def test_a_shuffle_may_carry_what_nobody_uses(kernels):
    wanted = [i + 1 + 0b1111000 if i + 1 < 7 else 0 for i in range(32)]
    assert kernels.right("shuffled", out=blank(32), x=X, n=7).tolist() == wanted


def test_an_array_of_rows_may_be_walked_through_by_its_first_row(kernels):
    found = kernels.right("first_row", out=blank(32), x=X, n=7)
    assert found.tolist() == [31 - i + 4 * 21 + sum(range(25, 32)) for i in range(32)]
    found = kernels.right("first_row_of<float, 8>", out=blank(32), x=X, n=7)
    assert found.tolist() == [3 * (i % 16) for i in range(32)]


def test_a_last_member_may_stand_for_many(kernels):
    found = kernels.right("struct_hack", out=blank(32), x=X, n=7)
    assert found.tolist() == [2 * (i + 1) if i < 31 else 0 for i in range(32)]


def test_an_address_behind_the_end_is_no_access(kernels):
    assert kernels.right("past_the_end", out=blank(32), x=X, n=7).tolist() == [70] * 32
    assert kernels.right("addresses", out=blank(32), x=X, n=0).tolist() == [0, 1, 2, 3, *[0] * 28]


# ---- wrong -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("entry", WRONG)
def test_an_index_beyond_a_local_array_is_named(kernels, entry, order):
    n, words = WRONG[entry]
    ran, _ = run(kernels, entry, n=n, mode=CHECK, order=order)
    assert ran.trouble is Trouble.BAD_INDEX
    who, _, rest = kernels.placed(words).partition(" uses ")
    assert ran.said.partition(" uses ")[2] == rest
    assert order != ORDERS[0] or ran.said.startswith(f"{who} ")
    assert ran.scene.fault(ran.outcome.fault).kind is Kind.OUT_OF_BOUNDS
    assert kernels.run("partly_filled", mode=CHECK, out=blank(32), x=X, n=7).trouble is NOTHING


def test_of_a_shared_array_the_access_is_judged(kernels):
    ran, _ = run(kernels, "shared_array", mode=CHECK)
    wanted = "thread 8 of block 0 writes 4 bytes at byte 32 of parts (<of all>), but it has 32 bytes"
    assert (ran.trouble, ran.said) == (Trouble.OUT_OF_BOUNDS, kernels.placed(wanted))


def test_what_a_macro_makes_is_not_sure(kernels):
    assert run(kernels, "by_macro", mode=CHECK)[0].trouble is NOTHING


def test_a_file_that_is_gone_is_judged_like_any_other(tmp_path):
    """A library is shared by files that are the same, wherever they lie."""
    said = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.cuh").write_text(PART)
        kernels = Kernels(tmp_path / name, SOURCE)
        said.append(run(kernels, "in_header", mode=CHECK)[0].said)
        kernels.path.unlink()
        (tmp_path / name / "part.cuh").unlink()
    assert said[0] == said[1] == WRONG["in_header"][1]


# ---- where an index is sure ------------------------------------------------------------------------------------------


def found_in(text, watched=()):
    return [(s.name, s.line, s.column, s.closing_column, s.further) for s in subscripts({"k.cu": text}, watched)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("acc[i];", [("acc", 1, 4, 6, 0)]),
        ("x = acc [ i ];", [("acc", 1, 9, 13, 0)]),
        ("a.b->acc[i];", [("acc", 1, 9, 11, 0)]),
        ("tile[a][b][c];", [("tile", 1, 5, 7, 2)]),
        ("acc[idx[j]];", [("idx", 1, 8, 10, 0), ("acc", 1, 4, 11, 0)]),
        ("x[a].at[i];", [("x", 1, 2, 4, 0), ("at", 1, 8, 10, 0)]),
        ("(*rows)[i]; f()[i]; X<3>[i];", []),
        ("&acc[i]; f(&acc[i][0], (T*)&acc[i]); return &acc[i];", []),
        ("&a.b[0].c[i]; & f(x).at [i]; &this->at[i];", []),
        ("// acc[i]\n/* acc[i] */ '[' \"acc[i]\" acc[']'];", [("acc", 2, 30, 34, 0)]),
        ('R"(acc[)" acc[1\'000];', [("acc", 1, 14, 20, 0)]),
        ("\u00e9; acc[i];", [("acc", 1, 8, 10, 0)]),
        (
            "auto& a = t[0]; T (&b)[4] = t[0]; for (auto& c : t) a[i] + b[i] + c[i];",
            [("t", 1, 12, 14, 0), ("t", 1, 30, 32, 0)],
        ),
        ("void f(T (&a)[4], T& b) { a[i] + b[j]; } (m & c)[i]", [("a", 1, 28, 30, 0), ("b", 1, 35, 37, 0)]),
        ("f(acc[\n#else\n); acc[i]; }", [("acc", 3, 7, 9, 0)]),
    ],
)
def test_brackets_that_index_a_name(text, wanted):
    assert sorted(found_in(text)) == sorted(wanted)


@pytest.mark.parametrize("before", ["m &", "1 &", "m[0] &", "m &=", "m &&"])
def test_bits_are_no_addresses(before):
    assert "acc" in {name for name, *_ in found_in(f"{before} acc[i];")}


def test_arrays_whose_accesses_are_judged_are_left_out():
    assert found_in("tile[i]; a.tile[i]; a->tile[i];", {"tile"}) == [("tile", 1, 16, 18, 0), ("tile", 1, 28, 30, 0)]


def test_of_two_files_of_one_name_neither_is_sure(tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "kernels.cu").write_text('#include "deeper/kernels.cu"\n#include "other.cuh"\nint a[i];')
    (tmp_path / "deeper" / "kernels.cu").write_text("int b[i];")
    (tmp_path / "other.cuh").write_text("int c[i];")
    found = toolchain._subscripts(tmp_path / "kernels.cu", set())
    assert [(s.file, s.name) for s in found] == [("other.cuh", "c")]
