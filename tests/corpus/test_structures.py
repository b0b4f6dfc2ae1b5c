"""Matrices with a structure: the same in numpy, in torch, in parts and in a script; and examples that have one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.inputs.slices import made_in_pieces, taken
from kernel_assay.corpus.inputs.structures import STRUCTURES, WRITTEN, seen_structure, structure_of
from kernel_assay.corpus.inputs.torch.recipes import materialize as on_device
from kernel_assay.corpus.model.case import MATRICES, Fill, Special, TensorRecipe


def recipe_of(name, n=5, dtype="float32", **changes):
    fill = Fill(distribution="small_integers", seed=3, params={name: 1, **changes.pop("params", {})})
    specials = (Special(value="nan", place="last"), Special(value="inf", place="one_row"))
    return TensorRecipe(
        shape=(2, n, n), dtype=dtype, fill=fill, **{"specials": specials, "pokes": ((1, 7),), **changes}
    )


def test_one_table_has_every_name():
    assert set(MATRICES) == set(STRUCTURES) == set(WRITTEN)


@given(st.sampled_from(MATRICES), st.integers(0, 7), st.sampled_from(["float32", "bfloat16", "int8", "float64"]))
def test_every_element_is_where_the_structure_has_one(name, n, dtype):
    made = materialize(recipe_of(name, n, dtype)).astype(np.float64)
    plain = materialize(recipe_of("flip", n, dtype).but(fill=Fill(distribution="small_integers", seed=3)))
    for b, i, j in np.ndindex(made.shape):
        kept = {"lower": j <= i, "upper": i <= j, "diagonal": i == j, "symmetric": j <= i}[name]
        if kept:
            assert np.array_equal(made[b, i, j], float(plain[b, i, j]), equal_nan=True)
        else:
            assert np.array_equal(made[b, i, j], made[b, j, i] if name == "symmetric" else 0.0, equal_nan=True)


@given(st.sampled_from(MATRICES), st.sampled_from([{}, {"flip": 1}, {"shift": 2}]), st.data())
def test_parts_and_torch_make_the_same_bytes(name, params, data):
    recipe = recipe_of(name, data.draw(st.integers(0, 6)), params=params)
    whole = materialize(recipe)
    assert on_device(recipe, "cpu").numpy().tobytes() == whole.tobytes()
    n = recipe.shape[1]
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else []
    assert taken(recipe, {1: rows}).tobytes() == whole[:, rows].tobytes()
    for piece, part in made_in_pieces(recipe, 4):
        assert part.tobytes() == whole[piece].tobytes()


@given(st.sampled_from(MATRICES))
def test_a_script_writes_the_same(name):
    array = np.random.default_rng(1).normal(size=(2, 4, 4))
    assert np.array_equal(eval(WRITTEN[name].format("array"), {"np": np, "array": array}), STRUCTURES[name](array))


@pytest.mark.parametrize("shape", [(), (4,), (4, 5), (1, 4)])
def test_what_is_not_square_is_refused(shape):
    assert structure_of({}, shape) == ""
    with pytest.raises(UsageError, match="cannot be lower: its last two axes must be alike"):
        materialize(TensorRecipe(shape=shape, dtype="float32", fill=Fill(params={"lower": 1})))


EXAMPLES = {
    "torch.rand(64, 64).tril()": "lower",
    "torch.rand(2, 40, 40, dtype=torch.bfloat16).triu()": "upper",
    "torch.eye(40)": "diagonal",
    "torch.rand(40).diag().numpy()": "diagonal",
    "torch.rand(40, 40) + torch.rand(40, 40).T": "",
    "torch.rand(1, 40, 40) + torch.rand(40, 1, 40)": "",
    "(lambda a: a + a.T)(torch.rand(40, 40))": "symmetric",
    "(lambda a: a + a.T)(torch.randint(0, 9, (40, 40)))": "symmetric",
    "torch.ones(40, 40)": "",
    "torch.zeros(40, 40)": "",
    "torch.rand(40)": "",
    "torch.rand(40, 41).tril()": "",
    "torch.rand(0, 0)": "",
    "torch.cat([torch.rand(40, 40).tril()[:39], torch.rand(1, 40)]) + torch.rand(40, 40)": "",
    "torch.rand(40, 40).tril().index_fill(1, torch.tensor(39), 1)": "",
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_shows_its_structure(example):
    assert seen_structure(eval(example, {"torch": torch})) == EXAMPLES[example]
