"""Who else fails: the accused and every well-meaning subject, with every dtype that the case suits."""

from random import Random

import numpy as np
import pytest
from _silu import RIGHT

from kernel_assay.corpus.formats import bits_of, format_of
from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.fuzz.triage.variants import recast, variants
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

SILU = {s.name: s for s in subjects_of("silu")}
EMBEDDING = {s.name: s for s in subjects_of("embedding")}
DTYPES = ("float32", "float16", "bfloat16", "float64")
HALF_WRONG = RIGHT + "    if x.dtype == np.float16:\n        out[...] = 5\n"
NARROW = HALF_WRONG.replace("OP =", 'DTYPES = ("float32", "bfloat16")\nOP =').replace("np.float16", "np.float32")
SHRINK_PASSES = """import numpy as np
OP = "silu"

def run(out, x):
    out[...] = x
    if x.__array_interface__["data"][0] % 256:
        out[...] = x * 2
"""
LONG_WRONG = """import numpy as np
OP = "embedding"

def run(out, table, indices):
    out[...] = 0 if indices.dtype == np.int64 else table[indices]
"""


def tensor(*shape, dtype="float32", distribution="normal", **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=distribution, seed=2), **fields)


def silu(*shape, **fields):
    return Case(op="silu", tensors={"x": tensor(*(shape or (2, 3)), **fields)})


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    found = {}
    for name, text in (("half_wrong", HALF_WRONG), ("narrow", NARROW), ("moves", SHRINK_PASSES)):
        (folder / f"{name}.py").write_text(text)
        found[name] = user_subject(str(folder / f"{name}.py"), ())
    return found


@pytest.fixture(scope="module")
def examiner(users):
    clean = [SILU["numpy_float32"], EMBEDDING["numpy_take"]]
    planted = [SILU["bug_tail"], SILU["bug_overflow"], EMBEDDING["bug_zero_tail"], EMBEDDING["bug_negative_zero"]]
    with Examiner([*clean, *planted, *users.values()], timeout=5.0) as made:
        yield made


def table(found):
    return {(v.subject, v.dtype): v.kind for v in found}


def test_the_matrix_has_the_accused_and_all_clean_subjects_with_every_dtype(examiner, users):
    cells = table(variants(examiner, silu(dtype="float16"), users["half_wrong"], Kind.MISMATCH))
    everybody = {"silu/half_wrong", "silu/numpy_float32", "silu/moves"}
    narrow = {("silu/narrow", t) for t in ("float32", "bfloat16")}
    assert set(cells) == {(s, t) for s in everybody for t in DTYPES} | narrow
    assert {t for t in DTYPES if cells["silu/half_wrong", t] is Kind.MISMATCH} == {"float16"}
    assert {cells["silu/numpy_float32", t] for t in DTYPES} == {Kind.PASS}
    assert cells["silu/narrow", "float32"] is Kind.MISMATCH


def test_the_cases_own_dtype_and_the_accused_come_first(examiner, users):
    found = variants(examiner, silu(dtype="float16"), users["narrow"], Kind.MISMATCH)
    assert {v.dtype for v in found[:3]} == {"float16"}
    assert next(v for v in found if v.dtype == "float32").subject == "silu/narrow"


def test_planted_subjects_are_in_it_only_if_they_are_accused(examiner, users):
    accused = SILU["bug_tail"]
    cells = table(variants(examiner, silu(1, 1, distribution="ones"), accused, Kind.MISMATCH))
    assert {s for s, _ in cells} == {
        "silu/bug_tail",
        "silu/numpy_float32",
        "silu/half_wrong",
        "silu/moves",
        "silu/narrow",
    }
    assert {cells["silu/bug_tail", t] for t in DTYPES} == {Kind.MISMATCH}


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.OUT_OF_MEMORY])
def test_where_each_try_is_dear_the_accused_is_left_alone(examiner, users, kind):
    cells = table(variants(examiner, silu(), users["half_wrong"], kind))
    assert "silu/half_wrong" not in {s for s, _ in cells}
    assert ("silu/numpy_float32", "float32") in cells


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.OUT_OF_MEMORY])
def test_where_each_try_is_dear_a_failure_is_shown_without_another(examiner, monkeypatch, kind):
    case, key = silu(dtype="float16"), "silu/half_wrong"
    verdict = examiner.check([CheckRequest(case, (key,))])[0].verdicts[key]
    seen = examiner.look_at(case, key, verdict)
    assert (seen.exhibit.failing, seen.kept is None) == (6, False)
    monkeypatch.setattr(examiner, "launch", lambda _: pytest.fail("it was run again"))
    unseen = examiner.look_at(case, key, verdict.but(kind=kind))
    assert unseen.exhibit == Exhibit(output="out", shape=(2, 3), dtype="float16", returns=False)
    assert (unseen.verdict.kind, unseen.kept) == (kind, None)


