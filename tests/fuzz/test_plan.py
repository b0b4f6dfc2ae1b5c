"""What cases could be: every class that a search can reach has its place in the space, and holes can be filled."""

from collections import defaultdict
from functools import cache
from random import Random

import pytest

from kernel_assay.corpus.inputs.specials import VALUES
from kernel_assay.corpus.model.campaign import Campaign, RunOptions, Space
from kernel_assay.corpus.model.case import Fill
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.generation.elites import Elite, Elites
from kernel_assay.fuzz.generation.engines import Target, generate, propose
from kernel_assay.fuzz.planning import plan
from kernel_assay.fuzz.planning.coverage import cell_of
from kernel_assay.fuzz.planning.goals import GOALS, reached_now
from kernel_assay.fuzz.planning.plan import new_campaign, space_of, targets
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CASES = 4000
RARE = {
    "attention": {"one"},
    "convert": {"large-aligned", "large-by-one"},
    "embedding": {"large-aligned"},
    "gelu_gate": {"one"},
    "gemv": {"one"},
    "rope": {"large-aligned"},
}
"""Reached, but not by so few cases of each dtype: only a width of about 1024, or one element, is that class."""


def own(**fields):
    """A small op of a user's own."""
    made = {
        "name": "own",
        "summary": "",
        "dims": {"rows": Dim(0, 64), "cols": Dim(0, 2048)},
        "inputs": {"x": Input(("rows", "cols")), "y": Input(("cols",))},
        "outputs": {"out": Output(("rows", "cols"), like="x")},
        "variants": ({"x": "float32", "y": "float32"},),
        "reference": lambda x, y: {"out": x + y},
    }
    return Contract(**{**made, **fields})


@cache
def seen_of(op):
    return seen(contract_of(op), CASES)


def seen(contract, cases):
    """`op|dtype` -> the classes of generated cases: shapes, layouts, values."""
    random = Random(f"plan {contract.name}")
    found = defaultdict(lambda: (set(), set(), set()))
    for _ in range(cases):
        op, dtype, *classes = cell_of(generate(Target(contract), random)[0]).split("|")
        for met, name in zip(found[f"{op}|{dtype}"], classes, strict=True):
            met.add(name)
    return found


def spaces(contract):
    taker = Subject(op=contract.name, name="taker", backend="numpy")
    return {cell: (s.shapes, s.layouts, s.values) for cell, s in space_of(contract, [taker]).items()}


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_every_class_that_is_reached_is_in_the_space(op):
    """Exact probes too: exact_integers, unit_steps and ones are distributions that any float input may have."""
    possible = spaces(contract_of(op))
    found = seen_of(op)
    assert set(found) == set(possible)
    for cell, axes in found.items():
        for met, known in zip(axes, possible[cell], strict=True):
            assert met - set(known) == set(), cell
            assert len(known) == len(set(known))


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_every_class_of_the_space_can_be_reached(op):
    possible = spaces(contract_of(op))
    found = seen_of(op)
    holes = {
        cell: {name for met, known in zip(axes, possible[cell], strict=True) for name in set(known) - met}
        for cell, axes in found.items()
    }
    assert {cell: missing for cell, missing in holes.items() if missing - RARE.get(op, set())} == {}


