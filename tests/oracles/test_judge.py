"""Each rule on hand-made evidence; the first that speaks decides, and the same evidence gives the same verdict."""

from base64 import b64encode
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, GuardDamage, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.judge import apart, judge
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import Budget
from kernel_assay.oracles.spec.plain_case import plain_case

CARELESS = np.errstate(all="ignore")


def case_of(op="silu", shape=(3, 5), dtype="float32", distribution="normal", specials=(), **attrs):
    fill = Fill(distribution=distribution, seed=2)
    recipe = TensorRecipe(shape=shape, dtype=dtype, fill=fill, specials=specials)
    names = {"gemm": ("a", "b")}.get(op, ("x",))
    return Case(op=op, tensors=dict.fromkeys(names, recipe), attrs=attrs)


class Trial:
    """One execution whose outputs are right unless they are changed."""

    def __init__(self, case=None, contract=None, numerics=None):
        self.case = case or case_of()
        contract = contract or contract_of(self.case.op)
        self.reference = Reference(contract, self.case, materialize_all(self.case))
        self.subject = Subject(op=self.case.op, name="mine", backend="numpy", numerics=numerics or Numerics())
        self.outputs = {
            n: np.ascontiguousarray(round_to(self.reference.want[n], format_of(s.dtype)))
            for n, s in self.reference.specs.items()
        }
        self.report = {}
        self.fields = {}

    def __call__(self):
        reports = tuple(
            OutputReport(**{"name": n, "shape": a.shape, "dtype": a.dtype.name, **self.report})
            for n, a in self.outputs.items()
        )
        said = {"status": Status.OK, "subject": "silu/mine", "outputs": reports, **self.fields}
        return judge(self.reference, self.subject, Execution(**said), self.outputs)


def budgeted(case, budget):
    """The contract of a case, with another budget."""
    return replace(contract_of(case.op), budget=lambda q: {"out": budget})


@pytest.mark.parametrize("op", ["silu", "gemm"])
def test_the_right_answer_passes_and_says_nothing(op):
    verdict = Trial(case_of(op, (4, 4)))()
    assert (verdict.kind, verdict.message, verdict.signature, verdict.failed) == (Kind.PASS, "", None, False)
    assert 0.0 <= verdict.rho <= 1.0


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (Status.RAISED, Kind.RAISED, "it raised ValueError: odd"),
        (Status.TIMEOUT, Kind.TIMEOUT, "ValueError: odd"),
        (Status.CRASHED, Kind.CRASHED, "it crashed: ValueError: odd"),
        (Status.LAUNCH_FAILED, Kind.CRASHED, "its launch failed"),
        (Status.OUT_OF_MEMORY, Kind.OUT_OF_MEMORY, "it ran out of memory"),
        (Status.BUILD_FAILED, Kind.BUILD_FAILED, "it could not be built"),
    ],
)
def test_what_the_sandbox_saw_decides_first(status, kind, words):
    trial = Trial()
    damage = (GuardDamage(buffer="out", offset=-1, count=1),)
    trial.fields = {"status": status, "message": "ValueError: odd", "outputs": (), "damage": damage, "mutated": ("x",)}
    verdict = trial()
    assert (verdict.kind, verdict.rule) == (kind, "status")
    assert words in verdict.message
    assert verdict.signature.error_pattern == ("none" if kind in {Kind.TIMEOUT, Kind.BUILD_FAILED} else "ValueError")


def test_unsupported_is_about_the_question():
    trial = Trial()
    trial.fields = {"status": Status.UNSUPPORTED, "message": "no", "outputs": ()}
    verdict = trial()
    assert (verdict.kind, verdict.signature, verdict.failed) == (Kind.UNSUPPORTED, None, False)


