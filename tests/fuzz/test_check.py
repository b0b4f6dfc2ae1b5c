"""The road of a case: what a case is, its names say, and not the order in which they stand."""

from corpus.records import Case, Fill, Kind, TensorRecipe
from fuzz.check import Examiner, Inquiry
from kernels.catalog import subjects_of

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
        one, other = examiner.check([Inquiry(c, (PLAIN.key,)) for c in (case, read)])
        assert [c.verdicts[PLAIN.key].kind for c in (one, other)] == [Kind.PASS] * 2
        assert one.input_digest == other.input_digest
        assert examiner.look(read, PLAIN.key).verdict.kind is Kind.PASS
