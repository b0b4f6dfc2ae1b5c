"""CUDA files are subjects like any other: found, compiled, run without a GPU, told what is wrong in one sentence."""

import itertools
import os
import random
import re
import tempfile
import weakref
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.reading import case_of
from kernel_assay.fuzz.checking.check import Examiner, interface_of
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.strategies import build
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda import CudaLoader, CudaSubject
from kernel_assay.kernels.backends.cuda_support.formula import parse_formula
from kernel_assay.kernels.backends.cuda_support.front_matter import read_front_matter
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.emulator import ORDERS
from kernel_assay.kernels.backends.simt.schedule import Schedule
from kernel_assay.kernels.backends.simt.toolchain import Mode
from kernel_assay.kernels.backends.support.signature import Interface, KernelFaultError, bind
from kernel_assay.kernels.catalog import read_subject, resolve, size_hints, subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of

pytestmark = pytest.mark.usefixtures("simt_cache")
FACE = Interface(inputs=("x",), outputs=("out",), attrs=())
NORM = Interface(inputs=("x", "weight"), outputs=("out",), attrs=("eps",))
HEAD = {
    "op": '"silu"',
    "entry": '"silu<{T}>"',
    "dtypes": '["float32", "float64", "float16", "bfloat16"]',
    "args": '["out", "x", "n"]',
    "dims": '{ n = "x.size" }',
    "grid": '"ceil_div(n, 256)"',
    "block": "256",
}
SILU = """
template <typename T>
__global__ void silu(T* __restrict__ out, const T* __restrict__ x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    double v = static_cast<double>(x[i]);
    out[i] = T(v / (1.0 + exp(-v)));
  }
}
"""
PLAIN = {**HEAD, "entry": '"k"', "dtypes": '["float32"]'}


@pytest.fixture
def write(tmp_path):
    def file(head, code=SILU, name="mine.cu"):
        text = head if isinstance(head, str) else "".join(f"{k} = {v}\n" for k, v in head.items() if v)
        path = tmp_path / name
        path.write_text(f"/*\nWhat it does. And more.\n\n---\n{text}---\n*/\n#include <cuda_runtime.h>\n{code}")
        return path

    return file


def kernel(body, parameters="float* out, const float* x, int n"):
    return f"__global__ void k({parameters}) {{\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n{body}\n}}\n"


def load(path, face=FACE):
    front = read_front_matter(path)
    return bind(loader_of("cuda").load(path, front.function), face, str(path)).call


def refusal(path, call):
    with pytest.raises(UsageError) as error:
        call(path)
    text = str(error.value)
    assert "\n" not in text
    assert str(path) in text
    return text.replace(str(path), "FILE")


def silu(*shape, dtype="float32", seed=1, **fields):
    fill = Fill(distribution="normal", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=fill, **fields)})


def verdicts(subject, cases):
    with Examiner([subject]) as examiner:
        return [c.verdicts[subject.key] for c in examiner.check(CheckRequest(c, (subject.key,)) for c in cases)]


UNCHECKED = 4
"""A seed whose case check mode does not see; that of 0 it does."""


def float_silu(write, old, new):
    code = SILU.replace(old, new)
    assert code != SILU
    return user_subject(str(write({**HEAD, "dtypes": '["float32"]'}, code)), ())


# ---- verdicts --------------------------------------------------------------------------------------------------------

SHAPES = ((0, 4), (1, 1), (3, 5), (1, 256), (2, 128), (1, 257), (5, 300))


def test_a_clean_kernel_passes(write):
    subject = user_subject(str(write(HEAD)), ())
    cases = [silu(*s, dtype=t) for s in SHAPES for t in subject.dtypes]
    assert [v for v in verdicts(subject, cases) if v.kind is not Kind.PASS] == []


def test_a_clean_kernel_passes_whatever_the_search_comes_up_with(write):
    subject = user_subject(str(write(HEAD)), ())
    choose = random.Random(7).randint
    cases = [build(contract_of("silu"), choose, max_elements=2000) for _ in range(80)]
    kinds = Counter(v.kind for v in verdicts(subject, cases))
    assert set(kinds) == {Kind.PASS, Kind.UNSUPPORTED}
    assert kinds[Kind.PASS] > 20


def test_an_attribute_reaches_the_kernel_and_a_budget_follows_numerics(write):
    head = {
        "op": '"rmsnorm"',
        "entry": '"norm"',
        "args": '["x", "weight", "out", "rows", "cols", "eps"]',
        "dims": '{ rows = "x.shape[0]", cols = "x.shape[1]" }',
        "grid": '["ceil_div(rows, 32)", 1]',
        "block": "[32]",
        "numerics": '{ accumulate = "float64" }',
    }
    code = """extern "C" __global__ void __launch_bounds__(32)
    norm(const float* x, const float* weight, float* out, int rows, int cols, float eps) {
      unsigned int row = blockIdx.x * blockDim.x + threadIdx.x;
      if (row >= rows) return;
      double sum = 0;
      for (int j = 0; j < cols; ++j) sum += (double)x[row * cols + j] * x[row * cols + j];
      float r = (float)rsqrt(sum / cols + eps);
      #pragma unroll 4
      for (int j = 0; j < cols; ++j) out[row * cols + j] = __ldg(x + row * cols + j) * r * weight[j];
    }"""
    subject = user_subject(str(write(head, code)), ())
    assert subject.numerics.accumulate == "float64"
    fills = (("x", (33, 65)), ("weight", (65,)))
    tensors = {
        n: TensorRecipe(shape=s, dtype="float32", fill=Fill(distribution="normal", seed=3), layout="offset_one")
        for n, s in fills
    }
    cases = [Case(op="rmsnorm", tensors=tensors, attrs={"eps": eps}) for eps in (1e-5, 3.0)]
    assert [v.kind for v in verdicts(subject, cases)] == [Kind.PASS] * 2


