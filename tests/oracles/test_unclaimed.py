"""Claims that nobody made: an honest kernel that rounds is told what to declare, and a bug is not excused."""

from base64 import b64encode
from random import Random

import numpy as np
import pytest
from _eager import KERNELS, cases_of, evidence_of, verdict_of

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import Evidence
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.judging.unclaimed_arithmetic import candidates, trials, unclaimed, would_excuse
from kernel_assay.oracles.numerics.rounding import round_to

TOLD = [k for k in KERNELS if not k.rare]


def said_of(kernel, reference, run=None):
    """What is told of a case that fails without a claim."""
    contract = contract_of(kernel.op)

    def others():
        cases = trials(contract, reference.case)
        references = [Reference(contract, case, materialize_all(case)) for case in cases]
        return [evidence_of(kernel, r, {}, run) for r in references]

    return unclaimed([evidence_of(kernel, reference, {}, run)], others)


def failing(kernel, run=None, most=2):
    found = (r for r in cases_of(kernel, 200, Random(f"fails {kernel.op}"), most=256, plain=True)
             if verdict_of(kernel, r, {}, run).failed)  # fmt: skip
    return [r for r, _ in zip(found, range(most), strict=False)]


@pytest.mark.parametrize("kernel", TOLD, ids=lambda k: f"{k.op} {k.name} {'+'.join(k.claims)}")
def test_what_is_told_to_an_honest_kernel_excuses_it(kernel):
    cases = failing(kernel)
    told = [said_of(kernel, r) for r in cases]
    assert any(told)
    for sentence, reference in zip(told, cases, strict=True):
        if sentence:
            words, claim = sentence.removesuffix(", if that is intended").split(": declare NUMERICS = ")
            assert words.startswith("consistent with ")
            assert not verdict_of(kernel, reference, eval(claim)).failed


def exactly(inputs, attrs, contract):
    with np.errstate(all="ignore"):
        wide = {n: x.astype(np.float64) if format_of(x.dtype).is_float else x for n, x in inputs.items()}
        return contract.reference(**wide, **attrs)["out"]


def wrong(contract, spoil):
    """A right result of inputs, or of its own, that are spoilt."""

    def run(inputs, attrs):
        given, out = spoil(dict(inputs), lambda given: exactly(given, attrs, contract))
        fmt = format_of(next(iter(given.values())).dtype)
        return round_to(out, fmt)

    return run


def last_column_zero(inputs, compute):
    name = next(iter(inputs))
    cut = inputs[name].copy()
    cut[..., -1:] = 0
    return inputs, compute({**inputs, name: cut})


def last_row_first(inputs, compute):
    out = compute(inputs)
    out[-1:] = out[:1]
    return inputs, out


@pytest.mark.parametrize("spoil", [last_column_zero, last_row_first])
@pytest.mark.parametrize("op", sorted({k.op for k in KERNELS}))
def test_a_bug_is_not_excused(op, spoil):
    kernel = next(k for k in KERNELS if k.op == op)
    run = wrong(contract_of(op), spoil)
    cases = failing(kernel, run, most=4)
    assert cases
    assert [said_of(kernel, r, run) for r in cases if said_of(kernel, r, run)] == []


def test_only_failures_of_values_have_an_excuse():
    assert would_excuse(Verdict(kind=Kind.MISMATCH))
    assert would_excuse(Verdict(kind=Kind.NONFINITE))
    assert would_excuse(Verdict(kind=Kind.NONDETERMINISTIC))
    assert not would_excuse(Verdict(kind=Kind.MISMATCH, rule="law:negation"))
    assert not would_excuse(Verdict(kind=Kind.UNWRITTEN))


def test_sums_whose_order_changes_are_told_how_to_say_so():
    contract, subject = contract_of("row_sum"), Subject(op="row_sum", name="mine", backend="cuda")

    def evidence(case, off=1):
        reference = Reference(contract, case, materialize_all(case))
        out = reference.want["out"].astype(np.float32)
        second = (out.view(np.int32) + off).tobytes()
        report = {"name": "out", "shape": out.shape, "dtype": "float32", "differing": out.size, "first_differing": 0}
        reports = (OutputReport(**report, again=b64encode(second).decode()),)
        return Evidence(reference, subject, Execution(status=Status.OK, subject="mine", outputs=reports), {"out": out})

    fill = Fill(distribution="normal", seed=5)
    case = Case(op="row_sum", tensors={"x": TensorRecipe(shape=(3, 64), dtype="float32", fill=fill)})
    said = unclaimed([evidence(case)], lambda: [evidence(c, 0) for c in trials(contract, case)])
    assert said == (
        "consistent with sums in any order, as atomic operations make them: "
        'declare numerics = {order = "any"}, if that is intended'
    )
    assert unclaimed([evidence(case, 1 << 16)], list) == ""


def test_what_is_claimed_already_stays_claimed():
    said = Numerics(exp="fast", intermediates={"p": "input"})
    for claim in candidates(contract_of("attention"), said, "float16"):
        assert claim.exp == "fast"
        assert claim.intermediates["p"] == "input"


@pytest.mark.parametrize("cols", [2, 3, 9])
def test_a_narrow_accumulator_is_told_so_however_short_the_sum(cols):
    """Of so few terms the claim of narrow parts excuses it, too, and that of operands in tf32."""
    contract, subject = contract_of("row_sum"), Subject(op="row_sum", name="mine", backend="numpy")

    def evidence(case):
        inputs = materialize_all(case)
        total = np.zeros(inputs["x"].shape[0], np.float16)
        for column in inputs["x"].T:
            total = total + column.astype(np.float16)
        out = total.astype(np.float32)
        report = OutputReport(name="out", shape=out.shape, dtype="float32")
        ran = Execution(status=Status.OK, subject="mine", outputs=(report,))
        return Evidence(Reference(contract, case, inputs), subject, ran, {"out": out})

    fill = Fill(distribution="normal", seed=5)
    case = Case(op="row_sum", tensors={"x": TensorRecipe(shape=(3, cols), dtype="float32", fill=fill)})
    said = unclaimed([evidence(case)], lambda: [evidence(c) for c in trials(contract, case)])
    assert said.endswith("declare NUMERICS = {'accumulate': 'float16'}, if that is intended")