def test_mutated_cases_stay_in_the_space():
    contract, elites = contract_of("softmax"), Elites([])
    possible = spaces(contract)
    for index in range(600):
        proposal = propose([Target(contract)], 7, index, elites)
        _, dtype, *classes = cell_of(proposal.case).split("|")
        assert all(n in known for n, known in zip(classes, possible[f"softmax|{dtype}"], strict=True))
        cell = f"softmax|x|{dtype}|{index % 9}"
        elites.offer(Elite(cell, "softmax", index / 600, index // 32, index, proposal.choices))


def test_the_subjects_of_a_space_are_those_that_take_the_dtype():
    subjects = subjects_of("gemm")
    space = space_of(contract_of("gemm"), subjects)
    assert "bug_tf32" in space["gemm|float32"].subjects
    assert "bug_tf32" not in space["gemm|float16"].subjects
    assert "numpy_float32" in space["gemm|float16"].subjects
    narrow = [s for s in subjects if s.dtypes == ("float32",)]
    assert set(space_of(contract_of("gemm"), narrow)) == {"gemm|float32"}
    assert space_of(contract_of("gemm"), subjects_of("silu")) == {}


def test_specials_stand_once_and_without_their_sign():
    values = spaces(contract_of("silu"))["silu|float32"][2]
    assert {v.removeprefix("-") for v in VALUES} <= set(values)
    assert not [v for v in values if v.startswith("-")]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"inputs": {"x": Input(("rows", "cols"), specials=False), "y": Input(("cols",))}},
        {"inputs": {"x": Input(("rows", "cols"), low=0.0, high=1.0), "y": Input(("cols",))}},
        {"inputs": {"x": Input(("rows", "cols"), distributions=("normal",), layouts=("row_gaps",)), "y": Input(())}},
        {"dims": {"rows": Dim(1, 64), "cols": Dim(3, 70)}},
        {"dims": {"rows": Dim(2, 64), "cols": Dim(32, 2048, multiple=32)}},
        {"inputs": {"x": Input(("rows", "cols*2")), "y": Input(("cols",))}},
        {"inputs": {"y": Input(()), "x": Input(("rows", "cols"))}},
        {"variants": ({"x": "int8", "y": "int32"}, {"x": "float16", "y": "int64"}, {"x": "int32", "y": "float32"})},
        {"variants": ({"x": "float32", "y": "float32"}, {"x": "float32", "y": "int8"})},
    ],
    ids=range(10),
)  # fmt: skip
def test_ops_of_ones_own_have_a_space_too(fields):
    contract = own(**fields)
    possible = spaces(contract)
    for cell, axes in seen(contract, 1000).items():
        for met, known in zip(axes, possible[cell], strict=True):
            assert met - set(known) == set(), cell


def test_specials_of_any_variant_count():
    fields = {"inputs": {"x": Input(("rows", "cols")), "y": Input(("cols",))}}
    contract = own(**fields, variants=({"x": "int32", "y": "float32"}, {"x": "int32", "y": "int8"}))
    found, possible = seen(contract, 600), spaces(contract)
    assert found["own|int32"][2] - set(possible["own|int32"][2]) == set()


def test_values_of_a_probe_count():
    inputs = {"x": Input(("rows", "cols"), distributions=("normal",)), "y": Input(("cols",))}
    contract = own(inputs=inputs, probe=lambda _dims, _dtypes: {"x": Fill(distribution="unit_steps")})
    assert seen(contract, 600)["own|float32"][2] - set(spaces(contract)["own|float32"][2]) == set()


@pytest.mark.parametrize(
    ("low", "inside"), [(0.0, {"0", "subnormal", "max_subnormal", "min_normal"}), (0.5, set())], ids=["zero", "above"]
)
def test_inputs_with_a_range_have_the_special_values_in_it(low, inside):
    contract = own(inputs={"x": Input(("rows", "cols"), low=low, high=1.0), "y": Input(("cols",), low=low)})
    assert (
        set(spaces(contract)["own|float32"][2])
        == seen(contract, 900)["own|float32"][2]
        == {"least", "ends", "between", "tapered", "whole"} | inside
    )


def test_a_run_recorded_before_draws_what_it_drew(monkeypatch):
    contract = own(inputs={"x": Input(("rows", "cols"), low=0.0, high=1.0), "y": Input(("cols",), low=0.0)})
    monkeypatch.setattr(plan, "contract_of", lambda _: contract)
    monkeypatch.setattr(plan, "_longest", lambda *_: 0)
    environment = Environment(python="3", platform="p", machine="m")
    recorded = Campaign(run="r", seed=1, environment=environment, ops=("own",), space={"own|float32": Space()})
    drawn = {}
    for generation in (1, 2):
        (target,) = targets(recorded.but(generation=generation))
        cases = [generate(target, Random(f"{n}"))[0] for n in range(200)]
        drawn[generation] = {t.fill.distribution for c in cases for t in c.tensors.values()}
        assert any(t.specials for c in cases for t in c.tensors.values()) == (generation > 1)
    assert drawn[2] - drawn[1] == {"whole"}


