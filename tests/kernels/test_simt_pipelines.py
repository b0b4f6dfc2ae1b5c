"""cuda::barrier, cuda::pipeline, their copies, and CUB's primitives: right ones are silent, others told."""

from pathlib import Path

import numpy as np
import pytest
from _simt import CHECK, Kernels, aligned, blank

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = Path(__file__).with_name("cuda") / "pipelines.cu"
NUMBERS = np.arange(512, dtype=np.int32)
T = np.arange(64)


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("pipelines"), SOURCE.read_text())


def checked(kernels, entry, **how):
    """The output of launches in check mode, without an alarm in any of three orders."""
    for order in ("identity", "shuffle", "starve"):
        given = {k: aligned(v) if isinstance(v, np.ndarray) else v for k, v in how.items()}
        ran = kernels.run(entry, mode=CHECK, order=order, **given)
        assert ran.said + ran.warned == "", order
    return given["out"]


@pytest.mark.parametrize(
    ("entry", "block", "given", "wanted"),
    [
        ("meet", 64, {"good": 1}, 63 - T + 2),
        ("copies", 64, {"in": NUMBERS, "good": 1}, 63 - T),
        ("buffers", 64, {"in": NUMBERS, "n": 5, "good": 1}, sum(64 * j + 63 - T for j in range(5))),
        ("roles", 64, {"in": NUMBERS, "n": 5}, sum(32 * j + 31 - T[:32] for j in range(5))),
        ("alone", 32, {"in": NUMBERS, "good": 1}, sum(32 * j + T[:32] for j in range(4))),
        ("dropped", 64, {}, T * 0 + 1),
    ],
)
def test_barriers_and_pipelines_order_what_they_are_for(kernels, entry, block, given, wanted):
    out = checked(kernels, entry, block=block, out=blank(len(wanted), np.int32), **given)
    assert out.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("entry", "given", "words"),
    [
        ("meet", {"good": 0}, "writes 4 bytes at byte 128 of s (<write>), which thread 31 read (<early>)"),
        ("copies", {"in": NUMBERS, "good": 0}, "(<too early>), which thread 0 wrote in the background (<copied>)"),
        ("copies", {"in": NUMBERS, "good": 2}, "wrote in the background (<copied>), and nothing orders the two"),
        ("buffers", {"in": NUMBERS, "n": 5, "good": 0}, "(<sum>), and nothing orders the two"),
        ("alone", {"in": NUMBERS, "good": 0}, "wrote in the background"),
        ("unset", {}, "reads 8 bytes at byte 0 of b (<unset>), which nobody has written"),
        ("never", {}, "deadlock in block 0: arrivals that a cuda::barrier waits for never come (<never>)"),
        (
            "hasty",
            {"x": np.ones(64, np.float32)},
            "of temp (<twice>), which thread 0 read (<twice>), and nothing orders",
        ),
    ],
)
def test_what_is_used_too_early_is_told(kernels, entry, given, words):
    block = 32 if entry == "alone" else 64
    out = blank(64, np.float32 if entry == "hasty" else np.int32)
    assert kernels.placed(words) in kernels.run(entry, mode=CHECK, block=block, out=out, **given).said


def test_reductions_of_blocks_and_warps(kernels):
    x = np.arange(96, dtype=np.float32)[::-1].copy()
    x[50] = -3
    some = np.where(np.arange(96) < 90, x, 0)
    out = checked(kernels, "sums", block=96, out=blank(15), x=x, n=90)
    assert out.tolist() == [some.sum(), 95, 50, *some.reshape(12, 8).sum(1)]


def test_scans_loads_and_stores(kernels):
    x = (np.arange(288, dtype=np.int32) * 7) % 13
    padded, rows = np.where(np.arange(288) < 280, x, 0), x[:96].reshape(3, 32)
    out = checked(kernels, "scans", block=96, out=blank(481, np.int32), x=x)
    assert out[:288].tolist() == (np.cumsum(padded) - padded).tolist()
    assert out[288:384].tolist() == np.maximum.accumulate(x[:96]).tolist()
    assert out[384:480].tolist() == (np.cumsum(rows, 1) - rows).ravel().tolist()
    assert out[480] == padded.sum()
