"""Whatever is written where nothing may be written is seen, and what may be read is what the recipe says."""

import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.kernels.backends.support.guard import ALIGNMENT, GAP, POISONS, ZONE, Guarded

SHAPES = [(3, 5), (1, 1), (4,), (), (0, 3), (3, 0), (2, 3, 4), (1, 7), (7, 1)]
OUT = {"out": TensorSpec(shape=(3, 5), dtype="float32")}
LAST = {"last": TensorSpec(shape=(2,), dtype="float32")}


def guarded(*recipes, outputs=OUT):
    case = Case(op="any", tensors={f"x{i}": r for i, r in enumerate(recipes)})
    inputs = materialize_all(case)
    return Guarded(case.tensors, inputs, outputs), inputs


def recipe(shape=(3, 5), layout="contiguous", dtype="float32"):
    return TensorRecipe(shape=shape, dtype=dtype, layout=layout, fill=Fill(distribution="small_integers", seed=3))


def address(buffer):
    return buffer.view.__array_interface__["data"][0] - buffer.offset


def buffer_of(memory, name):
    return next(b for b in memory.buffers if b.name == name)


def poke(buffer, offset, value=None):
    """Change one byte at an offset from the start of a buffer."""
    place = ctypes.cast(address(buffer) + offset, ctypes.POINTER(ctypes.c_ubyte))
    place[0] = place[0] ^ 0x55 if value is None else value


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_views_hold_the_recipes_values_in_the_layouts_strides(layout, shape):
    for dtype in ("float32", "bfloat16", "float64", "int8", "float8_e4m3fn"):
        memory, inputs = guarded(recipe(shape, layout, dtype), recipe())
        memory.reset(0)
        view = buffer_of(memory, "x0").view
        assert view.shape == shape
        assert view.tobytes() == inputs["x0"].tobytes()
        strides = LAYOUTS[layout](shape).strides
        assert view.strides == tuple(s * view.itemsize for s in strides)
        assert memory.intact(0)
        assert memory.damage(0) == ([], [])


def test_layouts_differ_as_they_say():
    strided = {}
    for layout in LAYOUTS:
        view = buffer_of(guarded(recipe(layout=layout))[0], "x0").view
        strided[layout] = (view.strides, view.__array_interface__["data"][0] % ALIGNMENT)
    assert strided["contiguous"] == ((20, 4), 0)
    assert strided["offset_one"] == ((20, 4), 4)
    assert strided["offset_room"] == ((20, 4), 64)
    assert strided["row_gaps"] == ((32, 4), 0)
    assert strided["element_gaps"] == ((40, 8), 0)
    assert strided["transposed"] == ((4, 12), 0)
    assert strided["broadcast"] == ((0, 4), 0)


@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(list(LAYOUTS))), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None, database=None)
def test_every_buffer_starts_aligned_and_buffers_lie_apart(plan):
    memory, _ = guarded(*(recipe(shape, layout) for shape, layout in plan))
    for one in memory.buffers:
        assert address(one) % ALIGNMENT == 0
    spans = sorted((b.start - ZONE, b.stop + ZONE) for b in memory.buffers)
    assert spans[0][0] >= 0
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_outputs_are_poisoned_differently_before_each_run():
    memory, _ = guarded(recipe())
    for run, poison in enumerate(POISONS):
        memory.reset(run)
        assert set(memory.outputs[0].view.tobytes()) == {poison}
    assert POISONS[0] != POISONS[1]
    assert np.isnan(np.frombuffer(bytes([POISONS[0]] * 4), np.float32)[0])


def test_reset_undoes_everything():
    memory, inputs = guarded(recipe(layout="row_gaps"))
    memory.reset(0)
    memory._slab[:] = 7
    assert not memory.intact(0)
    memory.reset(1)
    assert memory.intact(1)
    assert buffer_of(memory, "x0").view.tobytes() == inputs["x0"].tobytes()


