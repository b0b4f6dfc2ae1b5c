"""Claims: a budget follows what a subject declares, in the ops to which it matters, and no claim narrows a budget."""

from functools import cache
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.failure_mask import default_accept
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import INTERVAL, Contract, Dim, Input, Output

CASES = 24
"""Of each op and dtype, with special values and all distributions."""
NOISE = 0.97
"""Budgets are computed in float64 themselves, some of them with differences."""

PRODUCTS = {"gemm", "gemv", "row_sum", "attention"}
BLOCKS = {"qgemm", "qgemv"}
NORMS = {"rmsnorm", "gemma_rmsnorm", "layernorm"}
EXPONENTIAL = {"softmax", "attention", "silu", "silu_gate"}
GELU = {"gelu", "gelu_gate"}
ROUNDED = EXPONENTIAL | GELU | NORMS | BLOCKS | {"rope", "gemm", "gemv", "dequantize"}
"""Ops that have results before the last one."""

WIDER = {
    "accumulate float16": ({"accumulate": "float16"}, PRODUCTS | NORMS | BLOCKS | {"softmax", "dequantize"}),
    "accumulate bfloat16": ({"accumulate": "bfloat16"}, PRODUCTS | NORMS | BLOCKS | {"softmax", "dequantize"}),
    "accumulate ampere": ({"accumulate": "ampere"}, PRODUCTS),
    "accumulate fp8_hopper": ({"accumulate": "fp8_hopper"}, PRODUCTS),
    "accumulate float64": ({"accumulate": "float64"}, set()),
    "accumulate int32": ({"accumulate": "int32"}, set()),
    "tf32 rn": ({"tf32": "rn"}, PRODUCTS),
    "tf32 rz": ({"tf32": "rz"}, PRODUCTS),
    "exp fast": ({"exp": "fast"}, EXPONENTIAL),
    "exp poly3": ({"exp": "poly3"}, EXPONENTIAL),
    "tanh approx": ({"tanh": "approx"}, GELU),
    "fast_math": ({"fast_math": True}, EXPONENTIAL | GELU | NORMS | {"rope"}),
    "fast_math, exp poly3": ({"fast_math": True, "exp": "poly3"}, EXPONENTIAL | GELU | NORMS | {"rope"}),
    "weights bfloat16": ({"intermediates": {"p": "bfloat16"}}, {"attention"}),
    "normalized bfloat16": ({"intermediates": {"xr": "bfloat16"}}, NORMS),
    "activations bfloat16": ({"intermediates": {"act": "bfloat16"}}, {"silu_gate", "gelu_gate"}),
    "sigmoids bfloat16": ({"intermediates": {"sigmoid": "bfloat16"}}, {"silu", "silu_gate"}),
    "scores bfloat16": ({"intermediates": {"s": "bfloat16"}}, {"softmax", "attention"}),
    "logarithms": ({"intermediates": {"log": "float32"}}, {"softmax", "attention"}),
    "products bfloat16": ({"intermediates": {"products": "bfloat16"}}, {"rope"}),
    "tables bfloat16": ({"intermediates": {"tables": "bfloat16"}}, {"rope"}),
    "product bfloat16": ({"intermediates": {"product": "bfloat16"}}, {"gemm", "gemv"}),
    "parts bfloat16": ({"intermediates": {"parts": "bfloat16"}}, {"gemm", "gemv", "row_sum"}),
    "all float16": ({"intermediates": {"all": "float16"}}, ROUNDED),
    "all bfloat16": ({"intermediates": {"all": "bfloat16"}}, ROUNDED),
    "store saturate": ({"store": "saturate"}, set()),
}
"""A claim, and the ops of which it widens some budget; all others it leaves as they are."""
FLUSHED = PRODUCTS | NORMS | EXPONENTIAL | GELU | {"rope", "row_max"}
"""Ops whose budgets are narrower for a subject that declares that it does not flush."""
OPS = sorted(load_contracts())


@cache
def references(op):
    """References of cases of all dtypes of an op."""
    contract, random, found = contract_of(op), Random(f"claims {op}"), []
    for dtype in dict.fromkeys(next(iter(v.values())) for v in contract.variants):
        for _ in range(CASES):
            case, _ = generate(Target(contract, (dtype,), max_elements=1024), random)
            found.append(Reference(contract, case, materialize_all(case)))
    return found


