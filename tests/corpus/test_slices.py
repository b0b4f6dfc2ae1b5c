"""Parts of tensors straight from their recipes: what np.take gives of the whole, byte for byte."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.inputs.slices import taken
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.case import Fill, Special, TensorRecipe

EVERY = {"below": 9, "low": -3, "high": 5, "bound": 5, "start": 3, "second": 7}
"""What some of the distributions need to be told, each in a form that suits every dtype."""


@st.composite
def recipes(draw):
    name = draw(st.sampled_from(sorted(DISTRIBUTIONS)))
    packed = name.endswith("blocks")
    floats_only = DISTRIBUTIONS[name].floats_only
    dtypes = ["uint8"] if packed else [f.name for f in FORMATS.values() if f.is_float or not floats_only]
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(0, 40), max_size=3)))
    params = {key: value for key, value in EVERY.items() if key in {"low", "high"} or draw(st.booleans())}
    if dtype == "uint8":
        params["low"] = 0
    if packed:
        params |= draw(st.sampled_from([{"block": 18, "scales": 1}, {"block": 36, "scales": 2}]))
    if shape and draw(st.booleans()):
        params["flip"] = draw(st.integers(0, len(shape) - 1))
    bits, size = FORMATS[dtype].bits, max(1, int(np.prod(shape)))
    return TensorRecipe(
        shape=shape,
        dtype=dtype,
        origin=draw(st.just(()) | st.tuples(*(st.integers(0, 50) for _ in shape))),
        layout=draw(st.sampled_from(sorted(LAYOUTS))),
        fill=Fill(
            distribution=name, seed=draw(st.integers(0, 99)), scale=draw(st.sampled_from([1.0, 3.0])), params=params
        ),
        specials=draw(
            st.lists(
                st.builds(Special, value=st.sampled_from(sorted(VALUES)), place=st.sampled_from(sorted(PLACES))),
                max_size=2,
            )
        ),
        pokes=draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, (1 << bits) - 1)), max_size=3)),
    )


@st.composite
def questions(draw):
    """A recipe, and for some of its axes some of their indices, in any order and more than once."""
    recipe = draw(recipes())
    axes = [axis for axis in range(len(recipe.shape)) if draw(st.booleans())]
    some = {
        a: st.lists(st.integers(0, recipe.shape[a] - 1), max_size=6) if recipe.shape[a] else st.just([]) for a in axes
    }
    return recipe, {axis: draw(indices) for axis, indices in some.items()}


@settings(max_examples=400, deadline=None)
@given(questions())
def test_the_bytes_are_those_of_the_whole(question):
    recipe, picked = question
    whole = materialize(recipe)
    for axis, indices in picked.items():
        whole = np.take(whole, np.asarray(indices, np.int64), axis)
    part = taken(recipe, picked)
    assert (part.shape, part.dtype, part.tobytes()) == (whole.shape, whole.dtype, whole.tobytes())
    assert part.flags.c_contiguous


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_every_distribution_can_be_taken_from(name):
    dtype = "uint8" if name.endswith("blocks") else "float16"
    params = {"low": -3, "high": 5, "block": 34, "scales": 1}
    recipe = TensorRecipe(
        shape=(70, 90), dtype=dtype, origin=(5, 3), fill=Fill(distribution=name, seed=2, params=params)
    )
    rows, columns = [69, 0, 31, 32, 33], [0, 1, 17, 18, 89, 50]
    assert taken(recipe, {0: rows, 1: columns}).tobytes() == materialize(recipe)[np.ix_(rows, columns)].tobytes()


def test_a_part_of_a_large_tensor_takes_little_time_and_memory():
    specials = (Special(value="nan", place="one_column"), Special(value="inf", place="one_row"))
    large = TensorRecipe(
        shape=(4096, 14336), dtype="float16", fill=Fill(distribution="normal", seed=3), specials=specials
    )
    rows = np.unique(np.r_[0, 4095, np.arange(31, 34), np.arange(7, 4096, 70)])
    tracemalloc.start()
    began = time.perf_counter()
    part = taken(large, {0: rows})
    spent = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isinf(part[-1, :-1]).all()
    assert np.isnan(part[:-1, -1]).all()
    assert spent < 2.0
    assert peak < 4096 * 14336


@pytest.mark.parametrize(
    ("picked", "text"),
    [
        ({2: [0]}, "axis 2 is no axis of a tensor of shape"),
        ({0: [3]}, "index 3 is outside of axis 0, which has 3"),
        ({1: [0, -1]}, "index -1 is outside of axis 1, which has 4"),
    ],
)
def test_what_is_not_there_cannot_be_taken(picked, text):
    with pytest.raises(UsageError, match=text):
        taken(TensorRecipe(shape=(3, 4), dtype="float32"), picked)


def test_a_recipe_that_cannot_be_made_cannot_be_taken_from():
    with pytest.raises(UsageError, match="distribution 'no_such' is not known"):
        taken(TensorRecipe(shape=(3, 4), dtype="float32", fill=Fill(distribution="no_such")), {0: [1]})
