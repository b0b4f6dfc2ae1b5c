"""What a run counts: the same whatever the order and however often it was interrupted."""

from dataclasses import replace
from random import Random

import pytest

from kernel_assay.corpus.model.campaign import Fidelity, Moment, Statistics
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.campaign.subject_counters import (
    BUDGET_BUCKETS,
    MOMENTS,
    OTHER_REASONS,
    REASONS,
    SubjectCounters,
    budget_bucket,
    thinned,
    ulps_bucket,
)
from kernel_assay.fuzz.checking.requests import Checked

KEY = "silu/mine"


def checked(kind=Kind.PASS, *, status=Status.OK, rho=0.0, ulps=0, classes=(), message="", size=6, nanoseconds=1000):
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(1, size), dtype="float32")})
    verdict = Verdict(kind=kind, rho=rho, ulps=ulps, message=message)
    execution = Execution(status=status, subject=KEY, nanoseconds=nanoseconds)
    return Checked(case, "d", {KEY: verdict}, {KEY: execution}, 0, classes)


def counted(many, before=None):
    tally = SubjectCounters(before)
    for one in many:
        tally.add(one, KEY)
    return tally.record()


def declined(reason):
    return checked(Kind.UNSUPPORTED, status=Status.UNSUPPORTED, message=reason)


MANY = [
    *(checked(rho=2.0**-i, ulps=i, nanoseconds=i) for i in range(12)),
    *(checked(classes=c) for c in ((), ("nan",), ("nan", "inf"), ("-inf",))),
    *(checked(Kind.MISMATCH, rho=9.0, ulps=99, classes=("nan",)) for _ in range(3)),
    *(checked(Kind.CRASHED, status=Status.CRASHED) for _ in range(2)),
    *(declined(f"no {i % 4}") for i in range(9)),
]


@pytest.mark.parametrize(
    ("rho", "bucket"),
    [
        (-1.0, 0), (0.0, 0), (5e-324, 1), (2.0**-9, 1), (2.0**-8, 1), (2.0**-8 * 1.001, 2), (2.0**-7, 2), (0.25, 7),
        (0.26, 8), (0.5, 8), (0.501, 9), (1.0, 9), (1.0 + 2.0**-52, 9), (7.0, 9),
    ],
)  # fmt: skip
def test_buckets_of_budget_used(rho, bucket):
    assert budget_bucket(rho) == bucket
    assert 0 <= bucket < BUDGET_BUCKETS


@pytest.mark.parametrize(
    ("ulps", "bucket"),
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5), (2**20, 21), (2**20 + 1, 22), (2**64 - 1, 65)],
)
def test_buckets_of_distance(ulps, bucket):
    assert ulps_bucket(ulps) == bucket


def test_what_is_counted():
    said = counted(MANY)
    assert said.timed == 12 + 4 + 3
    assert said.elements == 6 * said.timed
    assert said.nanoseconds == sum(range(12)) + 7 * 1000
    assert sum(said.rho) == sum(said.ulps) == 16
    assert said.rho == (4, 4, 1, 1, 1, 1, 1, 1, 1, 1)
    assert said.ulps == (5, 1, 1, 2, 4, 3)
    assert said.classes == {"nan": 2, "inf": 1, "-inf": 1}
    assert said.skipped == {"no 0": 3, "no 1": 2, "no 2": 2, "no 3": 2}


def test_nothing_counted_is_a_record_too():
    empty = counted([])
    assert empty.rho == (0,) * BUDGET_BUCKETS
    assert empty.but(rho=()).canonical() == Statistics().canonical()


@pytest.mark.parametrize("seed", range(5))
def test_the_order_does_not_matter(seed):
    shuffled = list(MANY)
    Random(seed).shuffle(shuffled)
    assert counted(shuffled).canonical() == counted(MANY).canonical()


@pytest.mark.parametrize("cut", [0, 1, 11, 17, len(MANY) - 1, len(MANY)])
def test_a_resumed_run_counts_on(cut):
    first = Statistics.model_validate_json(counted(MANY[:cut]).model_dump_json())
    assert counted(MANY[cut:], first).canonical() == counted(MANY).canonical()


def test_many_reasons_are_counted_together():
    reasons = [declined(f"size {i}") for i in range(REASONS + 5)] + [declined("size 3")]
    said = counted(reasons)
    assert said.skipped == {**{f"size {i}": 1 + (i == 3) for i in range(REASONS)}, OTHER_REASONS: 5}
    more = counted([declined("size 1"), declined("another")], said)
    assert (more.skipped["size 1"], more.skipped[OTHER_REASONS], len(more.skipped)) == (2, 6, REASONS + 1)
    cut = counted(reasons[9:], counted(reasons[:9]))
    assert cut.canonical() == said.canonical()


def test_a_record_of_a_run_that_knew_fewer_ulps_grows():
    said = counted([checked(ulps=2**30)], counted([checked(ulps=1)]))
    assert len(said.ulps) == 32
    assert sum(said.ulps) == 2


def lossy(kind, worst):
    return replace(checked(), fidelity={KEY: (kind, Fidelity(what="error", worst=worst, limit=0.5))})


def test_the_worst_of_each_kind_is_kept():
    said = counted([lossy("b", 0.25), lossy("a", 0.125), lossy("b", 0.375), lossy("b", 0.0)])
    assert {kind: one.worst for kind, one in said.fidelity.items()} == {"a": 0.125, "b": 0.375}
    more = counted([lossy("a", 0.0625), lossy("b", 0.75), checked()], said)
    assert {kind: one.worst for kind, one in more.fidelity.items()} == {"a": 0.125, "b": 0.75}
    assert more.fidelity["b"].limit == 0.5
    failed = replace(lossy("c", 1.0), verdicts={KEY: Verdict(kind=Kind.MISMATCH)})
    assert counted([failed]).fidelity == {}


def test_another_subjects_verdict_is_not_counted():
    one = checked(rho=0.5)
    other = (
        {"silu/other": Verdict(kind=Kind.MISMATCH)},
        {"silu/other": Execution(status=Status.OK, subject="silu/other")},
    )
    both = replace(one, verdicts=one.verdicts | other[0], executions=one.executions | other[1])
    assert counted([both]).canonical() == counted([one]).canonical()


def moments(count):
    return [Moment(seconds=float(i), judged=i, cells=i, findings=i) for i in range(count)]


def test_a_timeline_is_thinned_before_it_grows_long():
    line = []
    for moment in moments(5 * MOMENTS):
        line = thinned([*line, moment])
        assert len(line) < MOMENTS
        assert line[0].judged == 0
    assert [m.seconds for m in line] == sorted(m.seconds for m in line)


def test_a_timeline_ends_where_the_run_is():
    line = moments(MOMENTS)
    assert thinned(line)[-1].judged == line[-1].judged
