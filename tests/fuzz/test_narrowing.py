"""Optional inputs and attributes in a search: they vary as far as somebody takes them, and in a rerun likewise."""

from random import Random
from types import SimpleNamespace

import pytest

from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.checking.check import Examiner, interface_of
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.generation.strategies import build
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.fuzz.planning.regenerate import case_of_run
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts

OPTIONAL = [op for op, c in load_contracts().items() if set(c.optional) & set(c.inputs)]


def made(contract, count=300, max_elements=64):
    random = Random(4)
    return [build(contract, random.randint, max_elements=max_elements) for _ in range(count)]


def given(case, contract):
    return {name for name in contract.optional if name in case.tensors}


@pytest.mark.parametrize("op", OPTIONAL)
def test_optional_inputs_come_and_go_all_of_a_group_or_none(op):
    contract = contract_of(op)
    cases = made(contract)
    for case in cases:
        contract.check(case)
        assert list(case.tensors) == [name for name in contract.inputs if name in case.tensors]
    for name in set(contract.optional) & set(contract.inputs):
        present = [case for case in cases if name in case.tensors]
        assert 0.2 < len(present) / len(cases) < 0.5
        assert all(set(contract.group(name)) <= set(case.tensors) for case in present)


@pytest.mark.parametrize("op", ["rope", "gemm", "gemv", "softmax"])
def test_optional_attributes_are_plain_mostly_and_have_every_value(op):
    contract = contract_of(op)
    cases = made(contract)
    plain = contract.attrs_of(cases[0].but(attrs={}))
    share = sum(all(case.attrs[n] == v for n, v in plain.items()) for case in cases) / len(cases)
    assert 0.6 < share < 0.95
    for name in plain:
        assert {case.attrs[name] for case in cases} == set(contract.attrs[name])


def test_what_nobody_takes_is_left_out_and_what_all_need_is_there():
    whole = contract_of("rope")
    tables = made(whole.narrowed(["theta", "offset"], ["cos", "sin"], {}))
    assert {frozenset(given(case, whole)) for case in tables} == {frozenset({"cos", "sin"})}
    assert {(case.attrs["theta"], case.attrs["offset"]) for case in tables} == {(10000.0, 0)}
    assert {case.attrs["part"] for case in tables} == {1, 2, 4}
    angles = made(whole.narrowed(["cos", "sin"], [], {}))
    assert {frozenset(given(case, whole)) for case in angles} == {frozenset()}
    for case in (*tables, *angles):
        whole.check(case)


def subject(name, path="", op="rope"):
    return Subject(op=op, name=name, backend="numpy", path=path or f"kernels/{op}/{name}.py")


def box(**said):
    """What a sandbox knows of its subjects: (what each lacks, what it needs)."""
    return SimpleNamespace(
        lacks={f"rope/{name}": frozenset(lacks) for name, (lacks, _) in said.items()},
        needs={f"rope/{name}": frozenset(needs) for name, (_, needs) in said.items()},
    )


TABLES = ({"theta", "offset", "part"}, {"cos", "sin"})
ANGLES = ({"cos", "sin"}, set())
BOTH = (set(), set())


@pytest.mark.parametrize(
    ("said", "unused", "needed"),
    [
        ({"a": TABLES}, ("offset", "part", "theta"), ("cos", "sin")),
        ({"a": ANGLES}, ("cos", "sin"), ()),
        ({"a": BOTH}, (), ()),
        ({"a": TABLES, "b": ANGLES}, (), ()),
        ({"a": TABLES, "b": TABLES}, ("offset", "part", "theta"), ("cos", "sin")),
        ({"a": ANGLES, "b": ({"cos", "sin", "part"}, set())}, ("cos", "sin"), ()),
    ],
)
def test_a_campaign_is_fitted_to_what_its_subjects_take(said, unused, needed):
    campaign = new_campaign("r1", 1, "conjecture", [subject(name) for name in said])
    found = fitted(campaign, box(**said))
    assert found.unused == ({"rope": unused} if unused else {})
    assert found.needed == ({"rope": needed} if needed else {})
    (target,) = targets(found)
    assert set(target.contract.optional) == set(contract_of("rope").optional) - set(unused) - set(needed)
    assert type(found).model_validate_json(found.model_dump_json()).canonical() == found.canonical()


