"""Who is alone against whom: the odd one out, or perhaps the oracle."""

import numpy as np

from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.consensus import ORACLE_SPLIT, Heard, blame
from kernel_assay.oracles.judging.reference import Reference

CASE = Case(
    op="silu", tensors={"x": TensorRecipe(shape=(2, 3), dtype="float32", fill=Fill(distribution="normal", seed=1))}
)
REFERENCE = Reference(contract_of("silu"), CASE, materialize_all(CASE))
RIGHT = REFERENCE.want["out"].astype(np.float32)


def heard(*said):
    """(name, kind, what was added to the right answer[, rule])."""
    out = {}
    for name, kind, off, *rule in said:
        verdict = Verdict(kind=kind, rule=rule[0] if rule else "rho")
        out[f"silu/{name}"] = Heard(
            Subject(op="silu", name=name, backend="numpy"), verdict, {"out": RIGHT + np.float32(off)}
        )
    return out


def test_nobody_is_blamed_when_all_is_well_or_one_is_heard():
    assert blame(REFERENCE, heard(("a", Kind.PASS, 0), ("b", Kind.PASS, 0))) == {}
    assert blame(REFERENCE, heard(("a", Kind.MISMATCH, 1))) == {}
    assert blame(REFERENCE, {}) == {}


def test_the_odd_one_is_alone():
    told = blame(REFERENCE, heard(("a", Kind.MISMATCH, 1), ("b", Kind.PASS, 0), ("c", Kind.PASS, 0)))
    assert told == {"silu/a": "a differs from the others; b and c agree with the oracle"}
    told = blame(REFERENCE, heard(("a", Kind.NONFINITE, np.nan), ("b", Kind.PASS, 0)))
    assert told == {"silu/a": "a differs from the others; b agrees with the oracle"}


def test_several_fail_where_others_pass():
    told = blame(REFERENCE, heard(("a", Kind.MISMATCH, 1), ("b", Kind.MISMATCH, 2), ("c", Kind.PASS, 0)))
    assert set(told) == {"silu/a", "silu/b"}
    assert told["silu/b"] == "b and a fail; c agrees with the oracle"


def test_all_agree_against_the_oracle():
    told = blame(REFERENCE, heard(("a", Kind.MISMATCH, 1), ("b", Kind.MISMATCH, 1)))
    assert all(text.startswith(ORACLE_SPLIT) for text in told.values())
    assert len(told) == 2


def test_results_that_differ_by_a_rounding_agree():
    said = heard(("a", Kind.MISMATCH, 1), ("b", Kind.MISMATCH, 1))
    near = np.nextafter(said["silu/b"].outputs["out"], np.float32(9))
    said["silu/b"] = Heard(said["silu/b"].subject, said["silu/b"].verdict, {"out": near})
    assert all(text.startswith(ORACLE_SPLIT) for text in blame(REFERENCE, said).values())


def test_nobody_agrees_with_anybody():
    told = blame(REFERENCE, heard(("a", Kind.MISMATCH, 1), ("b", Kind.MISMATCH, 2)))
    assert all("nobody agrees" in text for text in told.values())
    assert len(told) == 2


def test_failures_that_are_not_about_values_are_left_out():
    told = blame(REFERENCE, heard(("a", Kind.RAISED, 0), ("b", Kind.PASS, 0), ("c", Kind.UNWRITTEN, 1)))
    assert told == {}
    told = blame(REFERENCE, heard(("a", Kind.MISMATCH, 0, "law:scaling"), ("b", Kind.PASS, 0)))
    assert told == {}


def test_shapes_that_differ_do_not_agree():
    said = heard(("a", Kind.MISMATCH, 1), ("b", Kind.MISMATCH, 1))
    said["silu/b"] = Heard(said["silu/b"].subject, said["silu/b"].verdict, {"out": RIGHT[:1] + np.float32(1)})
    assert all("nobody agrees" in text for text in blame(REFERENCE, said).values())
