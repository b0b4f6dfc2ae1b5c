"""What holds outputs of large cases: it copies what is offered, answers as the host would, and lets go."""

import dataclasses
import math
import os

import numpy as np
import pytest

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.boundary.output_transfer import IPC, SHARED, OutputHandover, lent
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.large.sampled import unwritten_pattern

torch = pytest.importorskip("torch")

from kernel_assay.oracles.device.holder import Holder, on_host  # noqa: E402  it imports torch

needs_gpu = pytest.mark.skipif(not device_count(), reason="there is no CUDA device")
X, Y = ("op/x", "out"), ("op/y", "out")
SUMS = {"nmse", "cosine", "psnr"}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def holder(request):
    return Holder(request.param)


def give(holder, key, array, way=SHARED):
    handover = lent([array.tobytes()], way)
    (offer,) = handover.offers
    try:
        return holder.take(key, {**offer, "dtype": format_of(array.dtype).name, "shape": array.shape})
    finally:
        handover.give_back()


def numbers(dtype, shape, seed=1):
    made = np.random.default_rng(seed).standard_normal(shape) * 3
    with np.errstate(all="ignore"):
        return np.asarray(made.astype(format_of(dtype).dtype))


@pytest.mark.parametrize("dtype", sorted(FORMATS))
@pytest.mark.parametrize("shape", [(40, 50), (3, 5, 7), (17,), (), (0, 4)])
def test_what_is_taken_is_what_was_left(holder, dtype, shape):
    x = numbers(dtype, shape)
    assert give(holder, X, x) == {"taken": True}
    got = holder.take_some(X, "values", [])
    assert (got.dtype, got.shape, got.tobytes()) == (x.dtype, x.shape, x.tobytes())


def test_what_the_other_process_does_later_changes_nothing(holder):
    x = numbers("float32", (40, 50))
    handover = lent([x.tobytes()], SHARED)
    holder.take(X, {**handover.offers[0], "dtype": "float32", "shape": x.shape})
    os.pwrite(handover.offers[0]["file"], b"\0" * x.nbytes, 0)
    handover.give_back()
    assert holder.take_some(X, "values", []).tobytes() == x.tobytes()


def test_some_of_it_is_gathered(holder):
    x = numbers("bfloat16", (6, 40, 50))
    give(holder, X, x)
    rows, columns = [0, 3, 5], {"range": [10, 20]}
    got = holder.take_some(X, "values", [(0, rows), (2, columns)])
    assert got.tobytes() == np.ascontiguousarray(x[rows][:, :, 10:20]).tobytes()
    assert holder.take_some(X, "rows", [(0, [2])]).shape == (1, 40)
    assert holder.take_some(X, "columns", []).shape == (50,)


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_distances_are_those_of_the_host(holder, dtype):
    x, y = numbers(dtype, (40, 50)), numbers(dtype, (40, 50))
    y.reshape(-1)[::3] = numbers(dtype, (2000,), 5)[::3]
    give(holder, X, x)
    give(holder, Y, y)
    with np.errstate(all="ignore"):
        due = dataclasses.asdict(measure(x, y.astype(np.float64), 2.0**60))
    for name, value in holder.measured(X, Y).items():
        assert value == due[name] or (name in SUMS and math.isclose(value, due[name], rel_tol=1e-6)), name


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_what_was_never_written_has_its_pattern(holder, dtype):
    x = numbers(dtype, (40, 50))
    x[x.view(f"i{x.itemsize}") == -1] = 1
    x.view(f"u{x.itemsize}")[-1] = (1 << 8 * x.itemsize) - 1
    give(holder, X, x)
    assert (
        holder.unwritten(X, 39 * 50, 50) == unwritten_pattern([np.arange(1950, 2000)], 1950, 50, (40, 50)) == "one_row"
    )
    assert holder.unwritten(X, 40 * 50 - 1, 1) == "last_element"


def test_what_cannot_be_had_is_lost(holder):
    assert (
        "No such file"
        in holder.take(X, {"way": SHARED, "pid": os.getpid(), "file": 9999, "bytes": 4, "dtype": "int8", "shape": [4]})[
            "lost"
        ]
    )
    assert holder.take(X, {"way": IPC, "handle": "00" * 64, "bytes": 4, "dtype": "int8", "shape": [4]})["lost"]
    assert give(holder, X, numbers("int8", (4,))) == {"taken": True}


def test_where_there_is_no_room_that_is_said(holder, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    assert give(holder, X, numbers("int8", (4,))) == {"room": "CUDA out of memory"}


def test_a_reference_is_held_beside_the_outputs(holder):
    recipe = TensorRecipe(shape=(40, 50), dtype="float16", fill=Fill(distribution="normal", seed=3))
    assert holder.refer(Case(op="silu", tensors={"x": recipe})) == {"out": {"shape": (40, 50), "dtype": "float64"}}
    want = holder.take_some(("", "out"), "values", [])
    right = want.astype(np.float16)
    wrong = right.copy()
    wrong[12, 34] += 1
    give(holder, X, right)
    give(holder, Y, wrong)
    room = {"level": 1e-3, "floor": 0.0, "bitwise": False, "most": 64}
    assert holder.suspects(X, ("", "out"), room)["at"] == []
    assert holder.suspects(Y, ("", "out"), room)["at"] == [12 * 50 + 34]
    assert (holder.measured(X, ("", "out"))["misrounded"], holder.measured(Y, ("", "out"))["misrounded"]) == (0, 1)
    assert holder.refer(Case(op="nothing_of_that_name", tensors={"x": recipe})) == {}


def test_nothing_is_kept(holder):
    give(holder, X, numbers("float32", (40, 50)))
    holder.sizes(X)
    holder.forget()
    assert not holder._held
    assert not holder._sizes


def test_of_one_that_is_taken_again_nothing_old_is_left(holder):
    give(holder, X, numbers("float32", (40, 50)))
    before = holder.sizes(X)[1].clone()
    give(holder, X, 2 * numbers("float32", (40, 50)))
    assert torch.equal(holder.sizes(X)[1], 2 * before)


@needs_gpu
@pytest.mark.parametrize("way", [IPC, SHARED])
def test_what_lies_on_the_gpu_is_offered_by_either_way(way):
    values = torch.arange(5 << 20, dtype=torch.int32, device="cuda").view(torch.uint8)
    handover = OutputHandover()
    handover.add(values, way)
    assert (handover.offers[0]["way"], handover.offers[0]["bytes"]) == (way, 20 << 20)
    if way == SHARED:  # a process cannot open what it has exported itself
        held = Holder("cuda")
        assert held.take(X, {**handover.offers[0], "dtype": "int32", "shape": [5 << 20]}) == {"taken": True}
        assert on_host(held._held[X]).tolist() == list(range(5 << 20))
    handover.give_back()