@pytest.mark.parametrize(
    ("old", "new", "shape", "kind", "words"),
    [
        ("i < n", "i <= n", (1, 257), Kind.OUT_OF_BOUNDS, "at byte 1028 from its start"),
        ("i < n", "i < n / 4 * 4", (3, 5), Kind.UNWRITTEN, "out[2, 2] was never written (3 of 15 elements"),
        ("exp(-v)", "exp(v)", (3, 5), Kind.MISMATCH, ""),
        ("if (i < n)", "const_cast<T*>(x)[0] = 1; if (i < n)", (3, 5), Kind.INPUT_MUTATED, "'x'"),
    ],
)
def test_a_bug_earns_its_verdict_by_what_is_seen_from_outside(write, old, new, shape, kind, words):
    verdict = verdicts(float_silu(write, old, new), [silu(*shape, seed=UNCHECKED)])[0]
    assert verdict.kind is kind
    assert words in verdict.message


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("i < n", "i <= n", Kind.OUT_OF_BOUNDS, "reads x[15] (mine.cu, line 20), but it has 15 elements"),
        ("x[i]", "x[i - 1]", Kind.OUT_OF_BOUNDS, "reads x[-1] (mine.cu, line 20), but it has 15 elements"),
        ("if (i < n)", "const_cast<T*>(x)[0] = 1; if (i < n)", Kind.INPUT_MUTATED, "(mine.cu, line 19), an input"),
        ("x[i])", "x[i]) + 0 * out[i]", Kind.UNINITIALIZED, "reads out["),
        ("if (i < n)", "out[0] = T(i); if (i < n)", Kind.RACE, "and nothing orders the two"),
    ],
)
def test_a_bug_earns_its_verdict_by_what_check_mode_sees(write, old, new, kind, words):
    verdict = verdicts(float_silu(write, old, new), [silu(3, 5, seed=0)])[0]
    assert (verdict.kind, verdict.rule) == (kind, "check")
    assert words in verdict.message


