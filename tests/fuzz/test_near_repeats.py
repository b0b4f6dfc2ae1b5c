"""Now and then a case comes again with a few other elements, so that no result is kept by a fingerprint unseen."""

import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "bench"))
from _cheats import entries

from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, FIRST_SMALLEST, NEAR, NEAR_SINCE, SMALLEST, Target, propose
from kernel_assay.fuzz.generation.model_shapes import deep_turn
from kernel_assay.fuzz.generation.near_repeats import ENDS, near_repeat
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.domain import outside

ENTRIES = {f"{e.theme} {e.op}: {e.name}": e for e in entries()}
TITLES = (
    "kept silu: kept by the first and the last element",
    "kept silu: kept by the first four elements",
    "kept softmax: kept by a sample of the input",
    "kept softmax: kept by every thousandth element and the sum",
    "kept gemm: kept by the ends of both operands",
)


def with_x(**recipe):
    return Case(op="silu", tensors={"x": TensorRecipe(dtype="float32", **recipe)})


def changes(case, times=60):
    before = materialize(case.tensors["x"]).reshape(-1)
    near = (near_repeat(case, Random(n)) for n in range(times))
    return [(before, materialize(one.tensors["x"]).reshape(-1)) for one in near]


def test_only_values_change_and_never_all_of_them():
    case = with_x(shape=(7, 30), layout="transposed", fill=Fill(distribution="normal", seed=3))
    for n in range(20):
        near = near_repeat(case, Random(n))
        (old,), (new,) = case.tensors.values(), near.tensors.values()
        assert (new.shape, new.dtype, new.layout) == (old.shape, old.dtype, old.layout)
    pairs = changes(case)
    assert all((a != b).any() for a, b in pairs)
    assert all((a[:ENDS] == b[:ENDS]).all() and (a[-ENDS:] == b[-ENDS:]).all() for a, b in pairs)
    numbers = {int((a != b).sum()) for a, b in pairs}
    assert numbers >= {1, 2}, "one element changed, two exchanged"
    assert max(numbers) == 7 * 30 - 2 * ENDS, "all new but the ends"
    assert sum(sorted(a) == sorted(b) for a, b in pairs) > 20, "no sum tells the exchanged"


@pytest.mark.parametrize("shape", [(2,), (1, 3), (4, 4)])
def test_small_tensors_change_too(shape):
    assert all((a != b).any() for a, b in changes(with_x(shape=shape, fill=Fill(distribution="normal", seed=1))))


@pytest.mark.parametrize(
    "recipe",
    [
        {"shape": (1,), "fill": Fill(distribution="normal")},
        {"shape": (0, 4), "fill": Fill(distribution="normal")},
        {"shape": (8, 8), "fill": Fill(distribution="zeros")},
        {"shape": (1 << 9, 1 << 9), "fill": Fill(distribution="normal")},
        {"shape": (8, 8), "fill": Fill(distribution="normal", params={"flip": 1})},
    ],
)
def test_what_cannot_change_in_part_is_left(recipe):
    assert near_repeat(with_x(**recipe), Random(1)) is None


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_the_last_case_comes_again_in_its_batch(op):
    contract = contract_of(op)
    target, again = Target(contract), 0
    stream = [propose([target], 1, index, Elites()) for index in range(4 * BATCH)]
    for last, near in pairwise(stream):
        if near.choices or near.is_long or near.index % SMALLEST == FIRST_SMALLEST:
            continue
        if deep_turn(contract, 1, near.index):
            continue
        again += 1
        assert near.index % BATCH
        old, new = (materialize_all(p.case) for p in (last, near))
        assert {n: (x.shape, x.dtype) for n, x in old.items()} == {n: (x.shape, x.dtype) for n, x in new.items()}
        assert sum(x.tobytes() != new[n].tobytes() for n, x in old.items()) == 1
        assert near.case.attrs == last.case.attrs
        assert outside(contract, near.case) <= outside(contract, last.case)
    assert (again > NEAR * len(stream) / 8) is not all(spec.packed for spec in contract.inputs.values())


def test_runs_that_began_before_have_none():
    targets = [Target(contract_of("softmax"), generation=g) for g in (NEAR_SINCE - 1, NEAR_SINCE)]
    drawn = [[propose([t], 1, i, Elites()) for i in range(2 * BATCH)] for t in targets]
    repeats = [sum(not p.choices for p in stream) for stream in drawn]
    assert repeats[0] == 0 < repeats[1]


@pytest.mark.parametrize("title", TITLES)
def test_a_result_that_is_kept_by_a_fingerprint_is_found(tmp_path, title):
    pytest.importorskip("torch")
    entry = ENTRIES[title]
    subject = user_subject(str(entry.written(tmp_path)), ())
    target = Target(contract_of(entry.op), ("float32",))
    cases = [p.case for p in (propose([target], 1, i, Elites()) for i in range(2 * BATCH)) if not p.is_long]
    with Examiner([subject]) as examiner:
        checked = examiner.check([CheckRequest(case, (subject.key,)) for case in cases])
        wrong = next(n for n, one in enumerate(checked) if one.verdicts[subject.key].failed)
        alone = examiner.check_after((), CheckRequest(cases[wrong], (subject.key,)))
    assert alone.verdicts[subject.key].kind is Kind.PASS
    shapes = [{name: t.shape for name, t in case.tensors.items()} for case in cases[wrong - 1 : wrong + 1]]
    assert shapes[0] == shapes[1]
