"""Estimated budgets: right kernels pass in any order of their sums, wrong ones do not; E is near the derived one."""

import runpy
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.checking.check import interface_of
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.kernels.backends.support.signature import bind
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, PINF, Contract, Dim, Input, Output

ROOT = Path(__file__).resolve().parents[2]
FLOATS = ("float32", "float16", "bfloat16", "float64")
MATRIX, ROW = ("rows", "cols"), ("rows",)


def op(reference, out=MATRIX, inputs=("x",), **fields):
    """A contract as a user writes it: matrices, and vectors called w."""
    axes = {name: Input(("cols",) if name == "w" else MATRIX) for name in inputs}
    return Contract(
        name=reference.__name__,
        summary="an op of one's own",
        dims={"rows": Dim(1, 48), "cols": Dim(1, 700)},
        inputs=axes,
        outputs={"out": Output(out, like=inputs[0])},
        variants=tuple(dict.fromkeys(inputs, t) for t in fields.pop("dtypes", FLOATS)),
        reference=lambda **given: {"out": reference(**given)},
        **fields,
    )


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rmsnorm(x, w, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def dots(x, y):
    return np.einsum("ij,ij->i", x, y)


def products(x, y):
    return x @ y.T


def totals(x):
    return x.sum(axis=-1)


def differences(x, y):
    return np.sum(x - y, axis=-1)


def logsumexp(x):
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[:, None]).sum(axis=-1))


CONTRACTS = {
    "silu": op(silu),
    "softmax": op(softmax),
    "rmsnorm": op(rmsnorm, inputs=("x", "w"), attrs={"eps": (1e-5, 1e-6, 0.1)}),
    "dots": op(dots, out=ROW, inputs=("x", "y")),
    "products": op(products, out=("rows", "rows"), inputs=("x", "y")),
    "totals": op(totals, out=ROW),
    "differences": op(differences, out=ROW, inputs=("x", "y")),
    "logsumexp": op(logsumexp, out=ROW),
}


def sequential(t):
    return np.add.accumulate(t, axis=-1, dtype=t.dtype)[..., -1]


def blocked(t):
    width = -t.shape[-1] % 32
    padded = np.concatenate([t, np.zeros((*t.shape[:-1], width), t.dtype)], axis=-1)
    return sequential(padded.reshape(*t.shape[:-1], -1, 32).sum(axis=-1, dtype=t.dtype))


ORDERS = {
    "pairwise": lambda t: t.sum(axis=-1, dtype=t.dtype),
    "sequential": sequential,
    "reversed": lambda t: sequential(t[..., ::-1]),
    "blocked": blocked,
}


def exponentials(x):
    top = x.max(axis=-1, keepdims=True)
    return top, np.exp(x - top)


KERNELS = {
    "silu": lambda _, x: x * (1 / (1 + np.exp(-x))),
    "softmax": lambda total, x: (e := exponentials(x)[1]) * (1 / total(e))[:, None],
    "rmsnorm": lambda total, x, w, eps: (
        x * (1 / np.sqrt(total(x * x) / x.dtype.type(x.shape[-1]) + x.dtype.type(eps)))[:, None] * w
    ),
    "dots": lambda total, x, y: total(x * y),
    "products": lambda total, x, y: total(x[:, None] * y[None]),
    "totals": lambda total, x: total(x),
    "differences": lambda total, x, y: total(x - y),
    "logsumexp": lambda total, x: (pair := exponentials(x))[0][:, 0] + np.log(total(pair[1])),
}
"""The same in other words, in the type of the inputs; total sums along the last axis."""


def some(contract, number, dtypes=()):
    """That many cases, as the search makes them."""
    for i in range(number):
        yield generate(Target(contract, dtypes=dtypes), Random(f"{contract.name}{i}"))[0]


def case_of(contract, *, dtype="float32", distribution="normal", rows=4, cols=16, **attrs):
    tensors = {
        name: TensorRecipe(
            shape=tuple({"rows": rows, "cols": cols}[axis] for axis in spec.axes),
            dtype=dtype,
            fill=Fill(distribution=distribution, seed=i),
        )
        for i, (name, spec) in enumerate(contract.inputs.items())
    }
    return Case(op=contract.name, tensors=tensors, attrs=attrs)


