"""Dimensions of a reference that are tried far beyond the usual extents: nothing is timed, a user's word is kept."""

import pytest
from _references import hosted

from kernel_assay.fuzz.generation.model_shapes import EARLY, long_turn
from kernel_assay.oracles.references.contract import contract_from

FORMULAS = {
    "torch.cumsum(x, 1)": {"rows", "cols"},
    "torch.cdist(x, x)": {"cols"},
    "torch.softmax(x @ x.T, 1) @ x": {"cols"},
    "torch.stack([row.sum() for row in x])": {"cols"},
    "torch.cat([part * 2 for part in x.split(256, 1)], 1)": {"rows", "cols"},
    "x * torch.arange(2048)[: x.shape[1]]": {"rows"},
    "np.cumsum(x, axis=1)": {"rows", "cols"},
    "np.abs(x[:, None] - x[None]).sum((1, 2))": {"cols"},
    "np.stack([row.sum() for row in x])": {"cols"},
}


def contract_with(folder, formula, more=""):
    text = f'{more}\ndef f(x: "float32[rows, cols]"):\n    return {formula}\n'
    host = hosted(folder, text, head="import numpy as np\n" if "np." in formula else "import torch\n")
    return contract_from("op", host.message(), lambda x: {"out": x}, origin="ref.py:f")


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_dimension_is_long_where_the_reference_takes_it_in_a_moment(tmp_path, formula):
    dims = contract_with(tmp_path, formula).dims
    assert {name for name, dim in dims.items() if dim.far} == FORMULAS[formula]


def test_the_early_long_cases_reach_65537_and_keep_what_the_user_says(tmp_path):
    contract = contract_with(tmp_path, "torch.cumsum(x, 1)", 'DIMS = {"rows": (1, 8)}')
    found = [long_turn(contract, 4 * EARLY, seed, 32 * 2 + 5, early=True) for seed in range(8)]
    extents = {long.dims["cols"] for long in found if long}
    assert extents <= {EARLY - 1, EARLY, EARLY + 1}
    assert EARLY + 1 in extents
    assert all(long.dims["rows"] <= 3 for long in found if long)
    assert not any(
        long and long.dims["rows"] > 8 for long in (long_turn(contract, 4 * EARLY, 1, n) for n in range(3000))
    )
    assert contract.dims["rows"].far == 0