def test_rules_speak_in_order():
    trial = Trial()
    trial.outputs["out"][:] = 9
    expected = [Kind.MISMATCH, Kind.NONDETERMINISTIC, Kind.UNWRITTEN, Kind.WRONG_LAYOUT, Kind.ALIASED, Kind.WRONG_DTYPE]
    expected += [Kind.WRONG_SHAPE, Kind.INPUT_MUTATED, Kind.OUT_OF_BOUNDS]
    steps = [
        ({}, {}),
        ({"differing": 2, "first_differing": 7}, {}),
        ({"unwritten": 1, "first_unwritten": 14}, {}),
        ({"contiguous": False}, {}),
        ({"alias_of": "x"}, {}),
        ({"dtype": "float64"}, {}),
        ({"shape": (15,)}, {}),
        ({}, {"mutated": ("x",)}),
        ({}, {"damage": (GuardDamage(buffer="x", offset=60, count=2),)}),
    ]
    messages = []
    for kind, (report, fields) in zip(expected, steps, strict=True):
        trial.report |= report
        trial.fields |= fields
        verdict = trial()
        assert verdict.kind is kind
        assert verdict.signature.kind is kind
        assert "\n" not in verdict.message
        messages.append(verdict.message)
    assert "differ in 2 elements, first at out[1, 2]" in messages[1]
    assert "out[2, 4] was never written (1 of 15" in messages[2]
    assert "its input 'x'" in messages[4]
    assert "2 bytes outside the elements of 'x', at byte 60" in messages[8]


def test_one_element_is_no_plural():
    trial = Trial()
    trial.report = {"differing": 1, "first_differing": 0}
    assert trial().message == "two runs on the same input differ in 1 element, first at out[0, 0]"


def differing(second, **claim):
    """The verdict where the first run is right and the second left something else."""
    trial = Trial(numerics=Numerics(**claim))
    out = trial.outputs["out"]
    trial.report = {"differing": 1, "first_differing": 7, "again": b64encode(second(out).tobytes()).decode()}
    return trial()


def nudged(out, by=1):
    """The next number, or one further away, in one place."""
    bits = out.copy().view(np.int32)
    bits[1, 2] += by
    return bits


def test_two_runs_may_differ_if_that_is_claimed_and_both_are_right():
    assert differing(nudged).kind is Kind.NONDETERMINISTIC
    both, first = differing(nudged, order="any"), Trial()()
    assert both.kind is Kind.PASS
    assert both.rho >= first.rho
    assert both.ulps > first.ulps


def test_a_claim_that_runs_differ_excuses_no_second_run_that_is_wrong():
    verdict = differing(lambda out: nudged(out, 1 << 12), order="any")
    assert (verdict.kind, verdict.rule) == (Kind.NONDETERMINISTIC, "rerun")
    assert (
        "differ in 1 element, first at out[1, 2]; the first run is right, but of the second out[1, 2]"
        in verdict.message
    )


def test_a_claim_that_runs_differ_excuses_no_first_run_that_is_wrong():
    trial = Trial(numerics=Numerics(order="any"))
    right = trial.outputs["out"].copy()
    trial.outputs["out"][1, 2] += 1
    trial.report = {"differing": 1, "first_differing": 7, "again": b64encode(right.tobytes()).decode()}
    assert trial().kind is Kind.MISMATCH


def test_a_claim_that_runs_differ_excuses_no_second_run_that_nobody_can_judge():
    trial = Trial(numerics=Numerics(order="any"))
    trial.report = {"differing": 15, "first_differing": 0}
    assert trial().kind is Kind.NONDETERMINISTIC


def test_a_claim_that_is_not_made_is_written_nowhere():
    """So that records and their identities are what they were."""
    assert "order" not in Numerics().model_dump()
    assert Numerics(order="any").model_dump(exclude_defaults=True) == {"order": "any"}


def test_a_result_may_follow_the_strides_of_an_input_that_is_not_contiguous():
    case = case_of()
    trial = Trial(case.but(tensors={"x": case.tensors["x"].but(layout="transposed")}))
    trial.report = {"contiguous": False}
    assert trial().kind is Kind.PASS