def verdict(reference, out, numerics=None):
    subject = Subject(op=reference.case.op, name="mine", backend="numpy", numerics=numerics or Numerics())
    out = np.ascontiguousarray(out)
    report = OutputReport(name="out", shape=out.shape, dtype=out.dtype.name)
    return judge(reference, subject, Execution(status=Status.OK, subject="mine", outputs=(report,)), {"out": out})


def run(kernel, reference, total=ORDERS["pairwise"]):
    """A kernel's output, computed in float32 (float64), stored in the output's type."""
    wide = np.float64 if reference.case.dtype == "float64" else np.float32
    inputs = [v.astype(wide) for v in reference.inputs.values()]
    with np.errstate(all="ignore"):
        out = kernel(total, *inputs, **reference.case.attrs)
        return out.astype(format_of(reference.specs["out"].dtype).dtype)


def failures(contract, kernel, cases, total=ORDERS["pairwise"], numerics=None):
    found = []
    for case in cases:
        reference = Reference(contract, case, materialize_all(case))
        said = verdict(reference, run(kernel, reference, total), numerics)
        if said.failed:
            found.append(f"{case.label}: {said.message}")
    return found


@pytest.mark.parametrize("name", CONTRACTS)
def test_right_kernels_pass_in_any_order(name):
    contract = CONTRACTS[name]
    for case in some(contract, 200):
        reference = Reference(contract, case, materialize_all(case))
        for order, total in ORDERS.items():
            said = verdict(reference, run(KERNELS[name], reference, total))
            assert not said.failed, f"{order}: {case.label}: {said.message}"


def half(t):
    """A sum in a float16 accumulator, of terms rounded to float16."""
    return np.add.accumulate(t.astype(np.float16), axis=-1, dtype=np.float16)[..., -1].astype(t.dtype)


PLANTED = {
    "silu": {"one place aside": lambda total, x: np.roll(KERNELS["silu"](total, x), 1, axis=-1)},
    "softmax": {
        "no last term": lambda total, x: KERNELS["softmax"](lambda t: total(t[:, : max(1, t.shape[1] - 1)]), x),
        "float16 sum": lambda _, x: KERNELS["softmax"](half, x),
    },
    "rmsnorm": {
        "eps ten times as large": lambda total, x, w, eps: KERNELS["rmsnorm"](total, x, w, 10 * eps),
        "float16 sum": lambda _, x, w, eps: KERNELS["rmsnorm"](half, x, w, eps),
    },
    "dots": {
        "no last term": lambda total, x, y: total((x * y)[:, :-1]) if x.shape[1] > 1 else total(x * y),
        "swapped": lambda total, x, y: total(x[:, ::-1] * y),
        "float16 sum": lambda _, x, y: half(x * y),
    },
    "products": {"float16 operands": lambda total, x, y: total(x[:, None].astype(np.float16) * y[None])},
    "totals": {
        "no first term": lambda total, x: total(x[:, 1:]) if x.shape[1] > 1 else total(x),
        "float16 sum": lambda _, x: half(x),
    },
    "differences": {"half a term": lambda total, x, y: total(x - y) - (x - y)[:, -1] / 2},
    "logsumexp": {"no maximum": lambda total, x: np.log(total(np.exp(x)))},
}


@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name, bugs in PLANTED.items() for bug in bugs])
def test_wrong_kernels_fail(name, bug):
    contract = CONTRACTS[name]
    found = failures(contract, PLANTED[name][bug], some(contract, 200, ("float32",)))
    assert len(found) >= 25, f"{len(found)} of 200"


@pytest.mark.parametrize("cols", [4, 100, 3000])
def test_a_narrow_accumulator_shows_at_any_length(cols):
    case = case_of(CONTRACTS["dots"], rows=32, cols=cols)
    assert failures(CONTRACTS["dots"], PLANTED["dots"]["float16 sum"], [case])
    assert failures(CONTRACTS["dots"], KERNELS["dots"], [case], sequential) == []


FILES = (p for name in ("silu", "softmax", "rmsnorm", "layernorm") for p in ROOT.glob(f"kernels/{name}/bug_*.py"))
BUGS = sorted(p for p in FILES if not p.stem.startswith("bug_triton"))
"""Those that are functions of arrays."""


