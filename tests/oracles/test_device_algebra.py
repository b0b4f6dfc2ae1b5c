"""The algebra of products says of tensors on a device what it says of arrays; with a GPU, there too."""

from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.freivalds import Product, algebra, worst
from kernel_assay.oracles.large.parts import around
from kernel_assay.oracles.large.sampled import judge_parts
from kernel_assay.oracles.numerics.rounding import round_to

torch = pytest.importorskip("torch")

from kernel_assay.corpus.inputs.torch.field import CARRIERS, dtype_of  # noqa: E402
from kernel_assay.oracles.device import algebra as there  # noqa: E402
from kernel_assay.oracles.device import slabs  # noqa: E402
from kernel_assay.oracles.device.algebra import Summed, algebra_on  # noqa: E402

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
SUBJECT = Subject(op="gemm", name="mine", backend="torch")
NOISE = 0.02
"""How far ratios may be apart that come from sums in another order, in tolerances."""


def sent(array, device="cpu"):
    fmt = format_of(array.dtype)
    bits = torch.from_numpy(np.ascontiguousarray(array).view(f"i{fmt.bits // 8}"))
    assert bits.dtype == CARRIERS[fmt.bits]
    return bits.view(dtype_of(fmt)).to(device)


def right(case):
    """Inputs, and the product correctly rounded."""
    inputs = materialize_all(case)
    reference = Reference(contract_of(case.op), case, inputs)
    fmt, want = format_of(reference.specs["out"].dtype), reference.want["out"]
    return inputs, round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype)


def case_of(m, n, k, dtype="float16", **attrs):
    sizes = {"a": (m, k), "b": (k, n)} | ({"c": (m, n)} if "beta" in attrs else {})
    op = "gemm_int8" if dtype == "int8" else "gemm"
    dtypes = {"a": dtype, "b": dtype, "c": "int32" if dtype == "int8" else dtype}
    fills = [Fill(distribution="uniform" if dtype == "int8" else "normal", seed=seed) for seed in (1, 2, 3)]
    recipes = zip(sizes.items(), fills, strict=False)
    tensors = {name: TensorRecipe(shape=shape, dtype=dtypes[name], fill=fill) for (name, shape), fill in recipes}
    return Case(op=op, tensors=tensors, attrs=attrs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["gemm", "gemm_int8"])
def test_it_says_what_numpy_says_and_never_alarms(op, device):
    random, contract, rows = Random(f"algebra {op}"), contract_of(op), 0
    for _ in range(150):
        case, _ = generate(Target(contract, max_elements=1 << 11), random)
        inputs, out = right(case)
        mine = algebra(Product(contract, case, inputs, out), SUBJECT.numerics)
        said = algebra_on(case, SUBJECT, {"out": sent(out, device)}, device)
        assert isinstance(said, Summed)
        assert (said.rows, said.places) == ((), ())
        assert (said.left_out, said.share.algebra, said.share.of) == (mine.left_out, mine.elements, out.size)
        known = mine.rho[~np.isnan(mine.rho)]
        assert abs(said.rho - known.max(initial=0.0)) < NOISE
        rows += len(known)
    assert rows > 500


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "attrs"),
    [
        ("float16", {}),
        ("bfloat16", {"alpha": 0.3, "beta": -1.7}),
        ("float32", {"alpha": -1.0, "beta": 0.0}),
        ("float64", {}),
        ("float8_e4m3fn", {}),
        ("int8", {"alpha": 3, "beta": -2}),
    ],
)
def test_one_wrong_element_is_found_and_judged(dtype, attrs, device):
    case = case_of(400, 300, 200, dtype, **attrs)
    subject = SUBJECT.but(op=case.op)
    inputs, out = right(case)
    assert algebra_on(case, subject, {"out": sent(out, device)}, device).rows == ()
    out[123, 45] += np.array(1 if dtype == "int8" else 64).astype(out.dtype)
    said = algebra_on(case, subject, {"out": sent(out, device)}, device)
    product = Product(contract_of(case.op), case, inputs, out)
    assert said.rows == (123,)
    first, *_ = worst(product, algebra(product, subject.numerics))
    assert (said.places[0], len(said.places)) == (first, 2)
    parts, left = around(contract_of(case.op), case, "out", said.places)
    judged = judge_parts(parts, subject, {"out": out})
    assert (left, judged.verdict.kind) == ([], Kind.MISMATCH)
    assert judged.verdict.message.startswith("out[123, 45] is ")
    assert said.share.plus(judged.shares[0]).algebra == 120000