def test_subjects_of_ones_own_decide_what_is_tried():
    mine, peer = subject("mine", "/home/me/mine.py"), subject("torch_angles")
    campaign = new_campaign("r1", 1, "conjecture", [mine, peer])
    found = fitted(campaign, box(mine=TABLES, torch_angles=BOTH))
    assert (found.unused["rope"], found.needed["rope"]) == (("offset", "part", "theta"), ("cos", "sin"))


def test_each_op_is_fitted_by_itself():
    subjects = [s for op in ("softmax", "silu", "rope") for s in subjects_of(op) if s.name == "numpy_float32"]
    campaign = new_campaign("r1", 1, "conjecture", subjects)
    with Examiner(subjects) as examiner:
        found = fitted(campaign, examiner.sandbox)
    assert found.unused == {"softmax": ("mask", "scale"), "rope": ("offset", "part", "theta")}
    assert found.needed == {"rope": ("cos", "sin")}
    assert [t.contract.name for t in targets(found)] == ["softmax", "silu", "rope"]


def test_a_run_and_what_is_made_of_it_again_are_narrowed_alike(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nOP = 'rope'\n\n\ndef run(x, cos, sin, *, style):\n    return np.zeros_like(x) + 7\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--subject", "mine.py", "--cases", "96", "--seed", "3", "--quiet"]) == 1
    whole = contract_of("rope")
    with Store(tmp_path / "corpus") as store:
        (run,) = [path.name for path in (tmp_path / "corpus" / "local" / "runs").iterdir()]
        campaign = store.load_run(run)
        assert campaign.needed == {"rope": ("cos", "sin")}
        for finding in store.findings():
            case, _ = case_of_run(store, run, int(finding.found_by.partition(":")[2]))
            assert case.id == finding.original.id
        cases = [case_of_run(store, run, index)[0] for index in range(0, 96, 3)]
    assert all(given(case, whole) == {"cos", "sin"} and case.attrs["part"] == 1 for case in cases)
    wider = generate(Target(whole), Random(0))[0]
    assert set(wider.attrs) == set(cases[0].attrs), "an attribute that nobody takes is there, and plain"


def test_an_op_hands_over_its_optional_inputs_by_name():
    face = interface_of(contract_of("gemm"))
    assert (face.always, face.extra, face.attrs) == (("a", "b"), ("c",), ("alpha", "beta"))
    assert face.optional == {"alpha": 1.0, "beta": 1.0}
    assert interface_of(contract_of("silu")).extra == ()


DECLINED = [
    ("softmax/numpy_float32", {"x"}),
    ("softmax/numpy_masked", {"x", "mask"}),
    ("rope/torch_stack", {"x", "cos", "sin"}),
    ("rope/numpy_steps", {"x"}),
]


@pytest.mark.parametrize(("key", "takes"), DECLINED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_case_that_a_subject_cannot_take_is_unsupported(key, takes):
    op, _, name = key.partition("/")
    contract = contract_of(op)
    chosen = next(s for s in subjects_of(op) if s.name == name)
    plain = dict(contract.attrs_of(made(contract, 1)[0].but(attrs={}))) | ({"style": "neox"} if op == "rope" else {})
    cases = {frozenset(case.tensors): case for case in made(contract) if case.attrs == plain and case.elements}
    assert len(cases) == 2
    with Examiner([chosen]) as examiner:
        for names, case in cases.items():
            verdict = examiner.check([CheckRequest(case, (key,))])[0].verdicts[key]
            assert verdict.kind == ("pass" if names == takes else "unsupported"), verdict.message
            assert names == takes or verdict.message.startswith(("it takes no ", "it needs "))
