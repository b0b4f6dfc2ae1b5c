"""What is shown as one bug, and what is not, however small the cases are."""

import pytest

from kernel_assay.corpus.model.case import Case, Special, TensorRecipe
from kernel_assay.corpus.model.findings import Element, Environment, Exhibit, Finding, Variant
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Signature, Verdict
from kernel_assay.reports.bugs import grouped, implied, is_noise, same_bug

MINE = Subject(op="softmax", name="mine", backend="numpy")


def finding(kind=Kind.MISMATCH, rule="rho", dtype="float32", cols=5, gate="", message="", subject=MINE, **tensor):
    signature = Signature(op="softmax", subject=subject.name, kind=kind, rule=rule, dtype=dtype)
    case = Case(op="softmax", tensors={"x": TensorRecipe(shape=(3, cols), dtype=dtype, **tensor)})
    return Finding(
        signature=signature,
        case=case,
        original=case,
        subject=subject,
        verdict=Verdict(kind=kind, rule=rule, message=message, signature=signature),
        environment=Environment(python="", platform="", machine=""),
        gates=(f"fails only if {gate}",) if gate else (),
    )


def failing_as(f, dtype, kind):
    """The finding, of whose case that is known of another dtype."""
    return f.but(variants=(Variant(subject=f.subject.key, dtype=dtype, kind=kind),))


def leaving(f, got):
    """The finding, of a kernel that leaves this number in the first element."""
    return f.but(exhibit=Exhibit(elements=(Element(index=(0, 0), got=got, wanted=2.0),)))


NAN = (Special(value="nan", place="last"),)
LEFT = "out[0] is -1.69e+38, wanted 0; its bytes are 0xFE, as in a local variable that nobody set"
RAISED = {"kind": Kind.RAISED, "rule": "status"}
RACE = {"kind": Kind.RACE, "rule": "check"}
NONFINITE = {"kind": Kind.NONFINITE, "rule": "class"}

BEYOND = {"kind": Kind.OUT_OF_BOUNDS, "rule": "check"}
WRITES = "thread (1, 0) of block 0 writes {}[1] (mine.cu, line {}), {}"


def beyond(array="out", line=22):
    return finding(**BEYOND, message=WRITES.format(array, line, "but it has 1 element"))


def racing(array="out", line=22, other=22):
    more = f"which thread (0, 1) wrote (mine.cu, line {other}), and nothing orders the two"
    return finding(**RACE, cols=9, message=WRITES.format(array, line, more))


SHARED = "thread 3 of block 0 {} 4 bytes at byte {} of tile (mine.cu, line 9), {}"

ONE = {
    "other dtypes": (finding(), finding(dtype="float16", cols=6)),
    "the same condition": (finding(gate="cols % 4 != 0"), finding(**RAISED, cols=9, gate="cols % 4 != 0")),
    "a narrower condition": (finding(gate="cols % 4 != 0"), finding(**NONFINITE, cols=1, gate="cols == 1")),
    "the same case": (finding(), finding(**RAISED, dtype="float16")),
    "failing together": (failing_as(finding(cols=2), "float16", Kind.RAISED), finding(**RAISED, dtype="float16")),
    "values of the same shape": (finding(), finding(**NONFINITE, dtype="float16", layout="transposed")),
    "values that a race has made": (finding(**RACE), finding(**NONFINITE, layout="transposed")),
    "an index that is too large": (beyond(), racing()),
    "an index into shared memory": (
        finding(**BEYOND, message=SHARED.format("writes", 1024, "but it has 1024 bytes")),
        finding(
            **RACE,
            cols=9,
            message=SHARED.format("writes", 8, "which thread 4 wrote (mine.cu, line 9), and nothing orders the two"),
        ),
    ),
    "an input that is not read": (leaving(finding(), 0.0), leaving(finding(**NONFINITE, specials=NAN), 0.0)),
    "what the values give away": (finding(message=LEFT), finding(**NONFINITE, cols=9, message=LEFT, specials=NAN)),
}
TWO = {
    "other subjects": (finding(), finding(subject=MINE.but(name="other"))),
    "other kinds": (finding(), finding(**RAISED, cols=6)),
    "NaN in one of them": (finding(), finding(specials=NAN)),
    "NaN that is read": (leaving(finding(), 0.0), leaving(finding(**NONFINITE, specials=NAN), 1.0)),
    "NaN in another shape": (leaving(finding(), 0.0), leaving(finding(**NONFINITE, specials=NAN, cols=6), 0.0)),
    "NaN written into one of them": (finding(), finding(pokes=((0, 0x7FC00000),))),
    "other conditions": (finding(gate="cols % 4 != 0"), finding(gate="cols >= 1025", cols=6)),
    "a race in another statement": (beyond(), racing(line=30, other=30)),
    "a race with another statement": (beyond(), racing(other=30)),
    "a race in another array": (beyond(), racing(array="sums")),
    "a race that says no place": (beyond(), finding(**RACE, cols=9)),
    "a race in another shape": (finding(**RACE), finding(**NONFINITE, cols=6)),
    "a dtype that passes": (failing_as(finding(), "float16", Kind.PASS), finding(dtype="float16", cols=6)),
}


@pytest.mark.parametrize("pair", ONE.values(), ids=ONE)
def test_one_bug(pair):
    assert same_bug(*pair)
    assert len(grouped(pair, lambda _: True)) == 1


@pytest.mark.parametrize("pair", TWO.values(), ids=TWO)
def test_two_bugs(pair):
    assert not same_bug(*pair)
    assert len(grouped(pair, lambda _: True)) == 2


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("cols % 4 != 0", "cols == 1", True),
        ("cols == 1", "cols % 4 != 0", False),
        ("cols >= 2", "cols % 8 == 3 and cols >= 3", True),
        ("3 <= cols <= 5", "cols == 4", True),
        ("cols % 4 != 0", "rows == 1", False),
        ("cols % 4 != 0", "cols == 600", False),  # farther than anybody looks
        ("x.layout is not contiguous", "x.layout is transposed", False),
        ("x.layout is transposed", "x.layout is transposed", True),
        ("__import__('os')", "cols == 1", False),
        ("'%9999999999d' % cols", "cols == 1", False),
    ],
)
def test_a_condition_that_another_one_contains(wide, narrow, holds):
    assert implied(wide, narrow) is holds


def test_noise_of_the_reference_comes_last():
    said = "out[0] is 1, wanted 2: 1.3 times its estimated error budget of 1e-16"
    noise = finding(dtype="float64", cols=2, message=said)
    real = finding(subject=MINE.but(name="zebra"), message=said)
    assert [is_noise(f) for f in (noise, real, finding(dtype="float64"))] == [True, False, False]
    assert grouped([noise, real], lambda _: True) == [[real], [noise]]
    beside = finding(cols=9, message=said)
    assert grouped([noise, beside], lambda _: True) == [[beside, noise]], "it leads no bug that shows elsewhere"
