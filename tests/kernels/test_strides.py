"""Kernels in CUDA C++ whose launch asks for strides are given tensors with gaps, and others are not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.strategies import layouts_for
from kernel_assay.fuzz.planning.plan import new_campaign, targets
from kernel_assay.kernels.backends.cuda_support.driver import bounds_of
from kernel_assay.kernels.backends.cuda_support.formula import parse_formula
from kernel_assay.kernels.backends.cuda_support.strides import fits, layouts_of, refused
from kernel_assay.kernels.catalog import subjects_of, user_subject

DENSE = {"contiguous", "offset_one", "offset_room"}


@pytest.fixture
def write(tmp_path):
    """A softmax, one thread a row, that reads x where it is told."""

    def file(strides, x="r * ld + c", name="mine"):
        args = ["out", "x", "mask?", "x.shape[0]", "x.shape[1]", "mask.shape[0]", "scale", *strides]
        path = tmp_path / f"{name}.cu"
        path.write_text(
            f"""// ---
// op = "softmax"
// entry = "k"
// args = {json.dumps(args)}
// grid = "x.shape[0]"
// block = 1
// ---
__device__ double at(const float* x, const float* mask, long long i, long long j, float scale) {{
  return double(x[i]) * scale + (mask ? double(mask[j]) : 0.0);
}}
__global__ void k(float* out, const float* x, const float* mask, int rows, int cols, int masked, float scale,
                  long long ld, long long step, long long ldm) {{
  int r = blockIdx.x;
  if ((mask ? rows : 0) != masked) return;
  double top = -INFINITY, sum = 0;
  for (int c = 0; c < cols; ++c) {{
    double v = at(x, mask, {x}, r * ldm + c, scale);
    top = v > top || v != v ? v : top;
  }}
  for (int c = 0; c < cols; ++c) sum += exp(at(x, mask, {x}, r * ldm + c, scale) - top);
  for (int c = 0; c < cols; ++c) out[r * cols + c] = exp(at(x, mask, {x}, r * ldm + c, scale) - top) / sum;
}}
"""
        )
        return user_subject(str(path), ())

    return file


def softmax(layout="contiguous", mask="", shape=(3, 5), seed=1):
    def tensor(seed, layout):
        return TensorRecipe(
            shape=shape, dtype="float32", layout=layout, fill=Fill(distribution="normal", seed=seed), origin=(0, 0)
        )

    tensors = {"x": tensor(seed, layout)} | ({"mask": tensor(seed + 1, mask)} if mask else {})
    return Case(op="softmax", tensors=tensors, attrs={"scale": 1.0})


def verdicts(subject, cases):
    with Examiner([subject]) as examiner:
        checked = examiner.check([CheckRequest(case, (subject.key,)) for case in cases])
    return [one.verdicts[subject.key] for one in checked]


@given(
    st.lists(st.integers(0, 3), max_size=4).flatmap(
        lambda shape: st.tuples(st.just(shape), st.tuples(*[st.integers(0, 12)] * len(shape)))
    )
)
def test_without_free_axes_it_is_what_numpy_says(laid):
    shape, strides = laid
    x = np.lib.stride_tricks.as_strided(np.zeros(200, np.int16), shape, [2 * s for s in strides])
    assert fits(shape, strides) == x.flags.c_contiguous


@pytest.mark.parametrize(
    ("shape", "strides", "free", "right"),
    [
        ((3, 5), (8, 1), (0,), True),
        ((3, 5), (8, 1), (-2,), True),
        ((3, 5), (8, 1), (1,), False),
        ((3, 5), (10, 2), (0,), False),
        ((3, 5), (10, 2), (-1,), True),  # the rows lie behind one another
        ((3, 5), (11, 2), (-1,), False),
        ((3, 5), (1, 3), (0, 1), True),
        ((3, 5), (0, 1), (0,), True),
        ((2, 3, 5), (24, 8, 1), (1,), True),
        ((2, 3, 5), (25, 8, 1), (1,), False),
        ((2, 3, 5), (25, 8, 1), (0, 1), True),
        ((2, 3, 5), (99, 5, 1), (0,), True),
        ((1, 5), (77, 1), (), True),
        ((0, 5), (7, 7), (), True),
    ],
)
def test_free_axes(shape, strides, free, right):
    assert fits(shape, strides, free) == right


def test_layouts_by_the_axes_that_are_free():
    assert layouts_of(2, ()) == DENSE
    assert layouts_of(2, {0}) == DENSE | {"row_gaps", "broadcast"}
    assert layouts_of(2, {-1}) == DENSE | {"element_gaps"}
    assert layouts_of(2, {0, 1}) == set(LAYOUTS)
    assert layouts_of(1, ()) == DENSE | {"row_gaps", "transposed"}  # which have nothing to change there
    assert layouts_of(3, {1}) == DENSE | {"row_gaps"}
    assert layouts_of(0, ()) >= DENSE


def bytes_of(x):
    low, high = bounds_of(x)
    return high - low


def test_the_memory_of_a_tensor_ends_with_its_last_element():
    x = np.zeros((4, 8), np.float32)
    assert bytes_of(x) == 128
    assert bytes_of(x[:, :5]) == 4 * (3 * 8 + 5)
    assert bytes_of(x[:0]) == 0
    assert bytes_of(np.broadcast_to(x[0], (9, 8))) == 32


def test_what_is_refused_is_told_by_name():
    x = np.zeros((4, 8), np.float32)
    assert refused({"x": x}, {}) == ""
    assert refused({"x": x[:, :5]}, {}) == "takes contiguous tensors only"
    assert refused({"x": x[:, :5], "m": x[:, ::2]}, {"x": {0}}) == "takes contiguous tensors only"
    assert refused({"x": x[:, ::2]}, {"x": {0}}) == "takes x with gaps only where x.strides[0] tells of them"


ROWS = ["x.strides[0]", "1", "mask.strides[0]"]
ALL = ["x.strides[0]", "x.strides[-1]", "mask.strides[0]"]


def test_a_kernel_that_is_told_the_distance_of_rows_is_given_rows_with_gaps(write):
    names = list(LAYOUTS)
    cases = [softmax(name) for name in names] + [softmax("row_gaps", "offset_one"), softmax("offset_one", "row_gaps")]
    found = verdicts(write(ROWS), cases)
    given = {name: v.kind for name, v in zip(names, found[: len(names)], strict=True)}
    assert given == {name: Kind.UNSUPPORTED if name in {"element_gaps", "transposed"} else Kind.PASS for name in names}
    assert [v.kind for v in found[len(names) :]] == [Kind.PASS] * 2
    declined = found[names.index("transposed")].message
    assert declined == "takes x with gaps only where x.strides[0] tells of them"


def test_a_kernel_that_is_told_both_strides_is_given_every_layout(write):
    cases = [softmax(name, mask) for name in LAYOUTS for mask in ("", "row_gaps")]
    found = verdicts(write(ALL, x="r * ld + c * step"), cases)
    assert {v.kind for v in found} == {Kind.PASS}


def test_a_kernel_that_forgets_the_distance_of_rows_is_caught(write):
    (found,) = verdicts(write(ROWS, x="r * cols + c"), [softmax("row_gaps")])
    assert found.kind is Kind.NONFINITE  # of the gaps


def test_an_access_behind_the_last_row_is_told_with_the_gaps(write):
    found = verdicts(write(ROWS, x="(r + 1) * ld + c"), [softmax("row_gaps", seed=seed) for seed in range(4)])
    told = [v.message for v in found if v.kind is Kind.OUT_OF_BOUNDS]
    assert told  # of those that are run in check mode
    assert all("reads x[24]" in text and ", but it ends with x[20], its gaps counted" in text for text in told)


def test_the_cases_of_a_run_have_the_layouts_that_its_kernels_take(write):
    def layouts(*subjects):
        campaign = new_campaign("r1", 1, "conjecture", subjects)
        again = type(campaign).model_validate_json(campaign.model_dump_json())
        (target,) = targets(again)
        names = {name: set(layouts_for(spec)) for name, spec in target.contract.inputs.items()}
        assert {n for one in again.space.values() for n in one.layouts} == set().union(*names.values())
        assert ("strided" in campaign.goals) == bool({"row_gaps", "element_gaps"} & set().union(*names.values()))
        return names

    rows, dense = write(ROWS), write(["5", "1", "5"], name="dense")
    torch = next(s for s in subjects_of("softmax") if s.name == "torch_softmax")
    assert layouts(rows) == {name: DENSE | {"row_gaps", "broadcast"} for name in ("x", "mask")}
    assert layouts(dense, torch) == {"x": DENSE, "mask": DENSE}  # a person's own decide
    assert layouts(rows, dense) == layouts(rows)
    assert layouts(torch) == {"x": set(LAYOUTS), "mask": set(LAYOUTS)}
    beside = Path(rows.path).with_suffix(".py")
    beside.write_text("OP = 'softmax'\nBACKEND = 'numpy'\n\n\ndef run(x, *, scale, mask=None):\n    return x\n")
    assert layouts(rows, user_subject(str(beside), ())) == layouts(torch)


def test_a_formula_knows_strides_in_elements():
    x = np.zeros((4, 8), np.float16)[:, :5]
    assert parse_formula("grid", "x.strides[0] + x.strides[-1]").value({"x": x}) == 9
    assert parse_formula("grid", "x.strides[0] + x.strides[-1]").strides == {("x", 0), ("x", -1)}
    assert parse_formula("grid", "mask.strides[0] + mask.size + mask.shape[1]").value({"x": x}) == 0


@pytest.mark.parametrize(
    "text", ["x.strides", "x.strides[n]", "x.strides[1.5]", "x.strides['a']", "strides[0]", "x.T[0]"]
)
def test_what_is_no_stride(text):
    with pytest.raises(ValueError, match=r"x.shape\[0\], x.strides\[0\], x.size and x.address only"):
        parse_formula("grid", text)


@pytest.mark.parametrize("fact", ["shape", "strides"])
def test_an_axis_that_a_tensor_has_not(fact):
    formula = parse_formula("grid", f"x.{fact}[2]")
    with pytest.raises(IndexError, match="a formula speaks of axis 2 of x, which has 2"):
        formula.value({"x": np.zeros((1, 1))})


def test_strides_of_a_tensor_that_the_op_has_not(write):
    subject = write(["y.strides[0]", "1", "1"])
    with pytest.raises(UsageError, match=r"args: 'y' is neither a name of the op nor in dims"), Examiner([subject]):
        pass
