"""Whoever makes the whole and whoever makes a few rows of it agree on them, and see another value there."""

from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.inputs.fingerprint import EDGE, rows_digest, rows_digest_of, rows_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_rows_of_every_op_are_alike_either_way(op):
    random = Random(f"rows {op}")
    for _ in range(40):
        case, _ = generate(Target(contract_of(op)), random)
        assert rows_digest(case) == rows_digest_of(case, materialize_all(case)), case


def test_the_ends_are_among_them_and_the_case_decides_the_rest():
    def case(seed):
        fill = Fill(distribution="normal", seed=seed)
        return Case(op="silu", tensors={"x": TensorRecipe(shape=(500, 3000), dtype="float16", fill=fill)})

    rows = rows_of(case(1))["x"]
    assert {0, 499} <= set(rows[0].tolist())
    assert {*range(EDGE), *range(3000 - EDGE, 3000)} <= set(rows[1].tolist())
    assert len(rows[0]) <= 4
    assert rows[0].tolist() == rows_of(case(1))["x"][0].tolist() != rows_of(case(2))["x"][0].tolist()
    inputs = materialize_all(case(1))
    inputs["x"].view(np.uint16)[int(rows[0][1]), -1] ^= 1
    assert rows_digest_of(case(1), inputs) != rows_digest(case(1))