@pytest.mark.parametrize(
    ("new", "kind", "words"),
    [
        ("volatile T far = x[i - (1LL << 40)];", Kind.CRASHED, r"memory fault at 0x\w+ by thread \d+ of block 0 "),
        (
            "volatile int none = n / (n - 15);",
            Kind.CRASHED,
            r"division of an integer by zero by thread \d+ of block 0 ",
        ),
        ("assert(n != 15);", Kind.CRASHED, r"assertion failed: n != 15 by thread \d+ of block 0 "),
        ("if (i == 3) __syncwarp(0xf0);", Kind.DIVERGENT, r"__syncwarp by lane 3, .* by thread 3 of block 0 "),
        (
            "if (i > 9) __shfl_sync(~0u, i, 1); __any_sync(~0u, 1);",
            Kind.DIVERGENT,
            r"(__any_sync here, while|__shfl_sync here, while) lane .* by thread \d+ of block 0 ",
        ),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fault_is_a_verdict_with_thread_and_line_and_the_next_case_is_judged_by_itself(write, new, kind, words, seed):
    subject = float_silu(write, "if (i < n)", f"if (n == 15) {{ {new} }} if (i < n)")
    found = verdicts(subject, [silu(3, 5, seed=seed), silu(3, 4, seed=seed), silu(3, 5, seed=seed)])
    assert [(v.kind, v.rule) for v in found] == [(kind, "check"), (Kind.PASS, ""), (kind, "check")]
    assert re.fullmatch(words + r"\(mine\.cu, line 19\)", found[0].message)


def test_a_process_survives_a_fault(write):
    call = load(write(PLAIN, kernel("  if (n == 3) __trap(); if (i < n) out[i] = n;")))
    x = np.zeros(3, np.float32)
    for n in (3, 2, 3, 1):
        out = x[:n].copy()
        if n == 3:
            with pytest.raises(
                KernelFaultError, match=r"^__trap\(\) by thread 0 of block 0 \(mine\.cu, line 17\)$"
            ) as error:
                call(out, x[:n])
            assert error.value.kind is Kind.CRASHED
        else:
            call(out, x[:n])
            assert out.tolist() == [n] * n


def test_a_launch_is_planned_once_for_the_same_views_and_anew_for_all_others(write, monkeypatch):
    planned, plan = [], CudaSubject._plan
    monkeypatch.setattr(CudaSubject, "_plan", lambda self, *rest: planned.append(1) or plan(self, *rest))
    head = {**PLAIN, "args": '["out", "x", "n", "eps"]'}
    body = kernel("  if (i < n) out[i] = x[i] + 10 * n + signbit(eps);", "float* out, const float* x, int n, float eps")
    call = load(write(head, body), Interface(inputs=("x",), outputs=("out",), attrs=("eps",)))
    room, ones, twos = np.zeros(8, np.float32), np.ones(8, np.float32), np.full(8, 2, np.float32)
    views = {(id(array), n): array[:n] for array in (room, ones, twos) for n in (3, 4)}
    for x, n, eps, wanted, plans in (
        (ones, 4, 0.0, 41, 1),
        (ones, 4, 0.0, 41, 1),
        (ones, 4, -0.0, 42, 2),
        (twos, 4, -0.0, 43, 3),
        (twos, 3, -0.0, 33, 4),
        (ones, 4, 0.0, 41, 5),
    ):
        room[:] = 0
        call(views[id(room), n], views[id(x), n], eps=eps)
        assert room.tolist() == [wanted] * n + [0] * (8 - n)
        assert len(planned) == plans


def test_writes_of_the_same_value_are_told_and_no_fault(write):
    head = {**PLAIN, "args": '["out", "x"]'}
    path = write(head, "__global__ void k(float* out, const float* x) {\n  out[0] = 3;\n}\n")
    loader, x = CudaLoader(), np.zeros(1, np.float32)
    call = bind(loader.load(path, "k"), FACE, str(path)).call
    for run_, told in ((0, 0), (1, 1)):
        loader.prepare(0, run_)
        call(x.copy(), x)
        assert len(loader.warnings()) == told
    (said,) = loader.warnings()
    assert said.startswith("thread 1 of block 0 writes out[0] (mine.cu, line 16), which thread 0 wrote")


def test_the_two_runs_of_a_case_differ_and_some_are_checked():
    schedule, seen = Schedule(), Counter()
    for seed in range(240):
        orders = []
        for run_ in (0, 1):
            schedule.set(seed, run_)
            orders.append(schedule.order)
            seen[run_, schedule.mode, schedule.order] += 1
        assert orders[0] != orders[1] or schedule.mode is Mode.CHECK
        again = Schedule()
        again.set(seed, 1)
        assert (again.order, again.mode, again.seed) == (schedule.order, schedule.mode, schedule.seed)
    checked = sum(n for (_, mode, _), n in seen.items() if mode is Mode.CHECK)
    assert checked == 60
    assert {order for run_, mode, order in seen if (run_, mode) == (0, Mode.FAST)} == set(ORDERS)
    assert {order for run_, mode, order in seen if (run_, mode) == (1, Mode.FAST)} == set(ORDERS)
    assert not any(run_ == 0 and mode is Mode.CHECK for run_, mode, _ in seen)


def test_what_has_strides_is_unsupported(write):
    found = verdicts(user_subject(str(write(HEAD)), ()), [silu(3, 5, layout="row_gaps"), silu(3, 5)])
    assert [v.kind for v in found] == [Kind.UNSUPPORTED, Kind.PASS]
    assert found[0].message == "takes contiguous tensors only"


FOUR = kernel("  if (4 * i < n) reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(x)[i];")


def test_a_misaligned_address_ends_the_kernel_as_on_a_gpu_and_its_line_is_named(write):
    cases = [silu(2, 4, layout="offset_one", seed=s) for s in (0, UNCHECKED)]
    found = verdicts(user_subject(str(write(PLAIN, FOUR)), ()), [*cases, silu(0, 4)])
    assert [(v.kind, v.rule) for v in found] == [(Kind.CRASHED, "check")] * 2 + [(Kind.PASS, "")]
    for verdict in found[:2]:
        assert verdict.message.startswith(
            ("misaligned address 0x", "memory fault at a misaligned or impossible address")
        )
        assert verdict.message.endswith(" of block 0 (mine.cu, line 17)")


LOADED = kernel(
    "  if (2 * i < n) {\n    float2 v = *(float2*)(x + 2 * i);\n    out[2 * i] = v.x, out[2 * i + 1] = v.y;\n  }"
)


def test_a_misaligned_address_that_the_cpu_does_not_mind_is_seen_in_check_mode(write):
    found = verdicts(user_subject(str(write(PLAIN, LOADED)), ()), [silu(2, 4, layout="offset_one", seed=0)])[0]
    assert (found.kind, found.rule) == (Kind.CRASHED, "check")
    assert re.fullmatch(r"misaligned address 0x\w+ by thread \d of block 0 \(mine\.cu, line 18\)", found.message)


def test_what_a_kernel_requires_it_need_not_be_given(write):
    head = {**PLAIN, "requires": '["n % 4 == 0", "x.address % 16 == 0"]'}
    cases = [silu(2, 4, layout="offset_one"), silu(1, 5)]
    found = verdicts(user_subject(str(write(head, FOUR)), ()), cases)
    assert [v.kind for v in found] == [Kind.UNSUPPORTED] * 2
    assert [v.message for v in found] == ["requires x.address % 16 == 0", "requires n % 4 == 0"]


# ---- front matter ----------------------------------------------------------------------------------------------------


def test_a_file_says_who_it_is(write):
    subject = user_subject(str(write({**HEAD, "planted": '"out_of_bounds"'})), ())
    assert (subject.op, subject.name, subject.backend, subject.function) == ("silu", "mine", "cuda", "silu")
    assert subject.dtypes == ("float32", "float64", "float16", "bfloat16")
    assert (subject.planted, subject.summary) == ("out_of_bounds", "What it does.")
    plain = read_subject(write({**PLAIN, "summary": '"Short"', "op": ""}), op="silu")
    assert (plain.dtypes, plain.summary) == (("float32",), "Short")


def test_hints_are_the_integers_of_code_and_launch(write):
    code = "#define TILE 48u\n// 77\nfloat a = 33.0f + 1e5f; int b = 0x40 + a64, c = 3, d = 9999; /* 88 */"
    assert size_hints(user_subject(str(write(HEAD, code)), ())) == (48, 64, 256)


@pytest.mark.parametrize(
    "text",
    [
        "// Copyright of somebody.\n\n// Says.\n//\n// ---\n// {}\n// ---\nint x;",
        "/* Copyright\n * ------- */\n/**\n * Says.\n * ---\n * {}\n * ---\n */",
        "/*---\n{}\n---*/",
        "\ufeff/*\n---\n{}\n---\n\nSays.\n*/",
    ],
)
def test_front_matter_may_stand_in_any_comment_above_the_code(tmp_path, text):
    path = tmp_path / "mine.cu"
    lines = [f"{k} = {v}" for k, v in HEAD.items()]
    lead = {"//": "\n// ", " *": "\n * "}.get(text.partition("{}")[0].rpartition("\n")[2].rstrip(), "\n")
    path.write_text(text.replace("{}", lead.join(lines)))
    front = read_front_matter(path)
    assert (front.entry, front.summary) == ("silu<{T}>", "Says." if "Says" in text else "")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("entry", "", "lacks entry, which must be the name of a kernel"),
        ("args", "", "lacks args"),
        ("grid", "", "lacks grid"),
        ("block", "", "lacks block"),
        ("gird", "1", "'gird' is not a key of front matter; there are entry, args"),
        ("entry", '"silu(1); int x"', "entry = 'silu(1); int x' must be the name of a kernel"),
        ("entry", "3", "entry = 3 must be the name of a kernel"),
        ("entry", '"silu"', 'entry must name a kernel for each of its dtypes, with {T}, such as "silu<{T}>"'),
        ("args", '"out"', "args = 'out' must be a list"),
        ("args", "[[1]]", "args = [[1]] must be a list"),
        ("grid", "1.5", "grid = 1.5 must be a formula"),
        ("grid", "true", "grid = True must be a formula"),
        ("block", "[]", "block = [] must be a formula or a list of one to three"),
        ("block", "[1, 1, 1, 1]", "must be a formula or a list of one to three"),
        ("shared", "[]", "shared = [] must be a formula"),
        ("dims", '["n"]', "dims = ['n'] must be a table of formulas"),
        ("dims", "{ n = [1] }", "must be a table of formulas"),
        ("requires", '"n"', "requires = 'n' must be a list of formulas"),
        ("dtypes", '["int4"]', "dtypes = ['int4'] must be a list of dtypes that a .cu file can have: float64, float32"),
        ("choices", '["a"]', "choices = ['a'] must be a table of lists of texts"),
        ("choices", "{ a = [] }", "choices = {'a': []} must be a table of lists of texts"),
        ("choices", "{ a = [1] }", "must be a table of lists of texts"),
        ("dtypes", "[]", "dtypes = [] must be"),
        ("op", "3", "op = 3 must be text"),
        ("numerics", "3", "numerics = 3 must be a table"),
        ("numerics", "{ no_such = 1 }", "numerics is not understood"),
        ("planted", '"pass"', "planted = 'pass' is no verdict"),
        ("shows", '"gpu"', "shows = 'gpu' is no verdict"),
        ("shows", '"pass"', "shows = 'pass' is no verdict"),
        ("shows", '"emulator"', "shows says how a seeded bug is found on a GPU, but there is no planted"),
        ("shows", "3", "shows = 3 must be text"),
        ("summary", "3", "summary = 3 must be text"),
        ("grid", '"n n"', "grid: 'n n' is no formula, which has numbers, names"),
        ("shared", "@", "its front matter is not TOML: Invalid value (at line 12, column 10)"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_that_names_the_key(write, key, value, words):
    path = write({**HEAD, key: value})
    assert words in refusal(path, lambda p: user_subject(str(p), ("silu",)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__global__ void k() {}", "FILE has no front matter: a comment at its top with TOML between two lines of ---"),
        ("int x;\n/*\n---\n---\n*/", "has no front matter"),
        ("", "has no front matter"),
        ("/*\n---\nop = 1\n*/", "a line of --- begins its front matter, but none ends it"),
        (b"\xff\xfe", "is not text in UTF-8"),
    ],
)
def test_a_file_without_front_matter_is_told_so(tmp_path, text, words):
    path = tmp_path / "mine.cu"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in refusal(path, lambda p: user_subject(str(p), ("silu",)))


def test_the_op_comes_from_the_file_or_from_the_only_op_asked_for(write):
    path = write({**HEAD, "op": ""})
    assert user_subject(str(path), ("silu",)).op == "silu"
    assert 'write op = "softmax" into the file' in refusal(path, lambda p: user_subject(str(p), ()))


def test_file_colon_name_must_be_the_entry(write):
    path = write(HEAD)
    assert user_subject(f"{path}:silu", ()).name == "mine:silu"
    wanted = "FILE has no front matter for 'other'; its entry is 'silu'"
    assert refusal(path, lambda p: user_subject(f"{p}:other", ())) == wanted


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "args",
            '["out", "y", "n"]',
            "args: 'y' is neither a name of the op nor in dims; the op has out, x, weight, eps",
        ),
        ("args", '["out", "x", "n", "weight"]', "args: 'eps' is missing"),
        ("args", '["out", "x", "n", "eps"]', "args: 'weight' is missing; the op has out, x, weight, eps"),
        ("args", '["x", "weight", "eps"]', "args: 'out' is missing"),
        ("args", '["out", "x + 1", "weight", "eps"]', "args: 'x' is a tensor, not a number"),
        ("args", '["out", "x", "weight", "eps", "y.size"]', "args: 'y' is neither"),
        ("grid", '"cells"', "grid: 'cells' is neither"),
        ("block", '[1, "m"]', "block: 'm' is neither"),
        ("shared", '"4 * m"', "shared: 'm' is neither"),
        ("requires", '["m"]', "requires: 'm' is neither"),
        ("dims", '{ n = "m", m = "1" }', "dims.n: 'm' is neither"),
        ("dims", '{ n = "1", eps = "1" }', "dims.eps: 'eps' is a name that the op has already"),
    ],
)
def test_a_name_that_the_op_does_not_have_is_refused_and_so_is_one_left_out(write, key, value, words):
    path = write({**HEAD, "args": '["out", "x", "weight", "n", "eps"]', key: value})
    assert words in refusal(path, lambda p: read_front_matter(p).check(NORM))


