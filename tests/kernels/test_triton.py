"""Triton's interpreter computes as a GPU does once it is mended; each test shows how it is without the repair too.

The numbers that are right are those of Triton 3.6 on an H200, of which every probe of arithmetic was asked.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import placed
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.catalog import resolve, subjects_of, user_subject
from kernel_assay.kernels.quirks import LOST_DESCRIPTOR, REORDERED_SUM
from kernel_assay.oracles.catalog import load_contracts

needed = pytest.mark.skipif(bool(loader_of("triton").unavailable()), reason="triton is not installed")
ROOT = Path(__file__).parents[2]


def python(*arguments, **variables):
    """In a process of its own: what is mended there is nothing to this one."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def said():
    done = python(str(Path(__file__).with_name("_triton_probes.py")))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gap(said, probe):
    """The answer of a probe with everything mended, and without the repair that it is about."""
    (other,) = (answers[probe] for repair, answers in said.items() if repair and probe in answers)
    return said[""][probe], other


@needed
def test_scalars_are_float32(said):
    assert gap(said, "float_times_float16") == ([pytest.approx(1000.1)], [1000.0])


@needed
def test_global_constants_stand_on_either_side_of_a_tensor(said):
    right, without = gap(said, "constants_on_the_left")
    assert right == [31.0]
    assert "Error" in str(without)


@needed
def test_arithmetic_with_scalars_is_float32_unless_the_kernel_asks_for_float64(said):
    double = 2.0**-30
    assert gap(said, "float_arithmetic") == ([0.0, double], [double, double])


@needed
def test_functions_of_libdevice_have_values(said):
    (single, double), without = gap(said, "library")
    wanted = [12.182493960703473, 0.9866142981514303, 0.999593047982555, 0.6324555320336759, 15.625, 8.75]
    assert single == pytest.approx([*wanted, 1.252762968495368, 0.0, 2.0, 3.0], rel=1e-7)
    assert double[:2] == pytest.approx(wanted[:2], rel=1e-15)
    assert "cannot convert None" in without


@needed
def test_a_function_without_counterpart_is_declined(said):
    with_, without = gap(said, "function_without_counterpart")
    assert with_ == "NotImplementedError: interpreted Triton has no __nv_rcp64h"
    assert "NoneType" in without


@needed
def test_bfloat16_is_rounded_to_nearest_even_or_as_the_kernel_asks(said):
    cut = [1.0078125, 1.0, -1.9921875, 3.3895313892515355e38]
    assert gap(said, "to_bfloat16") == ([[1.015625, 1.0, -2.0, float("inf")], cut], [cut, cut])


@needed
@pytest.mark.parametrize(
    ("probe", "wanted"),
    [
        ("double_to_bfloat16", [1.015625, -3.0]),
        ("integer_to_bfloat16", [3.0, -256.0]),
        ("to_float8", [[1.0, 0.009765625, 448.0, -0.3125], [1.0, 0.009765625, 1024.0, -0.3125]]),
        ("bfloat16_arithmetic", [3.0, -5.0, 1.5, -2.0, -2.25, -6.0, 0.0, 0.0]),
        ("bfloat16_product", 72.0),
        ("bfloat16_reductions", [-1.5, 2.0, 1.0]),
    ],
)
def test_numbers_of_formats_that_numpy_lacks_are_not_taken_for_integers(said, probe, wanted):
    right, wrong = gap(said, probe)
    assert right == wanted
    assert wrong != wanted


@needed
def test_integers_saturate_at_32_bits_and_narrower_ones_are_their_lowest_bits(said):
    top = 2**31 - 1
    right, wrong = gap(said, "to_integers")
    assert right == [[top, -top - 1, 0, top, 300, -2], [-1, 0, 0, -1, 44, -2]]
    assert wrong != right


@needed
def test_tensor_cores_cut_float32_to_tf32_unless_told_otherwise(said):
    assert gap(said, "tf32_product") == ([32.0, 32.015625], [32.015625, 32.015625])


@needed
def test_narrow_sums_are_narrow(said):
    assert gap(said, "narrow_accumulator") == (2048.0, 2050.0)
    assert gap(said, "sum_of_float16") == (2050.0, 2052.0)