def test_a_wrong_value_is_placed_and_measured():
    trial = Trial()
    trial.outputs["out"][1, 2] += 0.25
    verdict = trial()
    assert (verdict.kind, verdict.rule, verdict.output) == (Kind.MISMATCH, "rho", "out")
    assert "out[1, 2] is" in verdict.message
    assert "1 of 15 elements fail" in verdict.message
    assert verdict.rho > 1.0
    metrics = {m.metric: m for m in verdict.measurements}
    assert set(metrics) >= {"rho", "max_ulp", "nmse", "cosine", "psnr", "max_abs", "max_rel"}
    assert metrics["rho"].index == (1, 2)
    assert [m.metric for m in verdict.measurements if m.limit is not None] == ["rho"], "one line decides"
    assert metrics["max_abs"].value == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize(("index", "pattern"), [((2, 4), "last_element"), (slice(None), "all"), ((1,), "one_row")])
def test_signatures_tell_where(index, pattern):
    trial = Trial(case_of(shape=(6, 7)))
    where = (5, 6) if pattern == "last_element" else index
    trial.outputs["out"][where] += 3.0
    signature = trial().signature
    assert pattern.partition("_")[0] in signature.index_pattern
    assert (signature.op, signature.subject, signature.dtype, signature.rule) == ("silu", "mine", "float32", "rho")


def test_a_signature_speaks_of_the_bug_and_not_of_the_case():
    keys = set()
    for shape in ((6, 7), (9, 33), (3, 100)):
        trial = Trial(case_of(shape=shape))
        trial.outputs["out"][:] = 0
        keys.add(trial().signature.key)
    assert len(keys) == 1


@CARELESS
def test_nan_and_inf_are_classes_and_no_numbers():
    for got in (np.nan, np.inf, -np.inf):
        trial = Trial()
        trial.outputs["out"][0, 3] = got
        verdict = trial()
        assert (verdict.kind, verdict.rule) == (Kind.NONFINITE, "class")
        assert "out[0, 3]" in verdict.message
    trial = Trial(case_of(specials=(Special(value="nan", place="first"),)))
    assert trial().kind is Kind.PASS
    trial.outputs["out"][0, 0] = 0.0
    assert trial().kind is Kind.NONFINITE
    trial = Trial(case_of(specials=(Special(value="inf", place="first"),)))
    trial.outputs["out"][0, 0] = np.finfo(np.float32).max
    assert trial().failed, "the largest number is not Inf"


def test_an_error_metric_that_is_nan_does_not_pass():
    trial = Trial(case_of(specials=(Special(value="inf", place="one_row"),)))
    trial.outputs["out"][0] = 7.0
    verdict = trial()
    assert verdict.failed
    assert not np.isnan(verdict.rho)


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_without_an_error_before_rounding_a_tie_goes_to_even(to):
    fmt = format_of(to)
    one = 1.0 + fmt.unit  # half way between 1 and its successor
    bits = int(np.float32(one).view(np.uint32))
    recipe = TensorRecipe(shape=(1, 2), dtype="float32", fill=Fill(distribution="ones"), pokes=((1, bits),))
    trial = Trial(Case(op="convert", tensors={"x": recipe}, attrs={"to": to}))
    assert trial().kind is Kind.PASS
    assert float(trial.outputs["out"][0, 1]) == 1.0
    trial.outputs["out"][0, 1] = 1.0 + 2 * fmt.unit
    verdict = trial()
    assert (verdict.kind, verdict.rule, verdict.signature.error_pattern) == (Kind.MISMATCH, "exact", "tie")
    assert "nearest even" in verdict.message
    trial.outputs["out"][0, 1] = 1.0 + 4 * fmt.unit
    verdict = trial()
    assert (verdict.kind, verdict.rule) == (Kind.MISMATCH, "exact")
    assert "must be exactly" in verdict.message


def test_with_an_error_before_rounding_either_neighbour_of_a_tie_is_right():
    case = case_of(shape=(1, 1), dtype="float16", distribution="ones")
    trial = Trial(case, budgeted(case, Budget(1e-3)))
    trial.outputs["out"][...] = np.nextafter(trial.outputs["out"], np.float16(2))
    assert trial().kind is Kind.PASS