def test_an_attribute_may_be_used_in_a_formula_only(write):
    head = {**PLAIN, "args": '["out", "x", "weight", "n"]', "requires": '["eps == 0"]'}
    read_front_matter(write(head)).check(NORM)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("ceil_div(rows * 5, 4)", 4),
        ("(rows + 1) // 2 - -1", 3),
        ("7 / 2 * 2", 7),
        ("max(1, rows, 2) % 2 + min(4, 5)", 5),
        ("x.shape[0] * x.shape[-1]", 15),
        ("x.size", 15),
        ("style == 'neox'", 1),
        ("rows != 3", 0),
        ("rows <= 3", 1),
        ("rows == 3 and x.size == 15", 1),
        ("rows == 3 and not x.size > 14", 0),
        ("rows == 4 or style == 'gptj' or rows == 3", 1),
        ("not rows - 3", 1),
    ],
)
def test_formulas(text, value):
    scope = {"rows": 3, "style": "neox", "x": np.zeros((3, 5), np.float32)}
    assert parse_formula("grid", text).whole(scope) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "1 +", "rows ** 2", "a if b else c", "a & b", "a in b", "[1]", "f(1)", "__import__('os')", "lambda: 1"),
        *("True", "None", "b''", "1j", "x.shape", "x.strides", "x.y.size", "x.shape[0].size", "rows[0]", "x.shape[:1]"),
        *("min(1)", "min()", "ceil_div(1, 2, 3)", "min(1, key=2)", "min(*a)", "1 < 2 < 3", "a := 1", "~1", "1\0"),
        *("(" * 9999, "-" * 99999 + "1", "1" * 9999),
    ],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match=r"is no formula, which has numbers, names, 'text', \+ - \*"):
        parse_formula("grid", text)


def test_an_extent_must_be_whole():
    with pytest.raises(ValueError, match=r"grid: n / 2 is 1\.5, not an integer"):
        parse_formula("grid", "n / 2").whole({"n": 3})