@needed
def test_a_nan_loses_against_a_number_and_has_a_place(said):
    right, wrong = gap(said, "signaling_nan")
    assert right == 1.0
    assert wrong != wrong  # noqa: PLR0124  NaN
    right, wrong = gap(said, "places_among_nan")
    assert right[0] in range(4)
    assert right[1] == 0
    assert "All-NaN slice" in wrong


@needed
@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ("reads_beyond", "reads x[333] (_triton_probes.py, line 266), beyond its 333 elements"),
        ("reads_before", "reads x[-1] (_triton_probes.py, line 266), before its first element"),
        ("reads_between", "reads x[1] (_triton_probes.py, line 266), which lies between its elements"),
        ("writes_beyond", "writes out[5] (_triton_probes.py, line 272), beyond its 5 elements"),
        ("counts_beyond", "writes out[4] (_triton_probes.py, line 278), beyond its 4 elements"),
        ("reads_beyond_as_another_type", "reads x[6] (_triton_probes.py, line 284), beyond its 6 elements"),
        ("reads_misaligned", "reads 4 bytes at an address that is no multiple of 4"),
    ],
)
def test_what_is_not_in_a_tensor_is_neither_read_nor_written(said, probe, words):
    right, wrong = gap(said, probe)
    assert right.startswith(f"KernelFaultError: program 0 {words}")
    assert wrong is None, "the interpreter does it"


@needed
def test_what_is_far_away_is_not_read_and_what_is_masked_is_not_looked_at(said):
    assert "beyond its 4 elements" in said[""]["reads_far"]
    assert said[""]["reads_within"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@needed
def test_addresses_that_were_passed_as_integers_are_followed_into_tensors_of_the_launch_only(said):
    numbers = [0.0, 2.0, 4.0, 6.0]
    declined = "triton kernel reads memory of which only its address was passed"
    assert gap(said, "follows_addresses") == ([numbers, declined], [numbers, numbers])


@needed
def test_programs_run_in_either_order(said):
    assert gap(said, "last_program") == ([3.0, 0.0], [3.0, 3.0])


@needed
def test_of_several_configurations_the_first_runs(said):
    right, wrong = gap(said, "tuned")
    assert right == 4
    assert "active drivers" in wrong


@needed
def test_what_a_kernel_raises_is_not_wrapped(said):
    assert said[""]["raises_what_the_kernel_raised"] == "AssertionError: must be nothing"
    assert said[""]["assembly"] == "NotImplementedError: inline_asm not supported in interpreter mode"
    assert said[""]["grid_as_a_list"] == 2.0


@needed
def test_a_process_that_compiles_is_not_made_to_interpret():
    code = "import triton\nfrom kernel_assay.kernels.backend_registry import loader_of\nloader_of('triton').preload()"
    done = python("-c", code, TRITON_INTERPRET="0")
    assert "InternalError: Triton was imported before it was told to interpret" in done.stderr


def test_without_the_package_nothing_runs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "triton" else find_spec("os"))
    assert loader_of("triton").unavailable() == "triton is not installed"


# In the sandbox.

HEAD = """import triton
import triton.language as tl

OP = "silu"


@triton.jit
def _silu(out, x, n, size: tl.constexpr):
    i = tl.program_id(0) * size + tl.arange(0, size)
    v = tl.load(x + i, mask=i < n{reach}).to(tl.float32)
    tl.store(out{at} + i, v / (1.0 + tl.exp(-v)), mask=i < n)


def run(out, x):
    if not x.is_contiguous():
        raise NotImplementedError("takes contiguous tensors only")
    _silu[(triton.cdiv(x.numel(), 16),)](out, x, x.numel(), size=16)
"""


def verdict(tmp_path, text, shape=(3, 5), seed=1, **fields):
    path = tmp_path / "mine.py"
    path.write_text(text)
    subject = user_subject(str(path), ())
    fill = Fill(distribution="normal", seed=seed)
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill, **fields)})
    with Examiner([subject]) as examiner:
        return examiner.check([CheckRequest(case, (subject.key,))])[0].verdicts[subject.key]


@needed
def test_a_kernel_is_judged(tmp_path):
    assert verdict(tmp_path, HEAD.format(reach="", at="")).kind is Kind.PASS
    assert verdict(tmp_path, HEAD.format(reach="", at=""), layout="row_gaps").kind is Kind.UNSUPPORTED
    assert verdict(tmp_path, HEAD.format(reach="", at="").replace("-v", "v")).kind is Kind.MISMATCH


