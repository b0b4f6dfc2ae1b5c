"""Cases with more elements than 32 bits count: drawn now and then, judged by a sample; limits are moved down here."""

import json
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.campaign import batches
from kernel_assay.fuzz.checking import large_policy
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation import model_shapes
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.generation.model_shapes import FAR, elements_of, far_turn
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.large import parts, sampled
from kernel_assay.oracles.large.parts import around, is_beyond, sample

FIRST = FAR[1 << 31] // 4 + 3
ROOM = 1 << 36
KERNEL = """import numpy as np
OP = "silu"


def run(out, x):
    flat, found = x.reshape(-1), out.reshape(-1)
    w = flat.astype(np.float64)
    made = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    {line}
"""
LINES = {
    "right": "found[:] = made",
    "silent": f"found[:{1 << 16}] = made[:{1 << 16}]",
    "wrapped": f"found[:] = made[np.arange(made.size) % {1 << 16}]",
}


@pytest.fixture
def lowered(monkeypatch):
    """32 bits count to 65,536, and one case in 64 has more elements."""
    monkeypatch.setattr(parts, "BEYOND", (1 << 16, 1 << 17))
    monkeypatch.setattr(large_policy, "LARGE", 1 << 16)
    for module in (model_shapes, batches):
        monkeypatch.setattr(module, "FAR", {1 << 16: 64})


@pytest.fixture
def kernel(tmp_path):
    def write(name):
        path = tmp_path / f"{name}.py"
        path.write_text(KERNEL.format(line=LINES[name]))
        return user_subject(str(path), ())

    return write


def drawn(op="silu", seed=1, number=19, farthest=1 << 23):
    return propose([Target(contract_of(op), farthest=farthest)], seed, number, Elites())


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_the_sample_of_a_case_holds_both_ends_and_what_lies_beside_the_limit(op):
    contract = contract_of(op)
    shapes = list(far_turn(contract, ROOM, 1, FIRST))
    assert shapes
    assert not list(far_turn(contract, 1 << 31, 1, FIRST))
    assert not list(far_turn(contract, ROOM, 1, FIRST + 1))
    proposal = drawn(op, number=FIRST, farthest=ROOM)
    assert proposal.is_far
    assert proposal.is_long
    assert elements_of(contract, contract.dims_of(proposal.case)) > 1 << 31
    tracemalloc.start()
    made = sample(contract, proposal.case)
    values = made[0].inputs()
    name, spec = next(iter(contract.output_specs(proposal.case).items()))
    around(contract, proposal.case, name, [int(np.prod(spec.shape, dtype=np.int64)) - 1])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 30
    assert all(array.size <= 1.25 * parts.MOST for array in values.values())
    for tensor, recipe in proposal.case.tensors.items():
        for axis, along in made[0].axes[tensor].items():
            everywhere = {int(i) for part in made for i in part.axes[tensor][axis]}
            assert {0, recipe.shape[axis] - 1} <= everywhere
            if recipe.size > 1 << 31 and axis == 0 and len(recipe.shape) > 1 and not contract.placed:
                assert (1 << 31) // (recipe.size // recipe.shape[0]) in along


def test_ordinary_cases_are_sampled_as_before(monkeypatch):
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(3000, 5000), dtype="float32", fill=Fill())})
    before = [part.axes for part in sample(contract_of("silu"), case)]
    monkeypatch.setattr(parts, "BEYOND", (1 << 60, 1 << 61))
    after = [part.axes for part in sample(contract_of("silu"), case)]
    assert not is_beyond(contract_of("silu"), case)
    assert [{n: {a: i.tolist() for a, i in cut.items()} for n, cut in axes.items()} for axes in before] == [
        {n: {a: i.tolist() for a, i in cut.items()} for n, cut in axes.items()} for axes in after
    ]


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("seed", range(4))
def test_whose_index_does_not_fit_is_found_by_the_sample_and_who_is_right_is_not_accused(kernel, seed):
    case = drawn(seed=seed).case
    assert is_beyond(contract_of("silu"), case)
    plain = case.but(tensors={"x": case.tensors["x"].but(fill=Fill(distribution="normal", seed=seed), specials=())})
    subjects = {name: kernel(name) for name in LINES}
    with Examiner(subjects.values(), timeout=20.0) as examiner:
        said = {
            name: examiner.check([CheckRequest(plain, (subject.key,))])[0].verdicts[subject.key]
            for name, subject in subjects.items()
        }
    assert said["right"].kind is Kind.PASS, said["right"]
    assert 0 < said["right"].shares[0].sampled < said["right"].shares[0].of
    assert said["right"].shares[0].peer == 0
    assert said["silent"].kind is Kind.UNWRITTEN, said["silent"]
    assert said["wrapped"].kind is Kind.MISMATCH, said["wrapped"]


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("megabytes", [0, 8])
def test_a_search_draws_one_now_and_then(kernel, fuzz, tmp_path, monkeypatch, megabytes):
    monkeypatch.chdir(tmp_path)
    room = ["--case-memory", megabytes] if megabytes else []
    options = ["--peer", "none", "--cases", 32, "--seed", 3, "--quiet", *room]
    code, said, _ = fuzz("run", "--subject", kernel("right").path, *options)
    assert code == 0, said
    (run,) = Path("corpus/local/runs").iterdir()
    reached = json.loads((run / "campaign.json").read_text())["reach"]["silu/right"]["elements"]
    assert (reached > 1 << 16) is bool(megabytes)


@pytest.mark.usefixtures("lowered")
def test_there_is_none_without_the_memory_or_for_runs_that_began_before():
    assert not drawn(farthest=0).is_far
    assert not drawn(farthest=1 << 16).is_far
    assert drawn().is_far


def test_where_very_many_elements_were_never_written_the_first_decide(monkeypatch):
    monkeypatch.setattr(sampled, "MOST_KEPT", 40)
    pieces = [np.arange(start, start + 20) for start in range(100, 1000, 20)]
    assert sampled.unwritten_pattern(iter(pieces), 100, 900, (100, 10)) == "rows"
    assert sampled.unwritten_pattern(iter(pieces), 0, 1000, (100, 10)) == "all"
    taken = iter(pieces)
    sampled.unwritten_pattern(taken, 100, 900, (100, 10))
    assert len(list(taken)) == len(pieces) - 2


def test_shapes_depend_on_the_seed_and_the_number_alone():
    contract = contract_of("silu")
    same = [list(far_turn(contract, ROOM, 7, FIRST)) for _ in range(2)]
    assert same[0] == same[1]
    seeds = {str(list(far_turn(contract, ROOM, Random(n).getrandbits(32), FIRST))) for n in range(16)}
    assert len(seeds) > 4