def test_a_broken_law_is_looked_for_everywhere(examiner, users):
    cells = table(variants(examiner, silu(1, 2, distribution="offset"), users["moves"], Kind.MISMATCH, "moved"))
    checked = examiner.check([CheckRequest(silu(1, 2, distribution="offset"), ("silu/moves",), ("moved",))])[0]
    assert {cells["silu/moves", t] for t in DTYPES} == {Kind.MISMATCH}
    assert checked.verdicts["silu/moves"].failed
    assert cells["silu/numpy_float32", "float32"] is Kind.PASS


def embedding(distribution, dtype="float32", index="int64", **fields):
    table = tensor(5, 3, dtype=dtype, distribution=distribution, **fields)
    indices = TensorRecipe(
        shape=(4,), dtype=index, fill=Fill(distribution="uniform", params={"below": 5}), pokes=((1, 4),)
    )
    return Case(op="embedding", tensors={"table": table, "indices": indices})


def test_integers_are_tried_where_the_distribution_makes_them(examiner):
    accused = EMBEDDING["bug_zero_tail"]
    suited = table(variants(examiner, embedding("uniform"), accused, Kind.MISMATCH))
    floats = table(variants(examiner, embedding("normal"), accused, Kind.MISMATCH))
    assert {t for _, t in suited} == {*DTYPES, "int8"}
    assert {t for _, t in floats} == set(DTYPES)
    assert {s for s, _ in suited} == {"embedding/bug_zero_tail", "embedding/numpy_take"}


def test_a_subject_that_takes_fewer_dtypes_is_not_run_with_others(examiner):
    accused = EMBEDDING["bug_negative_zero"]
    cells = table(variants(examiner, embedding("zeros"), accused, Kind.MISMATCH))
    assert {t for s, t in cells if s == "embedding/bug_negative_zero"} == set(DTYPES)
    assert {t for s, t in cells if s == "embedding/numpy_take"} == {*DTYPES, "int8"}


def test_a_cell_of_the_matrix_says_what_the_case_itself_does(tmp_path):
    """A kernel that fails with int64 indices only: the matrix must not say that it passes."""
    (tmp_path / "long.py").write_text(LONG_WRONG)
    accused = user_subject(str(tmp_path / "long.py"), ())
    with Examiner([accused], timeout=5.0) as made:
        found = variants(made, embedding("uniform"), accused, Kind.MISMATCH)
    assert table(found)["embedding/long", "float32"] is Kind.MISMATCH
    assert len({(v.subject, v.dtype) for v in found}) == len(found)


# recasting


def test_the_own_dtypes_come_first_and_none_comes_twice():
    for case in (silu(), silu(dtype="bfloat16"), embedding("uniform", "int8", "int32")):
        cases = recast(case)
        assert cases[0].id == case.id
        dtypes = [tuple(t.dtype for t in c.tensors.values()) for c in cases]
        assert len(set(dtypes)) == len(dtypes) == len(contract_of(case.op).variants)


def test_what_is_written_out_keeps_its_value():
    values = (1.5, -0.0, float("inf"), 2.0**-20)
    pokes = tuple((i, bits_of(v, np.dtype(np.float32))) for i, v in enumerate(values))
    for other in recast(silu(2, 2, pokes=pokes)):
        x = other.tensors["x"]
        got = materialize(x).reshape(-1)
        assert [float(v) for v in got] == [float(np.float64(v).astype(format_of(x.dtype).dtype)) for v in values]
        assert np.signbit(got[1].astype(np.float64))


@pytest.mark.parametrize("bits", [0x7FC00001, 0x7F800000, 0x4F000000, 0x80000000, 1])
def test_values_that_no_integer_has_are_no_trouble(bits):
    case = embedding("uniform", pokes=((0, bits),))
    for other in recast(case):
        materialize_all(other)


def test_indices_stay_within_the_table():
    for other in recast(embedding("uniform")):
        indices = materialize(other.tensors["indices"])
        assert indices[1] == 4
        assert (indices >= 0).all()
        assert (indices < 5).all()


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_every_case_of_the_search_can_be_recast(op):
    random = Random(f"variants {op}")
    for _ in range(60):
        case, _ = generate(Target(contract_of(op), max_elements=300), random)
        for other in recast(case):
            materialize_all(other)
            assert contract_of(op).dims_of(other) == contract_of(op).dims_of(case)


def test_an_op_with_a_range_is_tried_with_its_other_dtypes(monkeypatch):
    contract = Contract(
        name="own",
        summary="",
        dims={"n": Dim(0, 9)},
        inputs={"x": Input(("n",), low=0.0, high=1.0)},
        outputs={"out": Output(("n",), like="x")},
        variants=({"x": "float32"}, {"x": "float16"}),
        reference=lambda x: {"out": x},
    )
    monkeypatch.setattr("kernel_assay.fuzz.triage.variants.contract_of", lambda _: contract)
    case, _ = generate(Target(contract, ("float32",)), Random(1))
    assert [c.dtype for c in recast(case)] == ["float32", "float16"]