@needed
def test_what_is_read_and_written_out_of_bounds_is_the_verdict(tmp_path):
    found = verdict(tmp_path, HEAD.format(reach=" + 1", at=""))
    assert found.kind is Kind.OUT_OF_BOUNDS
    assert found.message == "program 0 reads x[15] (mine.py, line 10), beyond its 15 elements"
    found = verdict(tmp_path, HEAD.format(reach="", at=" + 1"))
    assert found.kind is Kind.OUT_OF_BOUNDS
    assert "writes out[15] (mine.py, line 11), beyond its 15 elements" in found.message


@needed
def test_programs_that_write_to_one_place_are_found_out(tmp_path):
    same = HEAD.format(reach="", at="").replace("tl.program_id(0) * size", "tl.program_id(0) % 1 * size")
    same = same.replace("v / (1.0 + tl.exp(-v))", "v * tl.program_id(0)").replace(
        "(triton.cdiv(x.numel(), 16),)", "(3,)"
    )
    kinds = {verdict(tmp_path, same, shape=(1, 16), seed=seed).kind for seed in (1, 2)}
    assert kinds == {Kind.NONDETERMINISTIC, Kind.RACE}


@needed
@pytest.mark.parametrize("op", load_contracts())
def test_every_op_has_a_kernel(op):
    assert [s for s in subjects_of(op) if s.backend == "triton" and not s.planted]


FLASH = next(s for s in subjects_of("attention") if s.name == "triton_flash")
SUM = next(s for s in subjects_of("row_sum") if s.name == "triton_rows")
COMPILE = """
import sys
from runpy import run_path
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
path, name, pointers, constants, wanted = sys.argv[1:]
kernel, constants = run_path(path)[name], eval(constants)
types = {n: pointers if n.endswith("_ptr") else "fp32" if n == "scale" else "i32" for n in kernel.arg_names}
types.update(dict.fromkeys(constants, "constexpr"))
source = ASTSource(kernel, types, {(kernel.arg_names.index(n),): v for n, v in constants.items()})
done = compile(source, target=GPUTarget("cuda", 90, 32))
print(eval(wanted))
"""


def compiled(folder, subject, name, pointers, wanted, **constants):
    """An expression of what came of a kernel, `done`, for the GPU of an H200."""
    words = (str(resolve(subject)), name, pointers, repr(constants), wanted)
    done = python("-c", COMPILE, *words, TRITON_CACHE_DIR=str(folder), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    return done.stdout


@needed
def test_k_and_v_lie_apart_in_shared_memory(tmp_path):
    sizes = {"lengths_ptr": None, "CAUSAL": False, "ROWS": 64, "KEYS": 64, "HEAD": 32}
    shared = compiled(
        tmp_path, FLASH, "_attention", "*bf16", "done.metadata.shared", **sizes, q_col=1, k_row=1, v_col=1
    )
    q, k, v = (2 * rows * 32 for rows in (64, 64, 64))
    assert int(shared) >= q + k + v, LOST_DESCRIPTOR


@needed
def test_columns_are_added_up_before_rows_are_summed(tmp_path):
    code = compiled(tmp_path, SUM, "_row_sum", "*fp32", "done.asm['ttgir']", x_row=1, ROWS=256, COLS=2)
    assert "tt.reduce" in code
    assert "tt.reshape" not in code, REORDERED_SUM


@needed
@pytest.mark.skipif(not device_count(), reason="there is no CUDA device")
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "element_gaps"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_keys_behind_the_16th_have_their_values_on_a_gpu(layout, dtype):
    shapes = {"q": (2, 4, 32, 32), "k": (2, 2, 48, 32), "v": (2, 2, 48, 32)}
    tensors = {
        n: TensorRecipe(
            shape=shape,
            dtype=dtype,
            fill=Fill(distribution="normal", seed=3),
            layout=layout if n == "k" else "contiguous",
        )
        for n, shape in shapes.items()
    }
    case = Case(op="attention", tensors=tensors, attrs={"causal": False, "scale": 0.0})
    (subject,) = placed([FLASH], "cuda")
    with Examiner([subject]) as examiner:
        verdict = examiner.check([CheckRequest(case, (subject.key,))])[0].verdicts[subject.key]
    assert verdict.kind is Kind.PASS, verdict.message
