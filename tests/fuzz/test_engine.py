"""The stream of cases: a function of seed and index, steered with a fixed delay, the same from both engines."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData

from kernel_assay.corpus.errors import InternalError
from kernel_assay.fuzz.generation.elites import LEAST_LEAD, Elite, Elites
from kernel_assay.fuzz.generation.engines import (
    BATCH,
    ENGINES,
    FIRST_CHECKED,
    FIRST_SMALLEST,
    SMALLEST_SINCE,
    Target,
    conjecture_engine,
    generate,
    given_engine,
    propose,
)
from kernel_assay.fuzz.generation.strategies import cases
from kernel_assay.fuzz.planning.coverage import shape_class
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.oracles.catalog import contract_of, load_contracts

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX, GEMM = Target(contract_of("softmax")), Target(contract_of("gemm"), hints=(48,))


def ids(engine, targets, seed, start, batches, elites=None):
    stream = ENGINES[engine](targets, seed, start, elites or Elites())
    return [(p.index, p.case.id) for batch in islice(stream, batches) for p in batch]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_cases_and_another_gives_others(engine):
    first = ids(engine, [SOFTMAX, GEMM], 1, 0, 3)
    assert [i for i, _ in first] == list(range(3 * BATCH))
    assert ids(engine, [SOFTMAX, GEMM], 1, 0, 3) == first
    other = ids(engine, [SOFTMAX, GEMM], 2, 0, 3)
    assert len({i for _, i in other} & {i for _, i in first}) < 10
    assert len({i for _, i in first}) > 80


@pytest.mark.parametrize("engine", ENGINES)
def test_a_later_start_gives_what_running_there_would(engine):
    whole = ids(engine, [SOFTMAX, GEMM], 3, 0, 40)
    assert ids(engine, [SOFTMAX, GEMM], 3, 34 * BATCH, 6) == whole[34 * BATCH :]


@pytest.mark.parametrize("engine", ENGINES)
def test_targets_take_turns(engine):
    batch = next(ENGINES[engine]([SOFTMAX, GEMM], 0, 0, Elites()))
    assert [p.case.op for p in batch] == ["softmax", "gemm"] * (BATCH // 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stream_starts_at_a_batch_only(engine):
    with pytest.raises(InternalError):
        next(ENGINES[engine]([SOFTMAX], 0, BATCH + 1, Elites()))


def elites_with(batch, seed=5):
    elites = Elites()
    _, choices = generate(SOFTMAX, Random(seed))
    assert elites.offer(Elite("cell", "softmax", 0.5, batch, batch * BATCH, choices))
    return elites, choices


def test_elites_are_visible_only_some_batches_later():
    elites, _ = elites_with(3)
    for batch, seen in ((3, False), (3 + LEAST_LEAD - 1, False), (3 + LEAST_LEAD, True), (20, True)):
        parents = [propose([SOFTMAX], 1, batch * BATCH + i, elites).parent for i in range(BATCH)]
        assert any(parents) is seen, batch


def test_elites_of_another_op_do_not_steer():
    elites, _ = elites_with(0)
    assert not any(propose([GEMM], 1, 100 * BATCH + i, elites).parent for i in range(BATCH))


def test_a_better_elite_replaces_a_worse_one_and_a_failing_one_never_enters():
    elites, choices = elites_with(0)
    assert elites.offer(Elite("cell", "softmax", 0.51, 1, 1, choices)) is None, "hardly better"
    assert elites.offer(Elite("cell", "softmax", 1.5, 1, 1, choices)) is None, "beyond the line"
    assert elites.offer(Elite("cell", "softmax", float("nan"), 1, 1, choices)) is None
    assert elites.offer(Elite("cell", "softmax", 0.9, 1, 1, ())) is None, "no choices to steer by"
    admitted = elites.offer(Elite("cell", "softmax", 0.9, 2, 64, choices))
    assert len(elites) == 1
    assert elites.pick("softmax", 2 + LEAST_LEAD, Random(0)).rho == 0.9
    assert elites.pick("softmax", 2 + LEAST_LEAD - 1, Random(0)).rho == 0.5, "what a batch saw does not change later"
    assert Elites([admitted]).pick("softmax", 9, Random(0)).choices == choices


def test_steering_keeps_most_choices():
    elites, parent = elites_with(0)
    mutants = [p for i in range(600) if (p := propose([SOFTMAX], 4, 10 * BATCH + i, elites)).parent]
    assert 0.35 < len(mutants) / 600 < 0.65
    kept = [sum(a == b for a, b in zip(p.choices, parent, strict=False)) / len(parent) for p in mutants]
    assert sum(kept) / len(kept) > 0.7
    assert len({p.case.id for p in mutants}) > 50


def features(case):
    first = next(iter(case.tensors.values()))
    special = first.specials[0].value if first.specials else "none"
    return {
        "dtype": case.dtype,
        "layout": first.layout,
        "shape": shape_class(case),
        "distribution": first.fill.distribution,
        "scale": first.fill.scale,
        "special": special,
    }


def test_both_engines_draw_from_the_same_distribution():
    count = 3000
    target = Target(contract_of("layernorm"))
    tables = []
    for engine in (conjecture_engine, given_engine):
        stream = engine([target], 7, 0, Elites())
        drawn = [p.case for batch in islice(stream, -(-count // BATCH)) for p in batch]
        table = {}
        for case in drawn:
            for name, value in features(case).items():
                table.setdefault(name, Counter())[value] += 1
        tables.append((table, len(drawn)))
    (one, n), (two, m) = tables
    for name in one:
        keys = set(one[name]) | set(two[name])
        distance = sum(abs(one[name][k] / n - two[name][k] / m) for k in keys) / 2
        noise = sum((one[name][k] / n / n + two[name][k] / m / m) ** 0.5 for k in keys) / 2
        assert distance < 2.5 * noise, (name, distance, noise)


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_choices_replayed_through_hypothesis_give_the_same_case(op):
    target = Target(contract_of(op))
    drawn = [p for p in (propose([target], 11, index, Elites()) for index in range(40)) if p.choices]
    assert len(drawn) > 25
    for proposal in drawn:
        data = ConjectureData.for_choices(proposal.choices)
        assert _drawn(op, data).id == proposal.case.id
        steered, choices = generate(target, Random(999), dict(enumerate(proposal.choices)))
        assert (steered.id, choices) == (proposal.case.id, proposal.choices)


def _drawn(op, data):
    from hypothesis.control import BuildContext

    with BuildContext(data, is_final=False, wrapped_test=lambda: None):
        return data.draw(cases(op))


def test_mutants_are_valid_whatever_the_parent_was():
    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=1, max_size=30), st.integers(0, 1 << 16))
    def check(answers, seed):
        case, _ = generate(GEMM, Random(seed), dict(enumerate(answers)))
        dims = GEMM.contract.dims_of(case)
        assert all(GEMM.contract.dims[d].low <= n <= GEMM.contract.dims[d].high for d, n in dims.items())

    check()


def test_ci_in_the_environment_changes_nothing(tmp_path):
    """Hypothesis' own `ci` profile would give the same examples every night."""
    code = (
        "from kernel_assay.fuzz.generation.engines import *\n"
        "from kernel_assay.fuzz.generation.elites import Elites\n"
        "from kernel_assay.oracles.catalog import contract_of\n"
        "for s in (1, 2):\n"
        "    print(next(given_engine([Target(contract_of('softmax'))], s, 0, Elites()))[9].case.id)\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in {"CI", "GITHUB_ACTIONS"}} | {"PYTHONPATH": str(ROOT)}
    said = []
    for extra in ({}, {"CI": "true", "GITHUB_ACTIONS": "true"}):
        done = subprocess.run(
            [sys.executable, "-c", code], env=env | extra, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        said.append(done.stdout.split())
    assert said[0] == said[1]
    assert len(set(said[0])) == 2, "another seed, other cases"
    assert not (tmp_path / ".hypothesis" / "examples").exists()


def test_memory_stays_flat():
    code = (
        "from kernel_assay.fuzz.generation.engines import *\n"
        "from kernel_assay.fuzz.generation.elites import Elites\n"
        "from kernel_assay.oracles.catalog import contract_of\n"
        "def rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "stream = conjecture_engine([Target(contract_of('silu'))], 1, 0, Elites())\n"
        "for _ in range(60): next(stream)\n"
        "before = rss()\n"
        "for _ in range(20000 // BATCH): next(stream)\n"
        "print(rss() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 20 << 20


@pytest.mark.parametrize("name", ENGINES)
def test_a_share_of_the_cases_is_contracted_and_the_rest_are_what_they_were(name):
    """A run that was recorded before there were any goes on with the cases that it had."""
    fused = replace(SOFTMAX, contracted=True)
    plain, mixed = (
        [p.case for batch in islice(ENGINES[name]([target], 1, 0, Elites()), 8) for p in batch]
        for target in (SOFTMAX, fused)
    )
    assert not any(c.contracted for c in plain)
    assert [c.but(contracted=False).id for c in mixed] == [c.id for c in plain]
    assert len(mixed) / 6 < sum(c.contracted for c in mixed) < len(mixed) / 3
    assert not any(is_checked(c) for c in mixed if c.contracted)


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_of_ones_own_kernels_checks_all_of_the_first_cases_and_half_of_the_others(name):
    """Only seeds differ from those of a run that checks a quarter, and a run that was recorded before keeps its own."""
    few, often = (
        [p.case for batch in islice(ENGINES[name]([target], 1, 0, Elites()), 16) for p in batch]
        for target in (replace(SOFTMAX, contracted=True), replace(SOFTMAX, contracted=True, checks_often=True))
    )
    assert all(map(is_checked, often[:FIRST_CHECKED]))
    assert not all(map(is_checked, few[:FIRST_CHECKED]))
    rest = often[FIRST_CHECKED:]
    assert 0.4 < sum(map(is_checked, rest)) / len(rest) < 0.6
    assert len(rest) / 6 < sum(c.contracted for c in rest) < len(rest) / 3
    shapes = [[(t.shape, t.layout, t.specials) for c in one for t in c.tensors.values()] for one in (few, often)]
    same = sum(a == b for a, b in zip(*shapes, strict=True))
    assert same > 0.95 * len(shapes[0]), "but for those that repeat a case with other elements, which its fields decide"


def test_dear_cases_are_not_checked_more_often():
    wide = replace(SOFTMAX, checks_often=True, shapes=({"rows": 2048, "cols": 1024},))
    made = [propose([wide], 1, i, Elites()).case for i in range(64)]
    assert sum(map(is_checked, made)) < 32


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_one_of_the_first_cases_is_as_small_as_it_can_be(op):
    contract = contract_of(op)
    dims = [contract.dims_of(propose([Target(contract)], seed, FIRST_SMALLEST, Elites()).case) for seed in range(8)]
    smallest = {name: dim.least or dim.multiple for name, dim in contract.dims.items()}
    assert sum(found == smallest for found in dims) >= 5, "the others are the last case once more"


def test_runs_that_began_before_have_no_such_case():
    target = Target(contract_of("softmax"), generation=SMALLEST_SINCE - 1)
    assert propose([target], 1, FIRST_SMALLEST, Elites()).choices