def answers(reference, claims):
    """Error, where an element is judged by it, and accept mask."""
    for name, budget in reference.budget(Numerics(**claims)).items():
        want, fmt = reference.want[name], format_of(reference.specs[name].dtype)
        accept = default_accept(want, has_inf=fmt.has_inf) if budget.accept is None else budget.accept
        accept = np.broadcast_to(accept, want.shape)
        judged = (accept & INTERVAL != 0) & np.isfinite(want)
        yield np.where(judged, np.broadcast_to(budget.error, want.shape), 0.0), accept


def change(reference, before, after):
    """Whether some budget became narrower, and whether some became wider, from one arithmetic to another."""
    narrower = wider = False
    for (e0, a0), (e1, a1) in zip(answers(reference, before), answers(reference, after), strict=True):
        narrower |= bool((e1 < NOISE * e0).any() or (a0 & ~a1).any())
        wider |= bool((NOISE * e1 > e0).any() or (a1 & ~a0).any())
    return narrower, wider


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("claim", WIDER)
def test_a_claim_widens_budgets_where_it_matters_and_never_narrows_one(op, claim):
    claims, matters = WIDER[claim]
    seen = [change(reference, {}, claims) for reference in references(op)]
    assert not any(narrower for narrower, _ in seen)
    assert any(wider for _, wider in seen) == (op in matters)