# ---- launching -------------------------------------------------------------------------------------------------------


def run(path, x, out=None, face=FACE, **attrs):
    out = np.zeros_like(x) if out is None else out
    load(path, face)(out, x, **attrs)
    return out


def test_every_thread_knows_where_it_is(write):
    head = {**PLAIN, "grid": '[2, "n // n", 3]', "block": "[4, 3, 2]"}
    body = """
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * 24 + thread] += block * 24 + thread + (warpSize == 32 ? 1 : 0);"""
    x = np.zeros(6 * 24, np.float32)
    assert run(write(head, kernel(body)), x).tolist() == list(range(1, 6 * 24 + 1))


@pytest.mark.parametrize("grid", ['"(n + 3) / 4"', '"n / 2"', '[1, "x.shape[0] / 8"]'])
def test_a_grid_that_divides_as_c_does_is_a_wrong_request(write, grid):
    body = kernel("  if (i < n) out[i] = x[i];")
    with pytest.raises(
        UsageError, match=r"grid: .* not an integer, if an extent is [0-9]+; .* write a // b or ceil_div"
    ):
        load(write({**PLAIN, "grid": grid}, body))
    load(write({**PLAIN, "grid": grid, "requires": '["n % 8 == 5"]'}, body))


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("block", "1025", ValueError, "a block of 1025 x 1 x 1 threads cannot be launched, 1024 in all at most"),
        ("block", "[32, 64]", ValueError, "a block of 32 x 64 x 1 threads"),
        ("block", "0", ValueError, "a block of 0 x 1 x 1"),
        ("grid", '[1, "65535 + n"]', ValueError, "a grid of 1 x 65550 x 1 blocks cannot be launched"),
        ("grid", '"-n"', ValueError, "a grid of -15 x 1 x 1 blocks"),
        ("grid", '"n // 0"', ZeroDivisionError, ""),
        ("shared", "232449", ValueError, "232449 bytes of shared memory cannot be had"),
        ("args", '["out", "x", "n / 2"]', ValueError, "args: n / 2 is 7.5, not an integer"),
        ("args", '["out", "x", "\'neox\'"]', TypeError, "args: 'neox' is text, 'neox', not a number"),
        ("requires", '["n > 15"]', NotImplementedError, "requires n > 15"),
    ],
)
def test_what_cannot_be_launched_is_an_error_of_the_subject(write, key, value, error, words):
    call = load(write({**PLAIN, key: value}, kernel("  if (i < n) out[i] = x[i];")))
    x = np.zeros(15, np.float32)
    with pytest.raises(error) as raised:
        call(np.zeros_like(x), x)
    assert words in str(raised.value)


def test_a_dtype_that_the_kernel_does_not_take_is_unsupported(write):
    head = {**PLAIN, "args": '["out", "x", "weight", "eps"]'}
    call = load(write(head, kernel("", "float* out, const float* x, const int* weight, double eps")), NORM)
    x = np.zeros(4, np.float32)
    for first, weight, words in (
        (x.astype(np.float64), x, "takes float32 only"),
        (x, x.astype(np.int64), "takes 'weight' as integers of 4 bytes only"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            call(x, first, weight, eps=0.0)
    call(x, x, x.astype(np.int32), eps=0.0)


CHOSEN = """
struct plain { static __device__ float of(float x) { return x; } };
struct doubled { static __device__ float of(float x) { return 2 * x; } };
template <typename Format, typename To>
__global__ void k(To* out, const float* x, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = To(Format::of(x[i]));
}
"""


def test_a_text_attribute_chooses_the_kernel(write):
    """A value that is a dtype stands for its C++ type."""
    choices = '{ format = ["plain", "doubled"], to = ["float32", "float16"] }'
    face = Interface(inputs=("x",), outputs=("out",), attrs=("format", "to"))
    call = load(write({**PLAIN, "entry": '"k<{format}, {to}>"', "choices": choices}, CHOSEN), face)
    x = np.arange(3, dtype=np.float32)
    for format_, to, factor in (("plain", "float32", 1), ("doubled", "float16", 2), ("doubled", "float32", 2)):
        out = np.zeros(3, to)
        call(out, x, format=format_, to=to)
        assert out.tolist() == (factor * x).tolist()
    with pytest.raises(NotImplementedError, match=r"^has no instance for format=halved, to=float32$"):
        call(x.copy(), x, format="halved", to="float32")
    with pytest.raises(NotImplementedError, match=r"^takes 'out' as float16 only$"):
        call(x.copy(), x, format="plain", to="float16")
    with pytest.raises(NotImplementedError, match=r"^takes float32 only$"):
        call(x.copy(), x.astype(np.float64), format="plain", to="float32")


def test_an_optional_input_is_null_where_it_is_missing(write):
    face = Interface(inputs=("x", "mask"), outputs=("out",), attrs=(), extra=("mask",))
    code = kernel(
        "  if (i < n) out[i] = x[i] + (mask ? mask[i] : 100);", "float* out, const float* x, const int* mask, int n"
    )
    call = load(write({**PLAIN, "args": '["out", "x", "mask?", "n"]'}, code), face)
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    for mask, wanted in ((None, [101] * 3), (np.arange(3, dtype=np.int32), [1, 2, 3])):
        call(out, x, mask=mask)
        assert out.tolist() == wanted
    with pytest.raises(NotImplementedError, match=r"^takes 'mask' as integers of 4 bytes only$"):
        call(out, x, mask=np.arange(3))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("float* out, const float* x", "args has 3 arguments, but k takes 2"),
        ("float* out, int n, const float* x", "args: 'x' is a pointer, but parameter 2 is a number"),
        ("float* out, const float* x, const int* n", "args: 'n' is a number, but parameter 3 is a pointer"),
        ("double* out, const double* x, int n", "dtypes has float32, but the kernel takes 'x' as float64"),
        ("__half* out, const __half* x, int n", "the kernel takes 'x' as float16"),
        ("float* out, const float* x, float2 n", "a parameter of the kernel is neither a pointer nor a number"),
    ],
)
def test_parameters_that_are_not_those_of_args_are_refused(write, parameters, words):
    path = write(PLAIN, f"__global__ void k({parameters}) {{}}")
    assert words in refusal(path, load)


