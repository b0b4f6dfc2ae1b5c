"""The sampled oracle judges some elements of a large case, each exactly as the ordinary one judges it in the whole."""

import re
import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.failure_mask import default_accept
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import LINES, cut, part_of, places, sample
from kernel_assay.oracles.large.sampled import Sampled, judge_large, judge_parts, pattern_of
from kernel_assay.oracles.numerics.rounding import round_to

OPS = sorted(load_contracts())
CLAIMS = (Numerics(), Numerics(accumulate="hopper", tf32="rz"), Numerics(ftz=False, exp="fast"))


def some_of(contract, case, random):
    """Some indices of each separable dim, in one piece where that must be."""
    picks = {}
    for dim in contract.separable:
        extent = contract.dims_of(case)[dim]
        if extent < 2 or random.random() < 0.25:
            continue
        if dim in contract.placed:
            start = random.randrange(extent)
            picks[dim] = np.arange(start, random.randint(start + 1, extent))
        else:
            picks[dim] = np.array(sorted(random.sample(range(extent), random.randint(1, min(6, extent)))))
    return picks


def spread(values, shape):
    return np.broadcast_to(np.asarray(values, np.float64), shape)


def accepted(budget, want, dtype):
    mask = default_accept(want, has_inf=format_of(dtype).has_inf) if budget.accept is None else budget.accept
    return np.broadcast_to(mask, want.shape)


@pytest.mark.parametrize("op", OPS)
def test_values_and_budgets_of_a_part_are_those_of_the_whole(op):
    random, contract, parts = Random(f"parts of {op}"), contract_of(op), 0
    while parts < 150:
        case, _ = generate(Target(contract, max_elements=1 << 11), random)
        picks = some_of(contract, case, random)
        if not picks:
            continue
        parts += 1
        part, inputs = part_of(contract, case, picks), materialize_all(case)
        whole, mine = Reference(contract, case, inputs), part.reference()
        for name, array in inputs.items():
            assert mine.inputs[name].tobytes() == np.ascontiguousarray(cut(array, part.axes[name])).tobytes(), case
        assert (mine.iid, mine.specs.keys()) == (whole.iid, whole.specs.keys())
        for claim in CLAIMS:
            for name, budget in mine.budget(claim).items():
                the = whole.budget(claim)[name]
                due, want = cut(whole.want[name], part.axes[name]), mine.want[name]
                assert want.shape == mine.specs[name].shape
                shape, along, dtype = whole.want[name].shape, part.axes[name], whole.specs[name].dtype
                error = cut(spread(the.error, shape), along)
                np.testing.assert_array_equal(
                    accepted(budget, want, dtype),
                    cut(accepted(the, whole.want[name], dtype), along),
                    err_msg=repr(case),
                )
                np.testing.assert_allclose(spread(budget.error, want.shape), error, rtol=1e-6, err_msg=repr(case))
                with np.errstate(invalid="ignore"):
                    near = np.abs(want - due) <= 1e-6 * error + 4 * 2.0**-53 * np.abs(due)
                assert (near | (want == due) | (np.isnan(want) & np.isnan(due))).all(), case
                assert (budget.bitwise, budget.sigma is None) == (the.bitwise, the.sigma is None)
                if the.bitwise:
                    assert mine.copies[name].tobytes() == np.ascontiguousarray(cut(whole.copies[name], along)).tobytes()


@pytest.mark.parametrize("op", OPS)
def test_every_op_of_the_house_can_be_judged_in_parts(op):
    assert contract_of(op).separable


def rounded(case):
    """What a kernel without any error gives."""
    reference = Reference(contract_of(case.op), case, materialize_all(case))
    specs = reference.specs
    return {
        name: reference.copies[name]
        if reference.budget(Numerics())[name].bitwise
        else round_to(want, format_of(specs[name].dtype))
        if format_of(specs[name].dtype).is_float
        else want.astype(specs[name].dtype)
        for name, want in reference.want.items()
    }


def ran(outputs, **told):
    reports = [OutputReport(name=n, shape=o.shape, dtype=o.dtype.name, **told) for n, o in outputs.items()]
    return Execution(status=Status.OK, subject="op/mine", outputs=tuple(reports), input_digest="0")


def judged(case, outputs, numerics=None, **told):
    subject = Subject(op=case.op, name="mine", backend="numpy", numerics=numerics or Numerics())
    return judge_large(contract_of(case.op), case, subject, ran(outputs, **told), outputs)


@pytest.mark.parametrize("op", OPS)
def test_what_is_right_passes_whatever_the_part(op):
    random, contract = Random(f"right {op}"), contract_of(op)
    subject = Subject(op=op, name="mine", backend="numpy")
    for _ in range(30):
        case, _ = generate(Target(contract, max_elements=1 << 9), random)
        outputs = rounded(case)
        parts = [part_of(contract, case, some_of(contract, case, random)) for _ in range(2)]
        assert judge_parts(parts, subject, outputs).verdict.kind is Kind.PASS, case