@pytest.mark.parametrize(("dtype", "distribution", "kind"), [
    ("float16", "normal", Kind.MISMATCH), ("float16", "offset", Kind.PASS), ("float32", "normal", Kind.PASS),
])  # fmt: skip
def test_the_z_line_judges_narrow_outputs_of_independent_inputs(dtype, distribution, kind):
    case = case_of(shape=(64, 64), dtype=dtype, distribution=distribution)
    trial = Trial(case, budgeted(case, Budget(1.0, sigma=1e-6, rows=4096)))
    got = trial.outputs["out"]
    trial.outputs["out"] = np.nextafter(np.nextafter(got, got.dtype.type(9)), got.dtype.type(9))
    verdict = trial()
    assert verdict.kind is kind
    if verdict.failed:
        assert verdict.rule == "z"
        assert "as large as rounding explains" in verdict.message
        assert verdict.measurements[0].metric == "z"
        assert verdict.measurements[0].value > verdict.measurements[0].limit


def test_well_rounded_results_lie_below_the_z_line():
    case = case_of(shape=(64, 64), dtype="float16")
    assert Trial(case, budgeted(case, Budget(1.0, sigma=1e-6, rows=4096)))().kind is Kind.PASS


@pytest.mark.parametrize(
    ("shape", "rows", "line"), [((64, 64), 4096, 1.097), ((64, 64), 1, 4.05), ((1, 2), 4096, 3.17)]
)
def test_the_z_line_lies_lower_the_more_independent_results_there_are(shape, rows, line):
    """Results cut off rather than rounded: twice the error that rounding has, which of a few tells nothing."""
    case = case_of(shape=shape, dtype="float16")
    trial = Trial(case, budgeted(case, Budget(1.0, sigma=1e-6, rows=rows)))
    got, want = trial.outputs["out"], trial.reference.want["out"]
    trial.outputs["out"] = np.where(np.abs(got) > np.abs(want), np.nextafter(got, np.float16(0)), got)
    verdict = trial()
    assert verdict.kind is (Kind.PASS if line > 2 else Kind.MISMATCH)
    if verdict.failed:
        assert verdict.measurements[0].limit == pytest.approx(line, rel=1e-3)
        assert 1.5 < verdict.measurements[0].value < 2.5


def short(contract, variant, terms, distribution, seed):
    """A case of sums of so many terms, or as few as there may be, and of many sums."""
    dims = {}
    for name, dim in contract.dims.items():
        wanted = (2048 if len(contract.separable) == 1 else min(48, dim.most)) if name in contract.separable else terms
        dims[name] = max(wanted // dim.multiple * dim.multiple, dim.low, dim.multiple)
    case = plain_case(contract, dims, variant=variant, seed=seed)
    drawn = {
        n: t.but(fill=t.fill.but(distribution=distribution)) if t.fill.distribution == "normal" else t
        for n, t in case.tensors.items()
    }
    return case.but(tensors=drawn)


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_a_correctly_rounded_result_has_no_errors_that_are_too_large_all_over(op):
    """Short sums of narrow numbers lie on few places between two results: of two, a third are ties."""
    contract, scored = contract_of(op), 0
    narrow = [v for v in contract.variants if {"float16", "bfloat16"} & set(dict(v).values())]
    for variant, terms, distribution in product(narrow, (1, 2, 3, 4), ("positive", "uniform", "normal", "wide")):
        for seed in (2, 4) if op != "attention" else (2,):
            case = short(contract, variant, terms, distribution, seed)
            if not {spec.dtype for spec in contract.output_specs(case).values()} <= {"float16", "bfloat16"}:
                continue
            trial = Trial(case)
            scored += any(b.sigma is not None for b in trial.reference.budget(Numerics()).values())
            verdict = trial()
            assert verdict.rule != "z", (trial.case.label, verdict.message)
    assert bool(scored) is (op in {"row_sum", "gemv", "gemm", "attention"})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("further", "kind"), [(0, Kind.PASS), (1, Kind.MISMATCH)])
