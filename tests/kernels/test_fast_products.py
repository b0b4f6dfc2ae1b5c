"""The fast products of packed blocks, where the search does not come: long rows, whose stages of memory are used again.

What the copies in the background write, and when they are waited for, is seen by check mode in every order of threads.
"""

from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.blocks import block_format
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner, interface_of
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.front_matter import read_front_matter
from kernel_assay.kernels.backends.simt.emulator import ORDERS
from kernel_assay.kernels.backends.simt.toolchain import Mode
from kernel_assay.kernels.backends.support.signature import KernelFaultError, bind
from kernel_assay.kernels.catalog import read_subject
from kernel_assay.oracles.catalog import contract_of

pytestmark = pytest.mark.usefixtures("simt_cache")
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
FAST, SKINNY = KERNELS / "qgemv" / "cuda_fast.cu", KERNELS / "qgemm" / "cuda_skinny.cu"
ATTRS = {"format": "q4_0", "activations": "q8_1"}


def case_of(op, m, blocks, n=1, distribution="blocks", seed=1):
    """A case whose search would have fewer blocks."""
    inputs, shapes = contract_of(op).inputs, {"w": (m, blocks), "a": (blocks,) if op == "qgemv" else (n, blocks)}
    tensors = {}
    for at, (name, shape) in enumerate(shapes.items()):
        size = block_format(ATTRS["format" if name == "w" else "activations"]).size
        fill = Fill(distribution=distribution, seed=seed + at, params=inputs[name].params({}, ATTRS))
        tensors[name] = TensorRecipe(shape=(*shape[:-1], shape[-1] * size), dtype="uint8", fill=fill)
    return Case(op=op, tensors=tensors, attrs=ATTRS)


def judged(path, cases):
    subject = read_subject(path, op=path.parent.name)
    with Examiner([subject]) as examiner:
        checked = examiner.check([CheckRequest(case, (subject.key,)) for case in cases])
    return [c.verdicts[subject.key] for c in checked]


@pytest.mark.parametrize("blocks", [320, 448, 450, 451])
def test_long_rows(blocks):
    """Five to eight chunks, of which four fit; rows at multiples of 16 bytes, of 4 and of 2."""
    cases = [case_of("qgemv", 33, blocks, distribution=d) for d in ("blocks", "exact_blocks")]
    cases += [case_of("qgemv", 33, blocks, seed=0)]
    for verdict in judged(FAST, cases):
        assert verdict.kind is Kind.PASS, verdict.message


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9])
def test_long_rows_and_any_number_of_columns(n):
    cases = [case_of("qgemm", 35, blocks, n, seed=seed) for blocks, seed in ((256, 0), (261, 1))]
    for verdict in judged(SKINNY, cases):
        assert verdict.kind is Kind.PASS, verdict.message


class Emulated:
    """A file called on arrays, in a mode and an order of one's choice."""

    def __init__(self, path, op):
        self.loaded = loader_of("cuda").load(path, read_front_matter(path).function)
        self.call = bind(self.loaded, interface_of(contract_of(op)), str(path))

    def run(self, out, inputs, mode, order):
        self.loaded.schedule.mode, self.loaded.schedule.order, self.loaded.schedule.seed = mode, order, 3
        self.call.call(out, *inputs.values(), **self.call.attributes(ATTRS))
        return list(self.loaded.schedule.warnings)


@pytest.mark.parametrize(("path", "n"), [(FAST, 1), (SKINNY, 2), (SKINNY, 8)])
def test_stages_are_used_again_in_every_order(path, n):
    op = path.parent.name
    case = case_of(op, 3, 400, n)
    inputs = materialize_all(case)
    (want,) = contract_of(op).reference(**inputs, **ATTRS).values()
    for order in ORDERS:
        out = np.full(want.shape, np.nan, np.float32)
        assert Emulated(path, op).run(out, inputs, Mode.CHECK, order) == []
        np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


def test_a_copy_that_does_not_wait_for_the_readers_is_seen(tmp_path):
    """With the barrier behind it, the copy writes what other threads may still read."""
    early = tmp_path / "early.cu"
    text = FAST.read_text().replace('"../', f'"{KERNELS}/')  # its header lies where it did
    barrier = next(line for line in text.splitlines(keepends=True) if "nobody reads the one before it" in line)
    copy = "    fill(chunk + STAGES - 1);\n"
    assert text.count(barrier + copy) == 1
    early.write_text(text.replace(barrier + copy, copy + barrier))
    case = case_of("qgemv", 3, 400)
    with pytest.raises(KernelFaultError, match="nothing orders") as fault:
        Emulated(early, "qgemv").run(np.empty(3, np.float32), materialize_all(case), Mode.CHECK, ORDERS[0])
    assert fault.value.kind == Kind.RACE