@pytest.mark.parametrize("accumulate", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", ["layernorm", "rmsnorm", "gemma_rmsnorm"])
def test_a_result_at_the_end_of_float64_may_be_inf_whatever_is_claimed(op, accumulate):
    """The weight is not there yet, but times 1.73, which a number beside two zeros becomes, or with the bias it is."""
    x = TensorRecipe(shape=(1, 3), dtype="float64", pokes=((2, 0x3FF0 << 48),))
    rest = {n: x.but(shape=(3,), pokes=(), fill=Fill(distribution="ones", scale=1.035e308))
            for n in contract_of(op).inputs if n != "x"}  # fmt: skip
    case = Case(op=op, tensors={"x": x, **rest}, attrs={"eps": 1e-5})
    if op == "layernorm":
        bias = rest["bias"].but(fill=Fill(distribution="ones"), specials=(Special(value="max", place="last"),))
        case = case.but(tensors={**case.tensors, "weight": bias.but(specials=()), "bias": bias})
    reference = Reference(contract_of(op), case, materialize_all(case))
    ((_, plain),) = answers(reference, {})
    assert plain[0, 2] > INTERVAL
    assert change(reference, {}, {"accumulate": accumulate})[0] is False


@pytest.mark.parametrize("op", OPS)
def test_who_does_not_flush_has_narrower_budgets(op):
    seen = [change(reference, {}, {"ftz": False}) for reference in references(op)]
    assert not any(wider for _, wider in seen)
    assert any(narrower for narrower, _ in seen) == (op in FLUSHED)


def test_every_key_is_claimed_here():
    said = {key for claims, _ in WIDER.values() for key in claims}
    assert said | {"ftz", "order"} == set(Numerics.model_fields)  # order widens nothing: both runs must be right


@pytest.mark.parametrize("op", sorted(WIDER["fast_math"][1]))
def test_fast_math_is_about_float32(op):
    double = [r for r in references(op) if r.case.dtype == "float64"]
    assert double
    assert not any(any(change(reference, {}, {"fast_math": True})) for reference in double)


class Unit:
    """Functions of fast math as badly as their specification allows, in float32; inexact: quotients at their worst."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def off(self, exact, error):
        """A relative error of either sign, in units of 2**-24, before the result is rounded."""
        signs = self.random.choice([-1.0, 1.0], np.shape(exact))
        return np.asarray(exact * (1.0 + signs * np.asarray(error) * 2.0**-24), np.float32)

    def exp(self, x):
        wide = np.asarray(x, np.float64)
        return self.off(np.exp(wide), 2.0 * (2.0 + 1.173 * np.minimum(np.abs(wide), 1e4)))

    def over(self, a, b):
        return self.off(np.float64(a) / np.float64(b), 4.0)

    def root(self, x):
        return self.off(np.sqrt(np.float64(x)), 1.0)

    def tanh(self, x):
        return self.off(np.tanh(np.float64(x)), 2.0**13)

    def turned(self, function, x):
        turns = np.float32(x) * np.float32(0.5 / np.pi)
        exact = function((turns - np.rint(turns)).astype(np.float64) * 2.0 * np.pi)
        signs = np.where(x == 0, 0.0, self.random.choice([-1.0, 1.0], exact.shape))  # of 0 they are exact
        return (exact + signs * 2.0**-20.5).astype(np.float32)


def fast_softmax(unit, x):
    e = unit.exp(x - x.max(axis=-1, keepdims=True))
    return unit.over(e, e.sum(axis=-1, keepdims=True))


def fast_rmsnorm(unit, x, weight, eps):
    mean = unit.over((x * x).sum(axis=-1, keepdims=True), np.float32(x.shape[1]))
    return unit.over(x, unit.root(mean + np.float32(eps))) * weight


def fast_layernorm(unit, x, weight, bias, eps):
    n = np.float32(x.shape[1])
    centred = x - unit.over(x.sum(axis=-1, keepdims=True), n)
    v = unit.over((centred * centred).sum(axis=-1, keepdims=True), n) + np.float32(eps)
    return unit.over(centred, unit.root(v)) * weight + bias


def fast_silu_gate(unit, gate, up):
    return unit.over(gate, np.float32(1) + unit.exp(-gate)) * up


def fast_gelu(unit, x):
    z = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + unit.tanh(z))


FAST = {
    "softmax": (fast_softmax, {}),
    "rmsnorm": (fast_rmsnorm, {"eps": 1e-5}),
    "layernorm": (fast_layernorm, {"eps": 1e-5}),
    "silu_gate": (fast_silu_gate, {}),
    "gelu": (fast_gelu, {"approximate": "tanh"}),
}


def plain_cases(contract, attrs, number):
    """Cases in float32 without special values, whose attributes are these."""
    random = Random(contract.name)
    while number:
        case, _ = generate(Target(contract, ("float32",), max_elements=2048), random)
        tensors = {n: t for n, t in case.tensors.items() if n not in contract.optional}
        case = case.but(tensors=tensors, attrs=attrs)
        reference = Reference(contract, case, materialize_all(case))
        if all(np.isfinite(x).all() and 0.0 < np.abs(x).max(initial=0.0) < 1e9 for x in reference.inputs.values()):
            number -= 1
            yield reference


def passes(reference, output, claims):
    subject = Subject(op=reference.case.op, name="mine", backend="numpy", numerics=Numerics(**claims))
    told = OutputReport(name="out", shape=output.shape, dtype="float32")
    execution = Execution(status=Status.OK, subject=subject.key, outputs=(told,))
    return judge(reference, subject, execution, {"out": output}).kind is Kind.PASS


@pytest.mark.parametrize("op", FAST)
def test_the_worst_of_fast_math_fits_its_budget(op):
    kernel, attrs = FAST[op]
    held = {name: value for name, value in attrs.items() if name != "approximate"}
    for number, reference in enumerate(plain_cases(contract_of(op), attrs, 40)):
        inputs = [np.ascontiguousarray(x) for x in reference.inputs.values()]
        with np.errstate(all="ignore"):
            output = kernel(Unit(number), *inputs, **held)
        output = np.where(np.abs(output) < 2.0**-126, np.float32(0), output)
        assert passes(reference, output, {"fast_math": True}), reference.case


def waves(x):
    return np.sin(x) / (2.0 + np.log(2.0 + np.abs(x)))


WAVES = Contract(
    name="waves",
    summary="a formula of a user's own",
    dims={"rows": Dim(1, 8), "cols": Dim(1, 64)},
    inputs={"x": Input(("rows", "cols"), low=-20.0, high=20.0)},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=({"x": "float32"},),
    reference=lambda x: {"out": waves(x)},
)


def test_an_estimated_budget_follows_fast_math_too():
    seen = []
    for number, reference in enumerate(plain_cases(WAVES, {}, 20)):
        x, unit = reference.inputs["x"], Unit(number)
        near = np.log(np.float64(2 + np.abs(x))) + 2.0**-21.5
        output = unit.over(unit.turned(np.sin, x), np.float32(2) + near.astype(np.float32))
        assert passes(reference, output, {"fast_math": True})
        seen.append(passes(reference, output, {}))
    assert seen.count(False) > 10


def on_tensor_cores(a, b):
    """A float16 product as an H200 makes it: 16 products are cut where the largest has 25 bits, one after the other.

    Exponents are those of the operands as they stand: that of a subnormal one is the least normal number's.
    """
    exponents = [np.frexp(np.maximum(np.abs(x), 2.0**-14))[1] - 1 for x in (a, b)]
    out = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], 16):
        some = slice(start, start + 16)
        products = np.concatenate([a[:, some, None] * b[None, some], out[:, None]], axis=1)
        places = exponents[0][:, some, None] + exponents[1][None, some]
        own = np.where(out == 0, places.min(), np.frexp(out)[1] - 1)
        places = np.where(products == 0, places.min(), np.concatenate([places, own[:, None]], axis=1))
        step = 2.0 ** (places.max(axis=1, keepdims=True) - 25)
        out = (np.trunc(products / step) * step).sum(axis=1).astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        return out.astype(np.float16)


def test_a_tensor_core_aligns_subnormal_operands_as_if_they_were_normal():
    """Met on an H200, where out[4, 4] is this: a row of 2**-24 times numbers up to 2**16, which nearly cancel."""
    least = (Special(place="one_row", value="subnormal"),)
    row = Fill(distribution="offset", scale=2.0**-10, seed=54446)
    a = TensorRecipe(shape=(5, 16), dtype="float16", fill=row, specials=least)
    b = TensorRecipe(shape=(16, 11), dtype="float16", fill=Fill(distribution="log_uniform", seed=54447))
    case = Case(op="gemm", tensors={"a": a, "b": b}, attrs={"alpha": 1.0, "beta": 1.0})
    contract, inputs = contract_of("gemm"), materialize_all(case)
    out = on_tensor_cores(*(inputs[n].astype(np.float64) for n in "ab"))
    assert float(out[4, 4]) * 2.0**24 == -231.0, "-230.16 is due"
    report = OutputReport(name="out", shape=out.shape, dtype="float16", contiguous=True)
    kinds = []
    for numerics in (Numerics(accumulate="hopper"), Numerics()):
        subject = Subject(op="gemm", name="cores", backend="torch", path="cores.py", numerics=numerics)
        ran = Execution(status=Status.OK, subject=subject.key, input_digest="", outputs=(report,))
        reference = Reference(contract, case, inputs, contract.output_specs(case))
        kinds.append(judge(reference, subject, ran, {"out": out}).kind)
    assert kinds == [Kind.PASS, Kind.MISMATCH]


def running(terms, dtype):
    """Sums of rows, one term after the other, each rounded."""
    return np.add.accumulate(terms.astype(dtype), axis=-1, dtype=dtype)[:, -1:].astype(np.float64)


def softmax_so(x, dtype):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / running(e, dtype)


def rmsnorm_so(x, dtype):
    return x / np.sqrt(running(x * x, dtype) / x.shape[1] + 2.0**-10)


def row_sum_so(x, dtype):
    return running(x, dtype)[:, 0]


RUNNING = {"softmax": softmax_so, "rmsnorm": rmsnorm_so, "row_sum": row_sum_so}


@pytest.mark.parametrize("op", RUNNING)
@pytest.mark.parametrize(("dtype", "cols"), [("float16", 60), ("float16", 478), ("float16", 2000), ("float32", 30_011)])
def test_a_running_sum_whose_roundings_all_go_one_way_fits_its_budget(op, dtype, cols):
    """Terms that are alike, or small beside the sum so far, are rounded to the grid of that sum."""
    contract, lost = contract_of(op), []
    weight = {"weight": TensorRecipe(shape=(cols,), dtype=dtype, fill=Fill(distribution="ones"))}
    for seed in (*range(4), 8, 9):
        for name, scale in (("wide", 2.0**-10), ("positive", 1.0), ("normal", 2.0 ** -(seed % 12)), ("wide", 1.0)):
            x = TensorRecipe(shape=(3, cols), dtype=dtype, fill=Fill(distribution=name, scale=scale, seed=seed))
            norm = op == "rmsnorm"
            case = Case(op=op, tensors={"x": x, **(weight if norm else {})}, attrs={"eps": 2.0**-10} if norm else {})
            case = case.but(attrs={"scale": 1.0}) if op == "softmax" else case
            inputs = materialize_all(case)
            with np.errstate(over="ignore"):
                out = RUNNING[op](inputs["x"].astype(np.float64), dtype).astype(dtype)
            subject = Subject(op=op, name="so", backend="numpy", path="so.py", numerics=Numerics(accumulate=dtype))
            report = OutputReport(name="out", shape=out.shape, dtype=dtype, contiguous=True)
            ran = Execution(status=Status.OK, subject=subject.key, input_digest="", outputs=(report,))
            verdict = judge(Reference(contract, case, inputs, contract.output_specs(case)), subject, ran, {"out": out})
            lost += [(seed, name, scale, verdict.message)] * verdict.failed
    assert lost == []
