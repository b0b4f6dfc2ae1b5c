"""Shapes of language models: valid for every op, within the memory that a case may have, and in turn."""

from dataclasses import replace
from math import prod
from random import Random

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, Target, given_engine, propose
from kernel_assay.fuzz.generation.model_shapes import EVERY, PRODUCTS, seed_cases, shapes_of, turn
from kernel_assay.fuzz.generation.strategies import build, memory_of
from kernel_assay.fuzz.planning.regenerate import case_of_run
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.large.parts import sample
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

OPS = sorted(load_contracts())
MEGABYTE = 1 << 20


def size(contract, case):
    tensors = [*case.tensors.values(), *contract.output_specs(case).values()]
    return sum(prod(t.shape) * format_of(t.dtype).bits // 8 for t in tensors)


@pytest.mark.parametrize("op", OPS)
def test_every_shape_of_every_op_is_one_that_it_can_have(op):
    contract = contract_of(op)
    cases = list(seed_cases(contract, Random(op).randint, 1 << 40))
    assert len(cases) == len(shapes_of(contract)) >= 4
    for case in cases:
        contract.check(case)
        assert contract.dims_of(case) in [dict(shape) for shape in shapes_of(contract)]
    assert max(case.elements for case in cases) > 20 * contract.max_elements


@pytest.mark.parametrize("op", OPS)
def test_every_shape_can_be_judged_in_parts(op):
    contract = contract_of(op)
    for case in seed_cases(contract, Random(op).randint, 1 << 40):
        assert sum(part.case.elements for part in sample(contract, case)) < 1 << 25


def test_the_edges_are_there():
    assert {"m": 512, "n": 1, "k": 1024} in shapes_of(contract_of("gemm"))
    assert {"m": 8192, "k": 14336} in shapes_of(contract_of("gemv"))
    assert {"m": 1024, "n": 5, "blocks": 64} in shapes_of(contract_of("qgemm"))
    assert all(k % 32 == 0 for _, _, k in PRODUCTS)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("megabytes", [1, 64])
def test_nothing_is_larger_than_a_case_may_be(op, megabytes):
    contract, random = contract_of(op), Random(op)
    limit = megabytes * MEGABYTE
    cases = [
        *seed_cases(contract, random.randint, limit),
        *(build(contract, random.randint, memory=limit) for _ in range(60)),
    ]
    assert all(size(contract, case) <= limit for case in cases)
    target, none = Target(contract, memory=limit), Elites([])
    proposed = [propose([target], 1, i, none).case for i in range(4 * EVERY)]
    assert all(size(contract, case) <= limit for case in proposed)


def test_memory_counts_all_inputs_and_outputs():
    contract = contract_of("gemm")
    dims = {"m": 3, "n": 5, "k": 7}
    assert memory_of(contract, contract.variants[1], dims, {}) == 2 * (21 + 35 + 15 + 15)
    assert memory_of(contract, contract.variants[4], dims, {}) == 21 + 35 + 4 * (15 + 15)
    convert = contract_of("convert")
    assert memory_of(convert, {"x": "float32"}, {"rows": 3, "cols": 4}, {"to": "float16"}) == 12 * 6


def test_one_case_in_sixteen_of_an_op_has_such_a_shape_and_all_come_in_turn():
    targets = [Target(contract_of(op), memory=1 << 40) for op in ("gemm", "softmax")]
    shapes = [dict(shape) for shape in shapes_of(targets[0].contract)]
    none, met = Elites([]), []
    for index in range(2 * EVERY * len(shapes)):
        if index % 2 == 0:
            dims = targets[0].contract.dims_of(propose(targets, 7, index, none).case)
            assert (dims in shapes) == (index // 2 % EVERY == EVERY - 1) or max(dims.values()) < 100
            met += [dims] if index // 2 % EVERY == EVERY - 1 else []
    assert all(met.count(shape) == 1 for shape in shapes)
    assert len(met) == len(shapes)
    assert turn(targets[0].contract, 7, EVERY - 1) != turn(targets[0].contract, 8, EVERY - 1)


def test_a_case_depends_on_nothing_but_seed_and_index():
    targets, none = [Target(contract_of("gemm"), memory=64 * MEGABYTE)], Elites([])
    forward = [propose(targets, 3, i, none).case.id for i in range(3 * EVERY)]
    backward = [propose(targets, 3, i, none).case.id for i in reversed(range(3 * EVERY))]
    assert forward == backward[::-1]
    plain = [propose([Target(contract_of("gemm"))], 3, i, none).case.id for i in range(3 * EVERY)]
    same = [i for i in range(3 * EVERY) if forward[i] == plain[i]]
    assert same == [i for i in range(3 * EVERY) if i % EVERY != EVERY - 1]  # 64 megabytes cut off no other case


def test_the_engine_given_keeps_to_the_memory():
    contract = contract_of("gemm")
    batch = next(given_engine([Target(contract, memory=1 << 12)], 1, 0, Elites([])))
    assert len(batch) == BATCH
    assert all(size(contract, p.case) <= 1 << 12 for p in batch)


def own(low=1, high=512):
    return Contract(
        name="mine",
        summary="x",
        dims={"rows": Dim(low, high), "cols": Dim(1, 4096)},
        inputs={"x": Input(("rows", "cols"))},
        outputs={"out": Output(("rows", "cols"), like="x")},
        variants=({"x": "float32"},),
        reference=lambda x: {"out": x},
        origin="mine.py",
    )


def test_ops_of_ones_own_keep_to_their_ranges():
    assert {"rows": 512, "cols": 4096} in shapes_of(own())
    assert all(shape["rows"] <= 512 and shape["cols"] <= 4096 for shape in shapes_of(own()))
    assert shapes_of(replace(own(), dims={"n": Dim(0, 9)})) == ()


@pytest.mark.parametrize("most", [None, 512])
def test_of_many_dims_that_are_small_one_is_beyond_a_tile_now_and_then(most):
    axes = {"q": ("b", "h", "s"), "k": ("b", "h", "t")}
    contract = replace(
        own(),
        dims={**dict.fromkeys("bhs", Dim(1, 300, 1, 48)), "t": Dim(4, 300, 4, 48)},
        inputs={name: Input(one) for name, one in axes.items()},
        outputs={"out": Output(("b", "s", "t"), like="q")},
        variants=({"q": "float32", "k": "float32"},),
        max_elements=1 << 15,
    )
    cases = [propose([Target(contract, max_elements=most)], 1, i, Elites([])).case for i in range(288)]
    found = [contract.dims_of(case) for case in cases]
    assert max(t.size for case in cases for t in case.tensors.values()) <= (most or 1 << 15)
    assert all(sum(n > 48 for n in dims.values()) <= 1 for dims in found)
    assert sum(max(dims.values()) > 48 for dims in found) < len(found) / 4
    for name in contract.dims:
        met, step = {dims[name] for dims in found}, contract.dims[name].multiple
        assert {64, 64 + step, 128 if most else 256 + step} <= met
    assert all(dims["t"] % 4 == 0 for dims in found)


def test_an_op_whose_smallest_case_is_too_large_is_refused():
    with pytest.raises(UsageError, match="the smallest case of mine needs more elements or memory"):
        build(own(512), Random(1).randint, memory=1000)
    with pytest.raises(UsageError, match="the smallest case of mine needs more elements or memory"):
        build(own(512), Random(1).randint, max_elements=100)


def test_a_run_tries_them_and_can_make_them_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--backend", "numpy", "--cases", "32", "--seed", "3", "--quiet", "--case-memory", "1"]
    assert main(["run", "row_max", *options]) == 0
    assert "findings: none" in capsys.readouterr().out
    with Store(tmp_path / "corpus") as store:
        (run,) = store.runs()
        assert store.load_run(run).options["case_memory"] == 1
        case, _ = case_of_run(store, run, EVERY - 1)
    assert {name: case.tensors["x"].shape[i] for i, name in enumerate(("rows", "cols"))} in shapes_of(
        contract_of("row_max")
    )


def test_too_little_memory_is_refused(capsys):
    assert main(["run", "row_max", "--case-memory", "0"]) == 2
    assert "--case-memory must be a whole number of at least 1, not '0'" in capsys.readouterr().err