def tensor(shape, dtype="float16", seed=1, name="normal", **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=name, seed=seed), **fields)


def large(m=3000, n=2500, k=48, dtype="float16"):
    """A product and what a right kernel gives."""
    case = Case(op="gemm", tensors={"a": tensor((m, k), dtype), "b": tensor((k, n), dtype, 2)})
    a, b = (x.astype(np.float32) for x in materialize_all(case).values())
    return case, {"out": (a @ b).astype(dtype)}


def test_a_large_product_is_judged_by_a_sample():
    case, outputs = large()
    said = judged(case, outputs)
    assert said.verdict.kind is Kind.PASS
    assert said.verdict.rho < 1
    assert said.shares == (Share(output="out", of=3000 * 2500, sampled=LINES * LINES),)
    assert said.shares[0].text == "of 7500000 elements of out, 4096 judged by the oracle, as a sample"


@pytest.mark.parametrize(
    ("where", "pattern"),
    [
        (np.s_[:, 2496:], "tile_tail_columns"),
        (np.s_[2944:, :], "tile_tail_rows"),
        (np.s_[-1], "one_row"),
        (np.s_[:, 0], "one_column"),
        (np.s_[-1, -1], "last_element"),
        (np.s_[0, 0], "first_element"),
        (np.s_[...], "all"),
    ],
)
def test_faults_at_ends_and_tails_are_found_and_named_by_their_place_in_the_whole(where, pattern):
    case, outputs = large()
    clean = outputs["out"].copy()
    outputs["out"][where] += 2
    said = judged(case, outputs).verdict
    assert (said.kind, said.rule, said.signature.index_pattern) == (Kind.MISMATCH, "rho", pattern)
    place = said.measurements[0].index
    assert said.message.startswith(f"out[{place[0]}, {place[1]}] is ")
    assert said.message.endswith("; 4096 of 7500000 elements were judged")
    assert outputs["out"][place] != clean[place]
    assert said.measurements[0].got == float(outputs["out"][place])


def test_a_fault_that_no_part_holds_is_not_seen():
    case, outputs = large()
    part = sample(contract_of("gemm"), case)[0]
    row, column = (next(i for i in range(1, 999) if i not in part.axes["out"][axis]) for axis in (0, 1))
    outputs["out"][row, column] += 2
    assert judged(case, outputs).verdict.kind is Kind.PASS


@pytest.mark.parametrize(
    ("case", "shape"),
    [
        (
            Case(
                op="attention",
                tensors={
                    n: tensor((2, h, 900, 32), "float32", i) for i, (n, h) in enumerate([("q", 6), ("k", 3), ("v", 3)])
                },
                attrs={"causal": True},
            ),
            (2, 6, 900, 32),
        ),
        (
            Case(op="rope", tensors={"x": tensor((900, 9, 64), "float32")}, attrs={"style": "neox", "offset": 7}),
            (900, 9, 64),
        ),
    ],
)
def test_ops_that_compute_with_an_index_are_judged_in_pieces(case, shape):
    parts = sample(contract_of(case.op), case)
    axis = 2 if case.op == "attention" else 0
    runs = [part.axes["out"][axis] for part in parts]
    assert len(runs) > 1
    assert all((np.diff(run) == 1).all() for run in runs)
    assert runs[0][0] == 0
    assert runs[-1][-1] == shape[axis] - 1
    outputs = rounded(case)
    assert judged(case, outputs).verdict.kind is Kind.PASS
    outputs["out"][(slice(None),) * axis + (runs[1][0],)] += 1
    assert judged(case, outputs).verdict.kind is Kind.MISMATCH


def test_special_values_are_where_the_whole_has_them():
    special = (Special(value="nan", place="last"),)
    case = Case(
        op="gemm", tensors={"a": tensor((700, 9), "float32", specials=special), "b": tensor((9, 650), "float32", 2)}
    )
    outputs = rounded(case)
    assert np.isnan(outputs["out"][-1]).all()
    assert judged(case, outputs).verdict.kind is Kind.PASS
    outputs["out"][-1] = 0
    said = judged(case, outputs).verdict
    assert (said.kind, said.signature.index_pattern) == (Kind.NONFINITE, "one_row")
    assert re.match(r"out\[699, \d+\] is 0, wanted nan", said.message)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"unwritten": 3, "first_unwritten": 5}, Kind.UNWRITTEN),
        ({"differing": 2, "first_differing": 7}, Kind.NONDETERMINISTIC),
        ({"alias_of": "a"}, Kind.ALIASED),
        ({"unwritten": 3, "first_unwritten": 5, "differing": 2}, Kind.UNWRITTEN),
    ],
)
def test_what_concerns_the_run_is_judged_of_the_whole(told, kind):
    case, outputs = large(600, 500)
    outputs["out"].reshape(-1).view(np.uint16)[5:8] = 0xFFFF
    said = judged(case, outputs, **told)
    assert said.verdict.kind is kind
    assert said.shares == (Share(output="out", of=300000),)
    if kind is Kind.UNWRITTEN:
        assert said.verdict.message == "out[0, 5] was never written (3 of 300000 elements were not)"
        assert said.verdict.signature.index_pattern == "one_row"