# ---- compiling -------------------------------------------------------------------------------------------------------


MEETING = """
template <typename T>
__global__ void silu(T* out, const T* x, int n) {
  extern __shared__ double sums[];
  __shared__ T tile[64];
  int me = threadIdx.x, i = blockIdx.x * 64 + me;
  tile[63 - me] = i < n ? x[i] : T(0.0f);
  __syncthreads();
  double v = static_cast<double>(tile[63 - me]), sum = v;
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  if (me % 32 == 0) sums[me / 32] = sum;
  __syncthreads();
  if (__ballot_sync(~0u, sums[0] + sums[1] != sums[0] + sums[1])) v += 0;
  if (i < n) out[i] = T(v / (1.0 + exp(-v)));
}
"""


def test_threads_may_meet(write):
    head = {**HEAD, "block": "64", "grid": '"ceil_div(n, 64)"', "shared": "16"}
    subject = user_subject(str(write(head, MEETING)), ())
    cases = [silu(*s, dtype=t, seed=seed) for seed, s in enumerate(SHAPES) for t in subject.dtypes]
    assert [v for v in verdicts(subject, cases) if v.kind is not Kind.PASS] == []


def test_inline_ptx_runs(write):
    body = """  asm volatile("bar.sync 0;");
  float v;
  __asm__("mul.f32 %0, %1, 0f40400000;" : "=f"(v) : "f"(x[0]));
  asm("{ .reg .u32 l; mov.u32 l, %%laneid; .reg .f32 f; cvt.rn.f32.u32 f, l; add.f32 %0, %0, f; }" : "+f"(v));
  if (i < n) out[i] = v;"""
    assert run(write(PLAIN, kernel(body)), np.full(3, 2, np.float32)).tolist() == [6, 7, 8]


def test_ptx_that_is_not_emulated_is_named_where_it_stands(write, tmp_path):
    path = write(PLAIN, kernel('  asm("brkpt;");\n  __asm volatile("setp.lt.b128 p, q, r;");'))
    with pytest.raises(
        NotImplementedError, match=r"^the PTX instruction setp.* is not emulated \(mine\.cu, line 18\)$"
    ):
        run(path, np.zeros(3, np.float32))
    (tmp_path / "part.cuh").write_text('\n__device__ inline void meet() { asm("bar.sink 0;"); }\n')
    path = write(PLAIN, f'#include "part.cuh"\n{kernel("  if (n > 2) meet();")}')
    assert run(path, np.zeros(2, np.float32)).tolist() == [0, 0]
    with pytest.raises(
        NotImplementedError, match=r"^the PTX instruction bar\.sink is not emulated \(part\.cuh, line 2\)$"
    ):
        run(path, np.zeros(3, np.float32))


@pytest.mark.parametrize("header", ["cub/device/device_histogram.cuh", "cute/tensor.hpp"])
def test_libraries_that_need_a_gpu_are_refused(write, header):
    wanted = f"FILE uses {header} (line 16), which cannot run on the CPU"
    assert refusal(write(PLAIN, f"\n#include <{header}>\n{kernel('')}"), load) == wanted


def test_words_in_comments_and_code_for_the_host_are_no_reason_to_refuse(write):
    body = (
        '  // asm("trap;");\n#if __CUDA_ARCH__ >= 800\n  if (i < n) out[i] = x[i] + 1;\n#else\n  asm("trap;");\n#endif'
    )
    host = "#ifndef KERNEL_ASSAY\nint main() { k<<<1, 2>>>(0, 0, 0); }\n#endif\n"
    assert run(write(PLAIN, kernel(body) + host), np.zeros(3, np.float32)).tolist() == [1, 1, 1]


def test_more_static_shared_memory_than_a_block_can_have(write):
    for size, refused in ((12288, False), (12289, True)):
        path = write(PLAIN, kernel(f"  __shared__ float s[{size}];\n  s[i] = x[0];\n  out[0] = s[n];"))
        if refused:
            assert refusal(path, load) == "FILE has 49156 bytes of static shared memory, 49152 at most"
        else:
            load(path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (kernel("  out[i] = y[i];"), "FILE does not compile: 'y' was not declared in this scope (line 17)"),
        (kernel("  out[i] = x[i]"), "FILE does not compile: expected ';' before '}' token (line 17)"),
        ("#include <no_such.h>\n", "FILE does not compile: no_such.h: No such file or directory (line 15)"),
        ("__global__ void other() {}", "entry = 'k' cannot be launched: 'k' was not declared in this scope"),
        ("template <class T> __global__ void k(T* out) {}", "FILE: entry = 'k' cannot be launched: "),
        (
            f"__device__ float g(float);\n{kernel('  out[i] = g(x[i]);')}",
            "does not compile: undefined reference to `g(f",
        ),
        (
            f"{kernel('')}void host() {{ k<<<1, 2>>>(0, 0, 0); }}",
            "FILE launches a kernel with <<<>>> (line 19), but only",
        ),
    ],
)
def test_what_does_not_compile_is_told_in_the_compilers_words(write, code, words):
    assert words in refusal(write(PLAIN, code), load)


def test_an_error_in_a_header_of_the_users_is_placed_there(write, tmp_path):
    (tmp_path / "part.cuh").write_text("\nflaot x;\n")
    text = refusal(write(PLAIN, f'#include "part.cuh"\n{kernel("")}'), load)
    assert text.startswith("FILE does not compile: 'flaot' does not name a type")
    assert text.endswith(f"({tmp_path / 'part.cuh'}, line 2)")


def test_a_campaign_is_told_before_it_begins(write):
    subject = user_subject(str(write(PLAIN, kernel("#include <cute/tensor.hpp>"))), ())
    assert "uses cute/tensor.hpp (line 17)" in refusal(Path(subject.path), lambda _: Examiner([subject]))
    absent = Path(subject.path).with_name("absent.cu")
    assert "cannot be read (No such file" in refusal(absent, lambda p: loader_of("cuda").load(p, "k"))


