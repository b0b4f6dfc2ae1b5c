"""Guarded memory of large cases: the same bytes as that of small ones, and inputs that lie in memory once."""

import os
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize, materialize_all
from kernel_assay.corpus.inputs.slices import made_in_pieces
from kernel_assay.corpus.model.case import Fill, Special, TensorRecipe
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.kernels.backends.support import mapped_memory
from kernel_assay.kernels.backends.support.guard import ZONE, Guarded
from kernel_assay.kernels.backends.support.mapped_memory import Mapped
from kernel_assay.kernels.boundary.output_transfer import Sealed, mapped
from kernel_assay.oracles.catalog import contract_of, load_contracts


def assert_same(one, other):
    """Both slabs, but for gaps of outputs that nobody looks at."""
    for a, b in zip(one.buffers, other.buffers, strict=True):
        assert (a.name, a.start, a.stop, a.limit) == (b.name, b.start, b.stop, b.limit)
        assert one.slab[a.start - ZONE : a.limit].tobytes() == other.slab[b.start - ZONE : b.limit].tobytes()


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_it_has_the_bytes_that_small_cases_have(op):
    contract = contract_of(op)
    for seed in range(12):
        case, _ = generate(Target(contract, max_elements=1 << 9), Random(f"{op}:{seed}"))
        outputs = contract.output_specs(case)
        one, other = Guarded(case.tensors, materialize_all(case), outputs), Mapped(case.tensors, outputs)
        for run in (0, 1):
            one.reset(run)
            other.reset(run)
            assert_same(one, other)
            assert other.intact(run)


@pytest.mark.parametrize("most", [1, 7, 64, 1 << 18])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_tensor_made_in_pieces_is_the_tensor(layout, most):
    recipe = TensorRecipe(
        shape=(5, 3, 7),
        dtype="float32",
        layout=layout,
        fill=Fill(distribution="normal", seed=3, params={"flip": 1}),
        specials=(Special(value="nan", place="one_column"),),
        pokes=((17, 5), (104, 6)),
    )
    want = np.ascontiguousarray(materialize(recipe))
    got = np.zeros_like(want)
    for piece, values in made_in_pieces(recipe, most):
        got[piece] = values
    rows = 1 if layout == "broadcast" else 5
    assert got[:rows].tobytes() == want[:rows].tobytes()


@pytest.fixture(params=["contiguous", "row_gaps"])
def memory(request):
    made = Mapped(
        {"x": TensorRecipe(shape=(40, 50), dtype="float32", layout=request.param, fill=Fill(distribution="normal"))},
        {"out": TensorSpec(shape=(40, 50), dtype="float32")},
    )
    made.reset(0)
    return made


def test_what_is_written_where_nothing_may_be_is_found_and_gone_with_the_next_run(memory):
    x, out = memory.buffers
    memory.slab[out.start - 1] ^= 1
    memory.slab[out.stop + 3] ^= 1
    out.view[...] = 1
    assert not memory.intact(0)
    damage, mutated = memory.damage(0)
    assert [(d.buffer, d.offset, d.count) for d in damage] == [("out", -1, 1), ("out", out.stop - out.start + 3, 1)]
    assert mutated == []
    memory.reset(1)
    assert memory.intact(1)
    x.view[3, 4] += 1
    assert memory.damage(1) == ([], ["x"])
    memory.reset(0)
    assert memory.intact(0)


def test_a_gap_is_no_input(memory):
    x = memory.buffers[0]
    gaps = x.stop - x.start - x.view.nbytes
    if gaps:
        memory.slab[x.start + x.view.strides[0] - 1] ^= 1
        damage, mutated = memory.damage(0)
        assert [(d.buffer, d.count) for d in damage] == [("x", 1)]
        assert mutated == []


def test_where_there_is_no_room_it_is_said_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(mapped_memory, "_said", lambda path, word: 1 << 20 if word == "MemAvailable:" else 0)
    with pytest.raises(MemoryError, match="than the machine has left"):
        Mapped({"x": TensorRecipe(shape=(4,), dtype="float32", fill=Fill())}, {})


def test_what_is_sealed_cannot_be_changed_and_is_not_copied():
    sealed = Sealed(np.arange(12, dtype=np.int64).reshape(3, 4).T)
    with pytest.raises(PermissionError):
        os.pwrite(sealed.file, b"x", 0)
    assert sealed.array.tolist() == np.arange(12).reshape(3, 4).T.tolist()
    seen = mapped(sealed.file, sealed.size)
    assert not seen.flags.owndata
    mine = mapped(sealed.file, sealed.size, writable=True)
    mine[:] = 0
    assert seen.any()
    with pytest.raises(OSError, match="is offered as one of 97"):
        mapped(sealed.file, 97)


def test_what_somebody_may_still_write_to_is_copied():
    file = os.memfd_create("open")
    os.pwrite(file, b"abcd", 0)
    seen = mapped(file, 4)
    os.pwrite(file, b"x", 0)
    assert seen.tobytes() == b"abcd"
    os.close(file)