def test_what_a_subject_declares_counts():
    case = case_of(300, 400, 500, "float32")
    cut = {n: (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for n, x in materialize_all(case).items()}
    out = {"out": sent(cut["a"] @ cut["b"])}
    assert algebra_on(case, SUBJECT.but(numerics=Numerics(tf32="rz")), out, "cpu").rows == ()
    assert len(algebra_on(case, SUBJECT, out, "cpu").rows) > 100


def test_rows_that_are_no_numbers_are_left_out():
    case = case_of(50, 40, 30)
    _, out = right(case)
    out[3, 4], out[5, 5] = np.nan, np.inf
    out[7, 7] += 64
    said = algebra_on(case, SUBJECT, {"out": sent(out)}, "cpu")
    assert (said.rows, said.left_out, said.share.algebra) == ((7,), 2, 48 * 40)


def test_other_ops_have_none():
    tensors = {"a": case_of(3, 2, 4).tensors["a"], "x": TensorRecipe(shape=(4,), dtype="float16")}
    assert algebra_on(Case(op="gemv", tensors=tensors), SUBJECT, {"out": torch.zeros(3)}, "cpu") is None
    assert algebra_on(case_of(3, 2, 4).but(op="unheard_of"), SUBJECT, {"out": torch.zeros(3, 2)}, "cpu") is None


def test_what_a_user_calls_so_may_be_something_else(tmp_path):
    file = tmp_path / "gemm.py"
    file.write_text("from kernel_assay.oracles.contracts.gemm import CONTRACT\n")
    out = {"out": sent(right(case_of(3, 2, 4))[1])}
    try:
        add_contract(file)
        assert algebra_on(case_of(3, 2, 4), SUBJECT, out, "cpu") is None
    finally:
        forget_contracts()
    assert algebra_on(case_of(3, 2, 4), SUBJECT, out, "cpu") is not None


def test_what_does_not_fit_has_none(monkeypatch):
    case = case_of(30, 20, 40)
    out = {"out": sent(right(case)[1])}
    monkeypatch.setattr(slabs, "CPU_ROOM", there._room_of(case))
    assert algebra_on(case, SUBJECT, out, "cpu") is not None
    monkeypatch.setattr(slabs, "CPU_ROOM", there._room_of(case) - 1)
    assert algebra_on(case, SUBJECT, out, "cpu") is None


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room in one piece"), UsageError("too large")])
def test_what_cannot_be_summed_is_no_failure(error, monkeypatch):
    def fails(*_):
        raise error

    case = case_of(30, 20, 40)
    monkeypatch.setattr(there, "algebra", fails)
    assert algebra_on(case, SUBJECT, {"out": sent(right(case)[1])}, "cpu") is None


def test_a_slab_takes_no_more_than_it_says(meter, monkeypatch):
    monkeypatch.setattr("kernel_assay.oracles.large.freivalds.SLAB", 1 << 12)
    case = case_of(200, 300, 400, "float32", alpha=0.5, beta=0.5)
    _, out = right(case)
    held, slab = {"out": sent(out)}, 8 << 12
    inputs = {recipe.shape: there.materialize(recipe, "cpu") for recipe in case.tensors.values()}
    monkeypatch.setattr(there, "materialize", lambda recipe, _: inputs[recipe.shape])
    with meter() as used:
        algebra_on(case, SUBJECT.but(numerics=Numerics(ftz=True)), held, "cpu")
    before = sum(x.untyped_storage().nbytes() for x in (*inputs.values(), *held.values()))
    assert slab < used.peak - before <= there.STEPS * slab