def test_what_was_compiled_is_not_compiled_again(write, monkeypatch, tmp_path):
    part = tmp_path / "part.cuh"
    part.write_text("#define STEP 1\n")
    path = write(PLAIN, f'#include "part.cuh"\n{kernel("  if (i < n) out[i] = x[i] + STEP;")}')
    x = np.zeros(2, np.float32)
    assert run(path, x).tolist() == [1, 1]
    compiled = []
    compile_ = toolchain._compile
    monkeypatch.setattr(toolchain, "_compile", lambda *a: (compiled.append(a), compile_(*a)))
    assert run(path, x).tolist() == [1, 1]
    assert compiled == []
    part.write_text("#define STEP 2\n")
    assert run(path, x).tolist() == [2, 2]
    modes = [mode for _, _, mode, _ in compiled]
    assert sorted(modes) == sorted(set(modes))
    assert Mode.FAST in modes


def test_a_cache_that_cannot_be_written_is_named(write, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    text = refusal(write(PLAIN, kernel("")), load)
    assert text.startswith("FILE cannot be compiled and loaded: ")
    assert str(tmp_path / "file") in text


def test_a_cache_that_is_not_absolute_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert toolchain.cache_folder() == Path.home() / ".cache" / "kernel-assay" / "cuda"


def test_without_a_home_the_cache_is_among_the_temporary_files_and_nobody_elses(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null/home")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"kernel-assay-cache-{os.getuid()}"
    assert toolchain.cache_folder() == toolchain.cache_folder() == folder / "kernel-assay" / "cuda"
    folder.chmod(0o777)
    with pytest.raises(OSError, match="Permission denied"):
        toolchain.cache_folder()


def test_without_a_compiler_it_says_so(write, monkeypatch):
    loader = loader_of("cuda")
    assert loader.unavailable() == ""
    assert loader.versions()["g++"].partition(".")[0].isdigit()
    path = write(HEAD)
    toolchain.missing.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setenv("PATH", "")
            assert loader.unavailable() == "g++ is not installed"
        assert loader.versions() == {}
        assert "FILE cannot be compiled, because g++ is not installed" in refusal(path, load)
        subject = user_subject(str(path), ())
        with pytest.raises(UsageError, match=r"needs cuda, not available here, because g\+\+ is not installed"):
            Examiner([subject])
    finally:
        toolchain.missing.cache_clear()


# ---- the device ------------------------------------------------------------------------------------------------------

CONVERSIONS = """
template <typename To, typename From>
__device__ void each(To* out, const From* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = static_cast<To>(x[i]);
}
"""


@pytest.mark.parametrize(("narrow", "c_type"), [("float16", "__half"), ("bfloat16", "__nv_bfloat16")])
def test_narrow_types_are_widened_and_rounded_as_they_should_be(write, narrow, c_type):
    every = np.arange(1 << 16, dtype=np.uint16).view(narrow if narrow == "float16" else ml_dtypes.bfloat16)
    grid = {**PLAIN, "dtypes": f'["{narrow}"]'}
    widen = CONVERSIONS + f"__global__ void k(float* out, const {c_type}* x, int n) {{ each(out, x, n); }}"
    wide = run(write(grid, widen), every, np.zeros(1 << 16, np.float32))
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    finite = np.unique(wide[np.isfinite(wide)].astype(np.float64))
    ties = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(ties, s * np.inf) for s in (-1, 1)]
    many = np.concatenate(
        [finite, ties, *near, [np.inf, -np.inf, np.nan, 65519.99, 65520, 3.4e38, 3.39e38, 1e39, 1e-46]]
    )
    for dtype, c_wide in ((np.float32, "float"), (np.float64, "double")):
        with np.errstate(over="ignore"):
            x = many.astype(dtype)
            wanted = x.astype(every.dtype) if narrow == "float16" else rounded_to_bfloat16(x)
        round_ = CONVERSIONS + f"__global__ void k({c_type}* out, const {c_wide}* x, int n) {{ each(out, x, n); }}"
        got = run(write({**PLAIN, "dtypes": f'["{np.dtype(dtype).name}"]'}, round_), x, np.zeros(x.size, every.dtype))
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


def rounded_to_bfloat16(x):
    """Once: ml_dtypes goes through float32."""
    wide = x.astype(np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
    step = np.ldexp(1.0, np.maximum(exponent, -125) - 8)
    once = np.where(np.isfinite(wide), np.rint(wide / step) * step, wide)
    return np.where(np.abs(once) >= 2.0**128, np.copysign(np.inf, once), once)


def test_functions_of_the_device(write):
    """Each line is one output: an expression in v, whose value for v = 2.5 is known."""
    lines = {
        "rsqrtf(v * 1.6f)": 0.5,
        "__expf(v - 2.5f)": 1.0,
        "__fdividef(v, 5.0f)": 0.5,
        "__powf(2.0f, v + 0.5f)": 8.0,
        "exp2f(v + 0.5f) + exp10f(0.0f)": 9.0,
        'fmaxf(v, nanf(""))': 2.5,
        "min(v, 2) + max(1, 3u)": 5.0,
        "min(v, CUDART_NAN_F)": 2.5,
        "__saturatef(v)": 1.0,
        "__float2int_rn(v) + 10 * __float2int_rn(v + 1) + 100 * __float2int_rz(-v)": -158.0,
        "__float2int_rn(CUDART_NAN_F) + (__float2int_rz(1e30f) == INT_MAX)": 1.0,
        "__int_as_float(__float_as_int(v))": 2.5,
        "__popc(255) + __clz(1) + __ffs(8)": 43.0,
        "__umulhi(1u << 31, 4u) + __dp4a(0x01010101, 0x02ff0304, 1)": 11.0,
        "isnan(v) + isinf(v) + signbit(-v)": 1.0,
        "make_float4(1, 2, v, 4).z + sizeof(float3) + alignof(float4) + alignof(double2)": 46.5,
        "dim3(3).y + dim3(4, 5).y": 6.0,
        "__half2float(__hadd(__float2half(v), __half(1))) + float(__half(v) * __half(2.0f))": 8.5,
        "__half22float2(__hfma2(make_half2(v, 1), __float2half2_rn(2), __floats2half2_rn(1, 2))).x": 6.0,
        "__bfloat162float(__float2bfloat16(v)) + float(hexp(__nv_bfloat16(0)))": 3.5,
        "(__half(v) > __half(2)) + (__hisnan(__half(CUDART_NAN_F)) ? 2 : 0)": 3.0,
        "atomicAdd(out + n, 1) + atomicAdd(out + n, 1.0f) + atomicExch(out + n, 0)": 3.0,
        "exp(0.0f) + fabs(-v) + abs(-v) + pow(v, 2.0f) + floor(v)": 14.25,
        "same(v) + Pack<2>{1, 2}.v[1] + as_in_libstdcxx(table[1])": 7.5,
        "normcdff(0) + erff(0) + tanhf(0) + log1pf(0) + fmodf(v, 2.0f)": 1.0,
    }
    top = """#include <functional>
__constant__ float table[2] = {2, 3};
__noinline__ __device__ float same(float v) { return v; }
#ifndef __noinline__
#error it is defined
#endif
__attribute__((__noinline__)) __device__ float as_in_libstdcxx(float v) { return v; }
template <int N> struct __align__(16) Pack { float v[N]; };
"""
    body = "  if (i) return;\n  float v = x[0];\n" + "".join(f"  out[{n}] = {e};\n" for n, e in enumerate(lines))
    x = np.full(len(lines), 2.5, np.float32)
    got = run(write(PLAIN, top + kernel(body)), x, np.zeros(len(lines) + 1, np.float32))
    assert dict(zip(lines, got.tolist(), strict=False)) == pytest.approx(lines, rel=1e-6)


def test_products_and_sums_are_rounded_each(write):
    """The same bits on every machine: nothing is contracted unless fmaf says so."""
    body = "  if (i < n) out[i] = i ? fmaf(x[i], x[i], -1.0f) : x[i] * x[i] - 1.0f;"
    x = np.full(2, 1 + 2.0**-12, np.float32)
    out = run(write(PLAIN, kernel(body)), x)
    assert out.tolist() == [2.0**-11, 2.0**-11 + 2.0**-24]


def test_a_subject_keeps_nothing_of_a_case_that_it_has_run(write):
    """Each holds all of a case's memory; there are dozens of subjects, and cases of 32 MiB."""
    head = {**PLAIN, "args": '["out", "x"]'}
    call = load(write(head, kernel("  out[0] = x[0];", "float* out, const float* x")))
    slab = np.ones(64, np.float32)
    call(slab[:4], slab[4:8])
    seen = weakref.ref(slab)
    del slab
    assert seen() is None


def test_nan_that_tensor_cores_read_as_inf_is_no_finding_about_a_kernel_that_claims_them():
    low = TensorRecipe(shape=(1, 1), dtype="float32", fill=Fill(distribution="ones"), pokes=((0, 0x7F800001),))
    one = TensorRecipe(shape=(1, 1), dtype="float32", fill=Fill(distribution="ones"))
    case = Case(op="gemm", tensors={"a": low, "b": one})
    names = ("cuda_wmma_tf32", "numpy_tf32", "bug_cuda_tf32_undeclared", "cuda_tiled")
    subjects = {s.name: s for s in subjects_of("gemm") if s.name in names}
    with Examiner(subjects.values()) as examiner:
        checked = examiner.check([CheckRequest(case, tuple(s.key for s in subjects.values()))])[0]
    kinds = {name: checked.verdicts[s.key].kind for name, s in subjects.items()}
    assert kinds == {**dict.fromkeys(names, Kind.PASS), "bug_cuda_tf32_undeclared": Kind.NONFINITE}


FUSED = """/*
---
op = "softmax"
entry = "softmax"
args = ["out", "x", "cols", "scale"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 1
---
*/
__global__ void softmax(float* out, const float* x, int cols, float scale) {
  x += blockIdx.x * cols, out += blockIdx.x * cols;
  float top = -INFINITY;
  for (int c = 0; c < cols; ++c) top = fmaxf(top, scale * x[c]);
  for (int c = 0; c < cols; ++c) out[c] = scale * x[c] - top;
}
"""


def test_a_contracted_case_rounds_once_in_both_runs_and_is_replayed_so(tmp_path):
    """scale * x - top is what the product was rounded by where it is contracted, and 0 where it is not."""
    path = tmp_path / "fused.cu"
    path.write_text(FUSED)
    x = TensorRecipe(shape=(1, 1), dtype="float32", pokes=((0, 0x3F800001),))  # 1 + 2**-23
    case = Case(op="softmax", tensors={"x": x}, attrs={"scale": 0.3})
    with Examiner([user_subject(str(path), ())]) as examiner:
        seen = [
            examiner.look(c, "softmax/fused").kept.outputs()["out"][0, 0] for c in (case, case.but(contracted=True))
        ]
        (again,) = examiner.check([CheckRequest(case_of(case.but(contracted=True).token), ("softmax/fused",))])
    product = np.float32(0.3) * np.float64(np.float32(1 + 2**-23))
    assert seen == [0.0, product - np.float32(product)]
    assert again.verdicts["softmax/fused"].kind is Kind.MISMATCH


def test_both_runs_of_a_contracted_case_are_and_none_is_checked():
    schedule = Schedule()
    for seed, run_ in itertools.product(range(40), (0, 1)):
        schedule.set(seed, run_, contracted=True)
        assert schedule.mode is Mode.FUSED


def test_where_nothing_can_be_contracted_a_case_that_wants_it_is_declined(monkeypatch):
    monkeypatch.setattr(
        "kernel_assay.kernels.backends.cuda.no_contraction", lambda: "this processor has no fused multiply-add"
    )
    loader = CudaLoader()
    assert Mode.FUSED not in loader.modes
    subject = next(s for s in subjects_of("silu") if s.backend == "cuda" and not s.planted)
    function = bind(loader.load(resolve(subject), subject.function), interface_of(contract_of("silu")), "")
    loader.prepare(0, 0, contracted=True)
    one = np.ones((1, 4), np.float32)
    with pytest.raises(NotImplementedError, match="this processor has no fused multiply-add"):
        function.call(np.empty_like(one), one)
