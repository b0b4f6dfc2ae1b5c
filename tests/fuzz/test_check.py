"""The road of a case: what a case is, its names say, and not the order in which they stand."""

from dataclasses import replace

import pytest

from kernel_assay.corpus.inputs.materialize import digest, materialize, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import subjects_of

DECLINING = """
def run(out, x):
    raise NotImplementedError("it takes nothing")
"""
PLAIN = next(s for s in subjects_of("attention") if s.name == "numpy_flash")


def test_a_case_whose_names_were_sorted_is_handed_over_as_the_op_has_them():
    forms = {"q": (1, 2, 3, 8), "k": (1, 1, 5, 8), "v": (1, 1, 5, 8)}
    tensors = {
        name: TensorRecipe(shape=shape, dtype="float32", fill=Fill(distribution="normal", seed=seed))
        for seed, (name, shape) in enumerate(forms.items(), 1)
    }
    case = Case(op="attention", tensors=tensors, attrs={"causal": False, "scale": 0.0})
    read = Case.model_validate_json(case.canonical())
    assert (list(case.tensors), list(read.tensors)) == (["q", "k", "v"], ["k", "q", "v"])
    with Examiner([PLAIN]) as examiner:
        one, other = examiner.check([CheckRequest(c, (PLAIN.key,)) for c in (case, read)])
        assert [c.verdicts[PLAIN.key].kind for c in (one, other)] == [Kind.PASS] * 2
        assert one.input_digest == other.input_digest
        assert examiner.look(read, PLAIN.key).verdict.kind is Kind.PASS


def silu():
    tensor = TensorRecipe(shape=(3, 5), dtype="float32", fill=Fill(distribution="normal", seed=1))
    return Case(op="silu", tensors={"x": tensor})


def test_what_nobody_takes_is_not_computed(tmp_path, monkeypatch):
    path = tmp_path / "rows.py"
    path.write_text(DECLINING, "utf-8")
    subject = Subject(op="silu", name="rows", backend="numpy", path=str(path))
    case = silu()
    with Examiner([subject]) as examiner:
        in_flight = examiner.launch([CheckRequest(case, (subject.key,), laws) for laws in ((), all_laws(case))])
        outcomes = examiner.collect(in_flight)
        (asked,) = examiner.judge(replace(in_flight, sent=in_flight.sent[1:]), outcomes[1:])
        monkeypatch.setattr(
            "kernel_assay.fuzz.checking.check.Reference", lambda *_: pytest.fail("the reference was computed")
        )
        (declined,) = examiner.judge(replace(in_flight, sent=in_flight.sent[:1]), outcomes[:1])
    assert declined.verdicts[subject.key].message == "it takes nothing"
    assert declined.verdicts[subject.key].kind is Kind.UNSUPPORTED
    assert declined.input_digest == asked.input_digest == digest(materialize_all(case))
    assert (declined.laws, asked.laws > 0, declined.classes) == (0, True, ())


def test_a_law_has_what_it_leaves_alone_from_the_case(monkeypatch):
    case = Case(
        op="gemm",
        tensors={
            name: TensorRecipe(shape=(4, 4), dtype="float32", fill=Fill(distribution="normal", seed=seed))
            for seed, name in enumerate(("a", "b"), 1)
        },
    )
    made = []
    monkeypatch.setattr(
        "kernel_assay.fuzz.checking.requests.materialize", lambda recipe: made.append(recipe) or materialize(recipe)
    )
    subject = next(s for s in subjects_of("gemm") if s.name == "numpy_float32")
    with Examiner([subject]) as examiner:
        in_flight = examiner.launch([CheckRequest(case, (subject.key,), all_laws(case))])
        (checked,) = examiner.land(in_flight)
        for (_, task), (_, reference) in zip(in_flight.sent[0].others, in_flight.sent[0].laws, strict=True):
            assert digest(reference.inputs) == digest(materialize_all(task.case))
    changed = [t for _, o in in_flight.sent[0].others for n, t in o.case.tensors.items() if t is not case.tensors[n]]
    assert checked.laws
    assert [t.id for t in made] == [t.id for t in changed]
    assert len(changed) < 2 * len(in_flight.sent[0].others)