@pytest.mark.parametrize(
    "fields",
    [
        {"dims": {"rows": Dim(0, 64), "cols": Dim(0, 2048, multiple=32)}},
        {"max_elements": 256},
    ],
    ids=["one where a dim is a multiple", "large where cases are small"],
)
def test_the_space_promises_nothing_that_cannot_be(fields):
    contract = own(**fields)
    found, possible = seen(contract, 2500)["own|float32"], spaces(contract)["own|float32"]
    assert [set(known) - met for met, known in zip(found, possible, strict=True)] == [set(), set(), set()]


def test_the_record_of_a_run_that_has_not_begun():
    subjects = [*subjects_of("silu"), *subjects_of("convert")]
    campaign = new_campaign("r1", 7, "conjecture", subjects, RunOptions(timeout=1.0), "abc")
    assert campaign.ops == ("silu", "convert")
    silu, convert = ("float32", "float16", "bfloat16", "float64"), ("float32", "float16", "bfloat16")
    narrow = ("convert|float8_e4m3fn", "convert|float8_e5m2")
    assert set(campaign.space) == {*(f"silu|{t}" for t in silu), *(f"convert|{t}" for t in convert), *narrow}
    assert campaign.goals == dict.fromkeys(GOALS, -1)
    assert (campaign.seed, campaign.revision, campaign.finished, campaign.estimated, campaign.contracts) == (
        7, "abc", False, (), {})  # fmt: skip
    assert type(campaign).model_validate_json(campaign.model_dump_json()).canonical() == campaign.canonical()


@pytest.mark.parametrize(("op", "can"), [("silu", True), ("quantize", False)])
def test_misaligned_outputs_are_a_goal_where_a_contract_admits_them(op, can):
    assert ("misaligned_output" in new_campaign("r1", 7, "conjecture", subjects_of(op)).goals) is can
    random, met = Random(op), set()
    for _ in range(200):
        case = generate(Target(contract_of(op)), random)[0]
        reached = reached_now({"misaligned_output"}, Checked(case, "", {}, {}))
        assert reached == ["misaligned_output"] * ("offset_one" in case.outputs.values())
        met.update(reached)
    assert bool(met) is can


def test_of_dtypes_a_persons_own_subjects_decide():
    """Peers would have cases of theirs searched, which the own one does not take."""
    house = subjects_of("silu")
    mine = Subject(op="silu", name="mine", backend="cuda", path="/somewhere/mine.cu", dtypes=("float16",))
    every = ("bfloat16", "float16", "float32", "float64")
    assert targets(new_campaign("r1", 7, "conjecture", house))[0].dtypes == every
    campaign = new_campaign("r1", 7, "conjecture", [mine, *house])
    assert targets(campaign)[0].dtypes == ("float16",)
    assert set(campaign.space) == {"silu|float16"}
    assert {"mine", "numpy_float32"} <= set(campaign.space["silu|float16"].subjects)
    any_dtype = new_campaign("r1", 7, "conjecture", [mine.but(dtypes=()), *house])
    assert targets(any_dtype)[0].dtypes == every
    assert targets(campaign.but(space=any_dtype.space))[0].dtypes == every, (
        "a run that began with more goes on with them"
    )


def test_targets_are_in_the_order_of_the_ops():
    subjects = [s for op in ("gemm", "silu") for s in subjects_of(op)]
    campaign = new_campaign("r1", 7, "conjecture", subjects).but(ops=("silu", "gemm"))
    assert [t.contract.name for t in targets(campaign)] == ["silu", "gemm"]