def test_ties_may_all_be_half_a_unit_off_and_no_more(dtype, further, kind):
    """1.73 times as much as errors that are spread evenly; a unit more is three times that."""
    case = case_of(shape=(64, 64), dtype=dtype)
    trial = Trial(case, budgeted(case, Budget(1.0, sigma=1e-6, rows=4096)))
    got = np.abs(trial.outputs["out"]) + trial.outputs["out"].dtype.type(1)
    above = (got.view("u2") + np.uint16(1)).view(got.dtype)
    trial.reference.__dict__["want"] = {"out": (got.astype(np.float64) + above.astype(np.float64)) / 2}
    trial.outputs["out"] = (above.view("u2") + np.uint16(further)).view(got.dtype)
    assert trial().kind is kind


def test_few_pairs_may_be_rounded_all_alike():
    """Two results that are almost half a unit off are no sign of anything, whatever overflows beside them."""
    a = TensorRecipe(
        shape=(3, 1), dtype="float16", origin=(13, 0), fill=Fill(distribution="wide", seed=14, scale=2.0**24)
    )
    b = TensorRecipe(shape=(1, 15), dtype="float16", fill=Fill(distribution="positive", seed=2, scale=30.0))
    case = Case(op="gemm", tensors={"a": a, "b": b}, attrs={"alpha": 1.0, "beta": 0.0})
    trial = Trial(case, contract_of("gemm"))
    assert np.isfinite(trial.outputs["out"]).sum() == 2
    assert trial().kind is Kind.PASS


def test_a_metric_tells_the_two_numbers_at_its_place():
    trial = Trial()
    trial.outputs["out"][2, 4] = -300.0
    placed = {m.metric: m for m in trial().measurements if m.index is not None}
    assert set(placed) == {"rho", "max_ulp", "max_abs", "max_rel"}
    for m in placed.values():
        assert (m.got, m.wanted) == (trial.outputs["out"][m.index], trial.reference.want["out"][m.index])


def test_copies_are_judged_bit_by_bit():
    contract = contract_of("embedding")
    tensors = {
        "table": TensorRecipe(shape=(4, 3), dtype="float32", fill=Fill(distribution="normal")),
        "indices": TensorRecipe(shape=(2,), dtype="int64", fill=Fill(distribution="uniform", params={"below": 4})),
    }
    case = Case(op="embedding", tensors=tensors)
    reference = Reference(contract, case, materialize_all(case))
    subject = Subject(op="embedding", name="mine", backend="numpy")
    out = np.array(reference.copies["out"])

    def told(array):
        report = OutputReport(name="out", shape=array.shape, dtype=array.dtype.name)
        return judge(reference, subject, Execution(status=Status.OK, subject="s", outputs=(report,)), {"out": array})

    assert told(out).kind is Kind.PASS
    out[1, 1] = np.nextafter(out[1, 1], np.float32(9))
    verdict = told(out)
    assert (verdict.kind, verdict.rule) == (Kind.MISMATCH, "exact")
    assert "bit for bit" in verdict.message


def test_the_same_evidence_gives_the_same_verdict_and_is_left_alone():
    trial = Trial(case_of(shape=(9, 11), dtype="float16"))
    trial.outputs["out"][3, 3] = 77
    before = {n: a.tobytes() for n, a in trial.outputs.items()}
    first = trial()
    assert trial().canonical() == first.canonical()
    assert {n: a.tobytes() for n, a in trial.outputs.items()} == before


def test_the_budget_follows_what_a_subject_declares():
    case = case_of("gemm", (16, 16))
    careful, tensor_core = Trial(case), Trial(case, numerics=Numerics(tf32="rn"))
    for trial in (careful, tensor_core):
        got = trial.outputs["out"]
        trial.outputs["out"] = (got * (1 + 2.0**-12)).astype(np.float32)
    assert careful().kind is Kind.MISMATCH
    assert tensor_core().kind is Kind.PASS