def called(bound, contract, reference):
    """What a kernel makes of a case, whatever its form."""
    extra = {name: x for name, x in reference.inputs.items() if name in contract.optional}
    given = [x for name, x in reference.inputs.items() if name not in extra]
    named = {**extra, **bound.attributes(reference.case.attrs)}
    if bound.returns:
        return bound.call(*given, **named)
    out = np.empty(reference.specs["out"].shape, format_of(reference.specs["out"].dtype).dtype)
    bound.call(out, *given, **named)
    return out


@pytest.mark.parametrize("path", BUGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_the_bugs_planted_in_the_house_are_found(path):
    house = contract_of(path.parent.name)
    said = runpy.run_path(str(path))
    bound, dtypes, seen = bind(said["run"], interface_of(house), path.name), said.get("DTYPES", ()), 0
    for i in count():
        case = generate(Target(house), Random(f"{house.name}{i}"))[0]
        derived = Reference(house, case, materialize_all(case))
        if bound.declines(case.attrs, case.tensors) or (dtypes and case.dtype not in dtypes):
            continue
        out = called(bound, house, derived)
        if verdict(derived, out).failed:
            estimated = Reference(replace(house, budget=None), case, derived.inputs)
            seen += 1
            if verdict(estimated, out).failed:
                return
        assert seen < 4, "the derived budget finds it"


@pytest.mark.parametrize(("name", "low", "high"), [("silu", 1.2, 2.0), ("softmax", 1.2, 2.1), ("rmsnorm", 1.5, 3.0)])
def test_an_estimated_budget_is_close_to_the_derived(name, low, high):
    derived, ratios = contract_of(name), []
    for case in some(derived, 120):
        inputs = materialize_all(case)
        budgets = [
            Reference(c, case, inputs).budget(Numerics())["out"] for c in (replace(derived, budget=None), derived)
        ]
        assert [b.estimated for b in budgets] == [True, False]
        pair = np.broadcast_arrays(*(b.error for b in budgets))
        usable = np.isfinite(pair[0]) & np.isfinite(pair[1]) & (pair[1] > 0)
        if usable.any():
            ratios.append(float(np.median(pair[0][usable] / pair[1][usable])))
    assert low < np.median(ratios) < high


def test_the_message_calls_an_estimated_budget_so():
    contract = CONTRACTS["silu"]
    reference = Reference(contract, case_of(contract), materialize_all(case_of(contract)))
    assert contract.estimated
    assert not contract_of("silu").estimated
    out = run(KERNELS["silu"], reference)
    out[1, 2] += 0.001  # a thousand times it; a million is no number that says anything
    assert "times its estimated error budget of" in verdict(reference, out).message


def test_moves_and_comparisons_have_no_error():
    contract = op(lambda x: np.maximum(np.flip(x, axis=-1), 0))
    case = case_of(contract)
    reference = Reference(contract, case, materialize_all(case))
    assert not np.any(reference.budget(Numerics(ftz=False))["out"].error)
    assert verdict(reference, np.maximum(reference.inputs["x"][:, ::-1], 0)).kind is Kind.PASS


def test_copies_need_no_budget():
    embedding = replace(contract_of("embedding"), budget=None)
    assert not embedding.estimated
    tensors = {
        "table": TensorRecipe(shape=(4, 3), dtype="float32", fill=Fill(distribution="normal")),
        "indices": TensorRecipe(shape=(2,), dtype="int64", fill=Fill(distribution="uniform", params={"below": 4})),
    }
    case = Case(op="embedding", tensors=tensors)
    assert Reference(embedding, case, materialize_all(case)).budget(Numerics())["out"].bitwise


@pytest.mark.parametrize(("declared", "kernel"), [
    ({"accumulate": "float16"}, lambda _, x, y: half(x * y)),
    ({"tf32": "rn"}, lambda total, x, y: total(x * (1 + 2.0**-12) * y).astype(x.dtype)),
    ({"intermediates": {"xy": "float16"}}, lambda total, x, y: total((x * y).astype(np.float16).astype(x.dtype))),
])  # fmt: skip
def test_the_estimate_follows_what_a_kernel_declares(declared, kernel):
    contract = CONTRACTS["dots"]
    cases = [case_of(contract, rows=8, cols=n, distribution=d) for n in (8, 300) for d in ("positive", "normal")]
    assert failures(contract, kernel, cases)
    assert failures(contract, kernel, cases, numerics=Numerics(**declared)) == []


@pytest.mark.parametrize(("name", "out"), [("dots", (np.inf, 2.0)), ("products", ((np.inf, np.inf), (1.0, 2.0)))])
@pytest.mark.parametrize(("bits", "declared", "fails"), [
    (0x7F800001, {"tf32": "rn"}, False),
    (0x7F800001, {}, True),
    (0x7FC00000, {"tf32": "rn"}, True),
])  # fmt: skip
def test_a_nan_that_tf32_reads_as_inf_is_free_where_tf32_is_declared(name, out, bits, declared, fails):
    case = case_of(CONTRACTS[name], rows=2, cols=1, distribution="ones")
    x = np.array([[bits], [0x3F800000]], np.uint32).view(np.float32)
    reference = Reference(CONTRACTS[name], case, {"x": x, "y": np.array([[1.0], [2.0]], np.float32)})
    assert verdict(reference, np.array(out, np.float32), Numerics(**declared)).failed == fails


def test_subnormal_results_may_vanish_unless_declared_otherwise():
    contract = op(lambda x: x * 0.5)
    case = case_of(contract, rows=1, cols=1).but(
        tensors={"x": TensorRecipe(shape=(1, 1), dtype="float32", pokes=((0, 0x00C00000),))}
    )
    reference = Reference(contract, case, materialize_all(case))
    assert 0 < reference.want["out"][0, 0] < np.finfo(np.float32).tiny
    flushed = np.zeros((1, 1), np.float32)
    assert verdict(reference, flushed).kind is Kind.PASS
    assert verdict(reference, flushed, Numerics(ftz=False)).failed


def cube_root(x):
    return np.sign(x) * np.abs(x) ** (1 / 3)


@pytest.mark.parametrize(("out", "fails"), [(1e-40 ** (1 / 3), False), (0.0, False), (2e-14, True), (-5.6e-16, True)])
def test_a_flushed_operand_makes_0_or_nothing_else_of_what_is_far_from_it(out, fails):
    contract = op(cube_root)
    reference = Reference(contract, case_of(contract, rows=1, cols=1), {"x": np.array([[1e-40]], np.float32)})
    assert verdict(reference, np.array([[out]], np.float32)).failed is fails
    assert verdict(reference, np.array([[out]], np.float32), Numerics(ftz=False)).failed is (fails or out == 0.0)


def accepted(contract, *values, dtype="float32"):
    """The accept masks for a row of these values."""
    x = np.array([values], dtype)
    case = case_of(contract, rows=1, cols=len(values), dtype=dtype)
    budget = Reference(contract, case, {"x": x}).budget(Numerics())["out"]
    masks = np.full(len(values), INTERVAL) if budget.accept is None else budget.accept.reshape(-1)
    return [int(m) for m in masks]


def test_an_overflow_inside_may_show_outside():
    assert accepted(op(lambda x: np.sqrt(x * x)), 1e19, 1e20) == [INTERVAL, INTERVAL | PINF]
    assert accepted(op(lambda x: np.sqrt(x * x)), 1e20, dtype="float64") == [INTERVAL]


def test_a_nan_that_is_sure_is_wanted_and_one_that_is_not_is_free():
    assert accepted(op(silu), np.nan, -np.inf, np.inf, 1.0) == [NAN, NAN, PINF, INTERVAL]
    spread = op(lambda x: (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True))
    assert set(accepted(spread, 0.1, 0.1, 0.1)) == {31}, "0 / 0, but not for a mean that is off by one bit"


def masked(x):
    total = x.sum(axis=-1)
    total[total < 0] = 0
    return total


@pytest.mark.parametrize("formula", [
    lambda x: np.where((t := x.sum(axis=-1)) > 0, t, 0),
    lambda x: (t := x.sum(axis=-1)) * (t > 0),
    lambda x: np.maximum(x.sum(axis=-1), 0),
    masked,
])  # fmt: skip
def test_a_decision_that_rounding_can_turn_leaves_both_ways_open(formula):
    contract = op(formula, out=ROW)
    cases = [case_of(contract, distribution=d, rows=40, cols=70) for d in ("cancellation", "normal", "offset")]
    for total in ORDERS.values():
        assert failures(contract, lambda total, x: np.maximum(total(x), 0), cases, total) == []
        assert failures(contract, lambda total, x: np.maximum(total(x), -1), cases, total)


BESIDE = 0.5


def beside(x):
    return np.asarray(x, np.float64) * BESIDE


def assigned(x):
    out = np.zeros(x.shape[0])
    for i, row in enumerate(x):
        out[i] = (row * row).sum()
    return out


def collected(x):
    return np.array([np.float64(0.5) * np.dot(row, row) for row in x])


def in_place(x):
    y = x.copy()
    y[y < 0] *= 0.25
    y += np.full_like(y, 2)
    return y.astype(np.float64)


def guarded(x):
    total = np.abs(x).sum(axis=-1, keepdims=True)
    return np.divide(x, total, out=np.zeros_like(x), where=total != 0)


def tabled(x):
    angle = np.arange(x.shape[0])[:, None] * 10000.0 ** (-np.arange(x.shape[1]) / x.shape[1])
    return x * np.cos(angle) + np.roll(x, 1, axis=-1) * np.sin(angle)


def windows(x):
    wide = np.pad(x, ((0, 0), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(wide, 3, axis=-1) @ np.array([0.25, 0.5, 0.25])


def quantized(x):
    scale = np.max(np.abs(x), axis=-1, keepdims=True) / 127
    scale = np.where(scale == 0, 1.0, scale)
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8) * scale


def unknown(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


NAIVE = {
    "beside": (op(beside), lambda _, x: x / 2),
    "assigned": (op(assigned, out=ROW), lambda total, x: total(x * x)),
    "collected": (op(collected, out=ROW), lambda total, x: total(x * x) / 2),
    "in_place": (op(in_place), lambda _, x: np.where(x < 0, x / 4, x) + 2),
    "guarded": (op(guarded), lambda total, x: x / np.where((t := total(np.abs(x))) == 0, 1, t)[:, None]),
    "tabled": (op(tabled), lambda _, x: tabled(x).astype(x.dtype)),
    "windows": (op(windows), lambda _, x: windows(x).astype(x.dtype)),
    "quantized": (op(quantized), lambda _, x: quantized(x).astype(x.dtype)),
    "unknown": (op(unknown), lambda total, x: x / np.sqrt(total(x * x))[:, None]),
}


@pytest.mark.parametrize("name", NAIVE)
def test_formulas_as_people_write_them(name):
    """A right kernel passes, one that is off by 1 in 1000 does not."""
    contract, kernel = NAIVE[name]
    tame = ("normal", "uniform", "positive", "wide", "cancellation", "constant_rows", "offset")
    cases = [case_of(contract, distribution=d, dtype=t, rows=5, cols=n) for d in tame for t in FLOATS for n in (1, 70)]
    assert failures(contract, kernel, cases, sequential) == []
    wrong = failures(contract, lambda total, x: (kernel(total, x) * 1.001).astype(x.dtype), cases)
    assert len(wrong) > len(cases) // 3


def test_a_conversion_costs_nothing():
    plain = op(lambda x: x * BESIDE)
    case = case_of(plain)
    errors = [Reference(c, case, materialize_all(case)).budget(Numerics())["out"].error for c in (plain, op(beside))]
    assert np.array_equal(*errors)


ONE_BY_ONE = np.vectorize(lambda v: v + 1)


@pytest.mark.parametrize(("formula", "words"), [
    (lambda x: x * float(x.max()), "makes plain numbers of its inputs"),
    (lambda x: ONE_BY_ONE(x) * 2, "makes plain numbers of its inputs"),
    (lambda x: np.abs(np.fft.fft(x)), "complex"),
    (lambda x: np.frexp(x)[0], "numpy.frexp, which has several results"),
])  # fmt: skip
def test_what_cannot_be_followed_is_refused_in_one_sentence(formula, words):
    contract = op(formula)
    case = case_of(contract)
    with pytest.raises(UsageError) as refused:
        Reference(contract, case, materialize_all(case)).budget(Numerics())
    message = str(refused.value)
    assert words in message
    assert message.startswith("<lambda>: no budget can be estimated")
    assert "\n" not in message


def test_the_factor_is_the_contracts():
    plain, wide = op(silu), op(silu, factor=6.0)
    case = case_of(plain)
    errors = [Reference(c, case, materialize_all(case)).budget(Numerics())["out"].error for c in (plain, wide)]
    assert np.allclose(errors[1], 3 * errors[0], rtol=1e-12)


def test_an_estimate_is_the_same_every_time():
    contract = CONTRACTS["rmsnorm"]
    for case in islice(some(contract, 20), 20):
        pair = [Reference(contract, case, materialize_all(case)).budget(Numerics())["out"].error for _ in range(2)]
        assert np.array_equal(*pair, equal_nan=True)


def variances(x):
    return np.mean(x * x, axis=-1) - np.mean(x, axis=-1) ** 2


CANCELLING = {
    "squares": (op(lambda x, y: x * x - y * y, inputs=("x", "y")), lambda x, y: (x - y) * (x + y), "(a - b)(a + b)"),
    "variances": (op(variances, out=ROW), lambda x: np.square(x - x.mean(-1, keepdims=True)).mean(-1), "two passes"),
    "logarithms": (op(lambda x: np.log(1 + x)), np.log1p, "log1p"),
    "binary logarithms": (op(lambda x: np.log2(x + 1.0)), lambda x: np.log1p(x) / np.log(x.dtype.type(2)), "log1p"),
    "exponentials": (op(lambda x: np.exp(x) - 1), np.expm1, "expm1"),
    "cosines": (op(lambda x: 1 - np.cos(x)), lambda x: 2 * np.square(np.sin(x / 2)), "2 sin(x/2)^2"),
    "roots": (
        op(lambda x: np.sqrt(x + 1) - np.sqrt(x)),
        lambda x: 1 / (np.sqrt(x + 1) + np.sqrt(x)),
        "(a - b) / (sqrt(a) + sqrt(b))",
    ),
}
"""Formulas that cancel, what does not, and its name."""


def cancelling(name, seed):
    """Inputs at which the formula as it is written loses nearly all digits."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((4, 64)).astype(np.float32)
    near = {
        "squares": lambda: (1000 + x, 1000 + x + random.standard_normal((4, 64)).astype(np.float32) / 64),
        "variances": lambda: ((4000.7 + x).astype(np.float32),),
        "roots": lambda: (np.abs(x) * 1e6,),
    }
    return near.get(name, lambda: (x * 1e-5,))()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CANCELLING)
def test_what_the_formula_itself_loses_is_granted_to_nobody(name, seed):
    contract, stable, form = CANCELLING[name]
    given = dict(zip(contract.inputs, cancelling(name, seed), strict=True))
    case = case_of(contract, cols=64)
    reference = Reference(contract, case, given)
    wide = {n: x.astype(np.longdouble) for n, x in given.items()}
    exact = stable(*wide.values()).astype(np.float64)
    assert np.allclose(reference.want["out"], exact, rtol=1e-11)
    passes = verdict(reference, stable(*given.values()).astype(np.float32))
    assert passes.kind is Kind.PASS, passes.message
    fails = verdict(reference, contract.reference(**given)["out"].astype(np.float32))
    assert fails.kind is Kind.MISMATCH
    assert f"the reference cancels, and is computed as {form}" in fails.message.replace("the variance by ", "")


@pytest.mark.parametrize("name", CANCELLING)
def test_a_kernel_that_does_not_cancel_passes_on_all_that_a_search_draws(name):
    contract, stable, _ = CANCELLING[name]
    assert failures(contract, lambda _, *given: stable(*given), some(contract, 200)) == []


def test_what_is_assigned_to_afterwards_is_no_square_any_more():
    def reference(x, y):
        a = x * x
        x[0] = 7.0
        return a - y * y

    contract = op(reference, inputs=("x", "y"))
    reference = Reference(contract, case_of(contract), materialize_all(case_of(contract)))
    want = np.square(reference.inputs["x"].astype(np.float64)) - np.square(reference.inputs["y"].astype(np.float64))
    assert np.allclose(reference.want["out"], want, rtol=1e-12)
    assert not reference.budget(Numerics())["out"].instead


@pytest.mark.parametrize("name", CONTRACTS)
def test_ordinary_formulas_are_followed_as_they_stand(name):
    for case in some(CONTRACTS[name], 3):
        reference = Reference(CONTRACTS[name], case, materialize_all(case))
        assert not reference.budget(Numerics())["out"].instead