@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize("name", ["x0", "x1", "out"])
@pytest.mark.parametrize("at", [-ZONE, -17, -1, 60, 61, 60 + ZONE - 1])
def test_one_byte_in_any_red_zone_is_seen_and_placed(run, name, at):
    memory, _ = guarded(recipe(), recipe())
    memory.reset(run)
    poke(buffer_of(memory, name), at)
    assert not memory.intact(run)
    damage, mutated = memory.damage(run)
    assert [(d.buffer, d.offset, d.count) for d in damage] == [(name, at, 1)]
    assert mutated == []


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_an_output_may_begin_one_element_behind_an_aligned_address(dtype):
    memory, _ = guarded(recipe(), outputs={"out": TensorSpec(shape=(3, 5), dtype=dtype, layout="offset_one"), **LAST})
    out, last = memory.outputs
    size = out.view.itemsize
    assert (address(out) % ALIGNMENT, out.view.strides, out.view.flags.c_contiguous) == (size, (5 * size, size), True)
    assert address(last) % ALIGNMENT == 0
    for run in (0, 1):
        memory.reset(run)
        out.view[...] = 1
        assert memory.intact(run)
        owned = {(b.name, at) for b in memory.buffers for at in range(b.start - ZONE, b.limit)}
        assert len(owned) == memory.slab.size, "no byte is nobody's, none of two buffers"
        for at in (-ZONE, -1, 15 * size, 15 * size + ZONE - 1):
            memory.reset(run)
            poke(out, at)
            assert not memory.intact(run)
            assert [(d.buffer, d.offset, d.count) for d in memory.damage(run)[0]] == [("out", at, 1)]


def test_damage_is_counted_and_placed_next_to_the_buffer():
    memory, _ = guarded(recipe())
    memory.reset(0)
    out = memory.outputs[0]
    for at in (-8, -4, -3, 64, 70):
        poke(out, at)
    damage, _ = memory.damage(0)
    assert [(d.offset, d.count) for d in damage] == [(-3, 3), (64, 2)]


def test_each_side_of_each_buffer_has_a_pattern_of_its_own():
    memory, _ = guarded(*(recipe(),) * 5)
    memory.reset(0)
    zones = [memory._slab[b.start - ZONE : b.start].tobytes() for b in memory.buffers]
    zones += [memory._slab[b.stop : b.stop + ZONE].tobytes() for b in memory.buffers]
    assert len(set(zones)) == 12, "a copy of another zone must show"
    assert all(len(set(z)) > 64 for z in zones), "and so must any constant"


def test_a_byte_between_two_red_zones_is_damage_too():
    memory, _ = guarded(recipe(), outputs={"a": TensorSpec(shape=(1,), dtype="float32"), **OUT})
    memory.reset(0)
    poke(buffer_of(memory, "a"), 4 + ZONE + 8)
    assert not memory.intact(0)
    assert memory.damage(0)[0]


@pytest.mark.parametrize("layout", ["row_gaps", "element_gaps", "offset_one", "offset_room"])
def test_a_write_into_a_gap_is_damage_and_no_mutation(layout):
    memory, _ = guarded(recipe(layout=layout))
    memory.reset(0)
    buffer = buffer_of(memory, "x0")
    raw = memory._slab[buffer.start : buffer.stop]
    elements = set()
    for index in np.ndindex(buffer.view.shape):
        first = buffer.offset + sum(i * s for i, s in zip(index, buffer.view.strides, strict=True))
        elements |= set(range(first, first + 4))
    gaps = [i for i in range(raw.size) if i not in elements]
    assert gaps
    assert {int(raw[i]) for i in gaps} == {GAP}
    raw[gaps[0]] = 1
    damage, mutated = memory.damage(0)
    assert [(d.buffer, d.offset, d.count) for d in damage] == [("x0", gaps[0], 1)]
    assert mutated == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_changed_input_is_a_mutation_and_no_damage(layout):
    memory, _ = guarded(recipe(layout=layout), recipe())
    memory.reset(1)
    view = buffer_of(memory, "x0").view
    view[2, 4] = 99.0
    assert not memory.intact(1)
    assert memory.damage(1) == ([], ["x0"])


def test_writing_the_outputs_is_no_damage():
    memory, _ = guarded(recipe())
    memory.reset(0)
    memory.outputs[0].view[...] = 3.0
    assert memory.intact(0)
    assert memory.damage(0) == ([], [])


def test_an_address_is_traced_to_its_buffer():
    memory, _ = guarded(recipe(), recipe((0, 3)), recipe(layout="offset_room"))
    for b in memory.buffers:
        assert memory.holds(address(b)) == b.name
        if b.stop > b.start:
            assert memory.holds(address(b) + b.stop - b.start - 1) == b.name
        assert memory.holds(address(b) - 1) == ""
    assert memory.holds(0) == ""
    assert memory.holds(address(memory.outputs[0]) + 60) == ""
