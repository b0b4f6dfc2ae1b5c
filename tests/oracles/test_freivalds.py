"""Two sums of each row with random signs: right products never alarm, wrong ones do, and nothing is kept."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.freivalds import NUMPY, Library, Product, algebra, judge_product, worst
from kernel_assay.oracles.numerics.products import RowNorms, aligned_more, row_norms_budget
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import Question

CLAIMS = (
    Numerics(),
    Numerics(accumulate="hopper", tf32="rz"),
    Numerics(accumulate="volta", ftz=False),
    Numerics(accumulate="float16"),
)
SUBJECT = Subject(op="gemm", name="mine", backend="numpy")


def tensor(shape, dtype, seed=1, name="normal", **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=name, seed=seed), **fields)


def exact(case):
    """The inputs, and the product correctly rounded."""
    inputs = materialize_all(case)
    reference = Reference(contract_of(case.op), case, inputs)
    fmt = format_of(reference.specs["out"].dtype)
    want = reference.want["out"]
    return inputs, round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype), reference


def product(m, n, k, dtype="float16", name="normal", **attrs):
    """A case with a summand if it has beta, and a right output: float32 sums."""
    tensors = {"a": tensor((m, k), dtype, 1, name), "b": tensor((k, n), dtype, 2, name)}
    if "beta" in attrs:
        tensors["c"] = tensor((m, n), dtype, 3, name)
    case = Case(op="gemm", tensors=tensors, attrs=attrs)
    inputs = materialize_all(case)
    a, b = (inputs[name].astype(np.float64 if dtype == "float64" else np.float32) for name in "ab")
    out = a.dtype.type(attrs.get("alpha", 1)) * (a @ b)
    if "beta" in attrs:
        out = out + a.dtype.type(attrs["beta"]) * inputs["c"].astype(a.dtype)
    with np.errstate(over="ignore"):
        return Product(contract_of("gemm"), case, inputs, out.astype(dtype))


@pytest.mark.parametrize("op", ["gemm", "gemm_int8"])
def test_right_products_never_alarm(op):
    random, contract, known, rows = Random(f"freivalds {op}"), contract_of(op), 0, 0
    for number in range(700):
        case, _ = generate(Target(contract, max_elements=1 << 11), random)
        inputs, out, _ = exact(case)
        found = algebra(Product(contract, case, inputs, out), CLAIMS[number % len(CLAIMS)])
        assert found.suspects.size == 0, case
        known, rows = known + len(found.rho) - found.left_out, rows + np.isfinite(out).all(axis=1).sum()
    assert known > 0.9 * rows, "of numbers"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "attrs", [{}, {"alpha": 0.3, "beta": -1.7}, {"alpha": 0.0, "beta": 1.0}, {"alpha": -1.0, "beta": 0.0}]
)
@pytest.mark.parametrize("name", ["normal", "wide", "positive", "constant_rows"])
@pytest.mark.parametrize("shape", [(1, 1, 32), (129, 65, 257), (300, 7, 1000)])
def test_sums_in_float32_are_right(dtype, attrs, name, shape):
    one = product(*shape, dtype, name, **attrs)
    found = algebra(one, Numerics())
    assert found.left_out == (~np.isfinite(one.out.astype(np.float64))).any(axis=1).sum()
    assert found.suspects.size == 0
    assert np.nanmax(found.rho) > 0 or shape == (1, 1, 32) or attrs.get("alpha") == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("attrs", [{}, {"alpha": 0.3, "beta": -1.7}])
def test_one_element_that_is_wrong_by_much_is_found(dtype, attrs):
    one = product(400, 300, 200, dtype, **attrs)
    one.out[123, 45] += 64
    said, found = judge_product(one, SUBJECT)
    assert found.suspects.tolist() == [123]
    assert 123 * 300 + 45 in worst(one, found)
    assert said.verdict.kind is Kind.MISMATCH
    assert said.verdict.message.startswith("out[123, 45] is ")
    assert said.shares[0].algebra == 120000


def test_a_shifted_row_is_found():
    one = product(400, 300, 200)
    one.out[7] = np.roll(one.out[7], 1)
    said, found = judge_product(one, SUBJECT)
    assert found.suspects.tolist() == [7]
    assert (said.verdict.kind, said.verdict.signature.index_pattern) == (Kind.MISMATCH, "one_row")


def test_right_products_pass():
    said, found = judge_product(product(400, 300, 200), SUBJECT)
    assert (said.verdict.kind, found.left_out) == (Kind.PASS, 0)
    assert said.shares[0].text == "of 120000 elements of out, 120000 held to the algebra of a product"


def integers(m, n, k, dtype="int8", alpha=1, beta=1):
    tensors = {"a": tensor((m, k), dtype, 1, "uniform"), "b": tensor((k, n), dtype, 2, "uniform")}
    tensors["c"] = tensor((m, n), "int32", 3, "uniform")
    case = Case(op="gemm_int8", tensors=tensors, attrs={"alpha": alpha, "beta": beta})
    inputs, out, _ = exact(case)
    return Product(contract_of("gemm_int8"), case, inputs, out)


@pytest.mark.parametrize("attrs", [(1, 0), (1 << 20, -2), (-1, 1)])
@pytest.mark.parametrize("off", [1, -1, 1 << 31])
def test_integers_may_be_wrong_by_nothing(attrs, off):
    one = integers(200, 150, 333, "int8", *attrs)
    assert algebra(one, Numerics()).suspects.size == 0
    one.out[20, 149] = np.array(int(one.out[20, 149]) + off).astype(np.int64).astype(np.int32)
    said, found = judge_product(one, SUBJECT.but(op="gemm_int8"))
    assert found.suspects.tolist() == [20]
    assert said.verdict.message.startswith("out[20, 149] is ")


def test_rows_that_are_no_numbers_are_left_out_and_counted():
    one = product(50, 40, 30)
    one.out[3, 4], one.out[5, 5] = np.nan, np.inf
    one.out[7, 7] += 64
    found = algebra(one, Numerics())
    assert np.flatnonzero(np.isnan(found.rho)).tolist() == [3, 5]
    assert (found.left_out, found.elements, found.suspects.tolist()) == (2, 48 * 40, [7])
    special = (Special(value="nan", place="first"),)
    case = one.case.but(tensors={**one.case.tensors, "a": one.case.tensors["a"].but(specials=special)})
    assert np.isnan(algebra(Product(one.contract, case, materialize_all(case), one.out), Numerics()).rho[0])


def test_saturated_rows_are_left_out():
    one = product(50, 40, 30)
    one.out[3, 4] = np.finfo(np.float16).max
    assert algebra(one, Numerics()).suspects.tolist() == [3]
    assert np.isnan(algebra(one, Numerics(store="saturate")).rho[3])


def test_undeclared_arithmetic_is_seen():
    one = product(300, 400, 500, "float32")
    cut = {name: (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for name, x in one.inputs.items()}
    coarse = replace(one, out=cut["a"] @ cut["b"])
    assert algebra(coarse, Numerics(tf32="rz")).suspects.size == 0
    assert algebra(coarse, Numerics()).suspects.size > 100


def test_the_budget_of_norms_is_no_less_than_the_norm_of_budgets():
    random, contract = Random("norms"), contract_of("gemm")
    for number in range(300):
        case, _ = generate(Target(contract, max_elements=1 << 10), random)
        inputs, _, reference = exact(case)
        numerics = CLAIMS[number % len(CLAIMS)]
        error = np.broadcast_to(reference.budget(numerics)["out"].error, reference.want["out"].shape)
        q = Question(case, inputs, reference.attrs, reference.want, numerics, reference.iid)
        a, b = q.real("a"), q.real("b")
        with np.errstate(all="ignore"):
            size = np.abs(a) @ np.abs(b)
            root = np.sqrt((a * a) @ (b * b)) if case.dtype != "float64" else size
            least = 2.0**-126 / min(1.0, abs(float(reference.attrs["alpha"])) or 1.0) if numerics.ftz else 0.0
            low_a, low_b = (np.where(np.abs(x) < least, np.abs(x), 0.0) for x in (a, b))
            lost = low_a @ np.abs(b) + np.abs(a) @ low_b if case.dtype != "float64" else 4 * size
            more = aligned_more(q, np.abs(a), np.abs(b))
            both = [a @ b, size, root, lost, reference.want["out"], 0.0 * size if more is None else more]
            *norm, more = [np.sqrt((x * x).sum(axis=1)) for x in both]
            c = np.sqrt((q.real("c") ** 2).sum(axis=1)) if "c" in inputs else None
            bound = row_norms_budget(q, a.shape[1], b.shape[1], RowNorms(*norm, c=c, more=more))
            mine = np.sqrt((error * error).sum(axis=1))
        known = np.isfinite(bound) & np.isfinite(mine) & (mine < 1e150) & np.isfinite(0.0 if c is None else c)
        assert (mine[known] <= bound[known] * (1 + 1e-9)).all(), case


def test_matrices_may_be_of_another_library():
    torch = pytest.importorskip("torch")
    one = product(60, 50, 40, "float16", alpha=0.3, beta=-1.7)
    one.out[3, 4] += 64
    library = Library(lambda s: s.double(), torch.from_numpy, lambda v: v.numpy())
    there = {name: torch.from_numpy(x) for name, x in one.inputs.items()}
    other = Product(one.contract, one.case, there, torch.from_numpy(one.out), library)
    mine, theirs = algebra(one, Numerics()), algebra(other, Numerics())
    np.testing.assert_allclose(theirs.rho, mine.rho, rtol=1e-3)
    assert worst(other, theirs) == worst(one, mine)
    assert one.library is NUMPY


def test_other_ops_are_refused():
    case = Case(op="gemv", tensors={"a": tensor((3, 4), "float32"), "x": tensor((4,), "float32")})
    with pytest.raises(UsageError, match="gemv is no product of two matrices"):
        algebra(Product(contract_of("gemv"), case, materialize_all(case), np.zeros(3)), Numerics())
