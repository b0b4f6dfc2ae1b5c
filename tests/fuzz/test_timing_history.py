"""Since when a kernel is slower: change points in medians of kept runs."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.fuzz.timing.history import Point, Series, cuts, form_of, histories, kept, read, steps, told

MACHINE = Environment(python="3", platform="Linux", machine="x86_64", processor="fast one")


def case(seed=0, cols=8):
    return Case(
        op="silu",
        tensors={"x": TensorRecipe(shape=(4, cols), dtype="float32", fill=Fill(distribution="normal", seed=seed))},
    )


def run_of(number, seconds, *, machine=MACHINE, problem="", warm=False, cols=8):
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    timed = Timed(subject="silu/mine", case=case(number, cols), seconds=(seconds,) * 3, problem=problem)
    return TimingRun(
        run=f"r{number}",
        version="0",
        at=at.isoformat(),
        revision=f"{number:040x}",
        seed=number,
        device="cpu",
        environment=machine,
        warm=warm,
        noise=0.005,
        limit=1.0,
        timed=(timed,),
    )


def series(logs):
    return Series("silu/mine", "x", "m", tuple(Point(f"r{i}", "", "", float(np.exp(x))) for i, x in enumerate(logs)))


def test_a_slowdown_is_dated():
    random = np.random.default_rng(0)
    levels = [1e-3] * 20 + [1.08e-3] * 3
    runs = [run_of(i, t * np.exp(random.standard_normal() * 0.005)) for i, t in enumerate(levels)]
    (found,) = histories(reversed(runs), "silu")
    (step,) = steps(found)
    assert (step.first.run, step.runs, step.before) == ("r20", 3, 20)
    assert step.ratio == pytest.approx(1.08, abs=0.01)
    (line,) = told([found])
    assert "1.08x slower since 2026-01-21 00:00 UTC, 000000000000, 3 runs after 20" in line


def test_what_is_kept_of_a_run_is_read_again():
    run = run_of(1, 2e-5, warm=True)
    (found,) = histories([run])
    assert read(kept(run)) == (found,)
    assert found.label.endswith(", warm caches")
    (point,) = found.points
    assert (point.low, point.seconds, point.high) == (2e-5, 2e-5, 2e-5)
    assert read("[]") == read("{") == read('[{"subject": 3}]') == ()


def test_a_flat_series_has_no_change_and_one_odd_run_is_none():
    random = np.random.default_rng(1)
    noises = (random.standard_normal, lambda n: random.standard_t(3, n))
    found = [bool(cuts(noise(n) * 0.01)) for noise in noises for n in (8, 20, 60) for _ in range(60)]
    assert sum(found) <= 0.02 * len(found)
    odd = random.standard_normal(30) * 0.005
    odd[12] += 0.5
    assert cuts(odd) == []


@pytest.mark.parametrize(("jump", "runs"), [(0.08, 3), (0.05, 5), (0.03, 10), (-0.05, 6)])
def test_changes_are_found_where_they_are(jump, runs):
    random = np.random.default_rng(2)
    right = 0
    for _ in range(40):
        x = random.standard_normal(20 + runs) * 0.006
        x[20:] += jump
        right += bool((found := cuts(x)) and abs(found[-1] - 20) <= 1)
    assert right >= 38


def test_several_changes_and_short_series():
    x = np.array([0.0, 0.001, -0.001, 0.0, 0.2, 0.201, 0.199, 0.2, 0.05, 0.051, 0.049, 0.05])
    assert cuts(x) == [4, 8]
    assert [step.ratio > 1 for step in steps(series(x))] == [True, False]
    assert cuts(x[:5]) == []
    assert cuts(np.array([])) == []


def test_a_change_that_is_too_small_to_count_is_not_told():
    x = np.concatenate([np.zeros(20), np.full(20, 0.006)]) + np.tile([0.0001, -0.0001], 20)
    assert steps(series(x)) == []


def test_series_are_apart_by_machine_shape_and_caches_and_not_by_random_values():
    other = MACHINE.but(processor="slow one")
    runs = [run_of(1, 1e-3), run_of(2, 1e-3), run_of(3, 2e-3, machine=other), run_of(4, 5e-4, warm=True)]
    runs += [run_of(5, 1e-3, cols=16), run_of(6, 9.0, problem="it crashed")]
    assert sorted(len(one.points) for one in histories(runs)) == [1, 1, 1, 2]
    assert histories(runs, "softmax") == []
    assert form_of(case(1)) == form_of(case(2)) != form_of(case(1, 16))
    assert "1 run so far" in next(told(histories(runs[:1])))