def test_of_a_large_case_two_runs_that_may_differ_are_left_undecided():
    case, outputs = large(600, 500)
    verdict = judged(case, outputs, Numerics(order="any"), differing=2, first_differing=7).verdict
    assert verdict.kind is Kind.INCONCLUSIVE
    assert verdict.message.endswith("as is claimed, but of a large case the second run is not judged")


def test_an_output_of_another_form_is_refused():
    case, outputs = large(600, 500)
    assert judged(case, {"out": outputs["out"][:, :-1].copy()}).verdict.kind is Kind.WRONG_SHAPE
    assert judged(case, {"out": outputs["out"].astype(np.float32)}).verdict.kind is Kind.WRONG_DTYPE
    with pytest.raises(InternalError, match="without its output 'out' cannot be judged"):
        judged(case, {})


def test_the_last_of_several_verdicts_is_no_better_than_the_worst():
    case, outputs = large(600, 500)
    parts = [part_of(contract_of("gemm"), case, {"m": np.array([i])}) for i in (1, 2, 3)]
    subject = Subject(op="gemm", name="mine", backend="numpy")
    both = judge_parts(parts, subject, outputs)
    alone = [judge_parts([part], subject, outputs) for part in parts]
    assert both.verdict.rho == max(one.verdict.rho for one in alone)
    assert both.shares == (Share(output="out", of=300000, sampled=1500),)
    outputs["out"][2] += 2
    assert judge_parts(parts, subject, outputs).verdict.message.startswith("out[2, ")
    doubt = Sampled(both.verdict.but(kind=Kind.INCONCLUSIVE), both.shares)
    assert both.plus(doubt).verdict.kind is doubt.plus(both).verdict.kind is Kind.INCONCLUSIVE


@pytest.mark.parametrize("extent", [1, 2, 63, 64, 65, 1000, 4096, 14336])
def test_places_hold_both_ends_and_edges_of_tiles(extent):
    found = places(extent, 64, Random(1)).tolist()
    assert found == sorted(set(found))
    assert len(found) == min(extent, 64)
    assert {0, extent - 1} <= set(found)
    if extent >= 1000:
        edges = {e + by for t in (8, 16, 32, 64, 128) for e in (t, (extent - 1) // t * t) for by in (-1, 0, 1)}
        assert len(edges & set(found)) > 20
        assert places(extent, 64, Random(2)).tolist() != found


def test_the_part_of_a_product_of_a_language_model_takes_little_work():
    case = Case(op="gemm", tensors={"a": tensor((4096, 14336)), "b": tensor((14336, 4096), seed=2)})
    began = time.process_time()
    (part,) = sample(contract_of("gemm"), case)
    reference = part.reference()
    assert reference.budget(Numerics())["out"].sigma.shape == reference.want["out"].shape == (64, 64)
    assert time.process_time() - began < 10  # a second on an idle machine
    assert sum(array.size for array in reference.inputs.values()) < 1 << 21


def test_an_op_that_names_no_separable_dims_is_judged_whole_or_not_at_all():
    contract = replace(contract_of("gemm"), separable=())
    case, _ = large(20, 30, 5)
    (part,) = sample(contract, case)
    assert part.case.tensors == case.tensors
    case, _ = large(3000, 2500, 9)
    with pytest.raises(UsageError, match="small enough to be judged, for its contract names no separable dims"):
        sample(contract, case)


def test_a_part_must_be_one_that_can_be_judged():
    case = Case(op="rope", tensors={"x": tensor((9, 2, 8), "float32")}, attrs={"style": "neox"})
    with pytest.raises(InternalError, match="by some indices of 'half'"):
        part_of(contract_of("rope"), case, {"half": np.array([1])})
    with pytest.raises(InternalError, match="'tokens' that leave a gap"):
        part_of(contract_of("rope"), case, {"tokens": np.array([1, 3])})


def test_a_pattern_speaks_of_the_whole_where_it_can():
    case, _ = large(600, 500)
    part = part_of(contract_of("gemm"), case, {"m": np.array([0, 5, 599]), "n": np.array([0, 1, 497, 499])})
    bad = np.zeros((3, 4), np.bool_)
    bad[1, 2] = True
    assert pattern_of(part, "out", bad, (600, 500)) == "single"
    bad[:, 2:] = True
    assert pattern_of(part, "out", bad, (600, 500)) == "tile_tail_columns"
    bad[:, 3] = False
    assert pattern_of(part, "out", bad, (600, 500)) == "one_column"