def test_a_reference_of_the_wrong_form_is_trouble_of_our_own():
    case = case_of()
    broken = replace(contract_of("silu"), reference=lambda x: {"out": x[:1]})
    with pytest.raises(InternalError):
        Trial(case, broken)()
    with pytest.raises(InternalError):
        Trial(case, replace(contract_of("silu"), reference=lambda x: {}))()


def test_empty_outputs_are_judged():
    assert Trial(case_of(shape=(0, 5)))().kind is Kind.PASS
    assert Trial(case_of("gemm", (0, 0)))().kind is Kind.PASS


def test_values_are_printed_until_they_differ():
    assert apart(0.25, 0.5) == ("0.25", "0.5")
    assert apart(0.997037685123456, 0.997037685123466) == ("0.99703768512345603", "0.99703768512346602")


def test_who_leaves_what_passed_already_is_not_measured_again(monkeypatch):
    measured = []
    monkeypatch.setattr(
        "kernel_assay.oracles.judging.judge.measure", lambda *args: measured.append(args) or measure(*args)
    )
    trial = Trial()
    first = trial()
    trial.outputs = {name: array.copy() for name, array in trial.outputs.items()}
    assert trial() is first
    trial.outputs["out"] = np.nextafter(trial.outputs["out"], np.float32(9.0))
    other = trial()
    assert (other.kind, other.ulps, len(measured)) == (Kind.PASS, 1, 2)
    trial.subject = trial.subject.but(numerics=Numerics(exp="fast"))
    assert trial().rho < other.rho
    assert len(measured) == 3


def test_what_failed_is_each_subjects_own():
    trial = Trial()
    trial.outputs["out"][0, 0] = 9
    mine = trial()
    trial.subject = trial.subject.but(name="theirs")
    assert (mine.signature.subject, trial().signature.subject) == ("mine", "theirs")


def left(dtype, byte, **subject):
    """The message about an output of which the first element is as memory was filled."""
    trial = Trial(case_of(dtype=dtype))
    trial.subject = trial.subject.but(**subject)
    trial.outputs["out"].view(np.uint8)[0, : trial.outputs["out"].itemsize] = byte
    return trial().message


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_values_that_nobody_wrote_are_named(dtype):
    assert ("its bytes are 0xFF" in left(dtype, 0xFF)) == (dtype != "bfloat16")  # there a computed NaN may look so
    assert "its bytes are" not in left(dtype, 0xA5)
    assert "its bytes are" not in left(dtype, 0xFE)  # only the emulator fills variables with it
    if dtype != "float16":  # there it is one NaN of many
        assert "as in a local variable that nobody set" in left(dtype, 0xFE, backend="cuda")
    assert "its bytes are" not in left(dtype, 0xFE, backend="cuda", device="cuda")


def test_a_variable_that_nobody_set_is_known_in_the_type_of_the_output():
    trial = Trial(case_of(dtype="bfloat16"))
    trial.subject = trial.subject.but(backend="cuda")
    unset = np.frombuffer(b"\xfe" * 4, np.float32)[0]
    trial.outputs["out"][0, 0] = unset
    assert trial.outputs["out"].view(np.uint8)[0, 0] != 0xFE, "it was rounded"
    assert "nobody set" in trial().message


def test_a_nan_of_an_input_is_not_called_unwritten():
    ones = np.array([[0xFFFFFFFF]], np.uint32)
    trial = Trial(Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 1), dtype="float32", pokes=((0, 0x3F800000),))}))
    trial.outputs["out"] = ones.view(np.float32).copy()
    assert "its bytes are 0xFF" in trial().message
    trial.reference.inputs = {"x": ones.view(np.float32)}
    assert "its bytes are 0xFF" not in trial().message


def test_integers_are_told_as_integers():
    assert apart(2139062143.0, -16843010.0, whole=True) == ("2139062143", "-16843010")
    assert apart(2139062144.0, 2.0) == ("2.13906214e+09", "2")
    assert apart(3.689e19, 0.0) == ("3.689e+19", "0")
