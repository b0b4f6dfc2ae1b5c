"""The judge's kernels for proofs on a GPU, in the emulator: they agree with the contracts and see one wrong element."""

import numpy as np
import pytest
from _simt import Kernels

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.device.sweep import DIGITS, HostJudge, first_of, gate_tables
from kernel_assay.oracles.device.sweep_gpu import SOURCE, found_in, fresh
from kernel_assay.oracles.judging.failure_mask import failing
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to

pytestmark = pytest.mark.usefixtures("simt_cache")
SLICES = {
    "zeros and the least": 0,
    "below the least float16": 0x33000000 - 128 * 256,
    "subnormal float16": 0x387FC000 - 200 * 256,
    "ones": 0x3F800000 - 128 * 256,
    "the largest float16": 0x477FF000 - 128 * 256,
    "the largest": 0x7F7FFF00 - 128 * 256,
    "inf and nan": 0x7F800000 - 64 * 256,
    "negative subnormals": 0x80000000,
    "negative ones": 0xBF7F8000,
    "nan": 0xFFFFFF00 - 200 * 256,
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("sweep"), SOURCE.read_text())


def conversion(first, to, rows=300):
    recipe = TensorRecipe(
        shape=(rows, 256), dtype="float32", origin=(first // 256, 0), fill=Fill(distribution="every_bits")
    )
    return Case(op="convert", tensors={"x": recipe}, attrs={"to": to})


def pairs(row, rows):
    tensors = {
        name: TensorRecipe(
            shape=(rows, 256),
            dtype="float16",
            origin=(row, 0),
            fill=Fill(distribution="every_bits", params={"skip": skip} if skip else {}),
        )
        for name, skip in (("gate", 16), ("up", 0))
    }
    return Case(op="silu_gate", tensors=tensors)


def converted(kernels, case, got):
    words = fresh()
    digits, width = DIGITS[case.attrs["to"]]
    ran = kernels.run(
        "conversions", grid=2, block=64, got=got.view(np.uint16), outfound=words, first=first_of(case), count=got.size,
        digits=digits, width=width,
    )  # fmt: skip
    assert ran.said == ""
    return found_in(words)


def gated(kernels, case, got, numerics):
    words, t = fresh(), gate_tables(numerics)
    arrays = {
        n: np.ascontiguousarray(getattr(t, n)) for n in ("numbers", "act", "own", "wanted", "budgets", "accepted")
    }
    ran = kernels.run(
        "gated", grid=2, block=64, got=got.view(np.uint16), outfound=words, first=first_of(case), count=got.size,
        **arrays, u=float(t.u), tiny=float(t.tiny),
    )  # fmt: skip
    assert ran.said == ""
    return found_in(words)


@pytest.mark.parametrize("to", DIGITS)
@pytest.mark.parametrize("where", SLICES)
def test_conversions(kernels, to, where):
    """Right everywhere by oracles.numerics.rounding; one bit off anywhere is found."""
    case = conversion(SLICES[where], to)
    x = materialize_all(case)["x"]
    with np.errstate(all="ignore"):
        got = round_to(x.astype(np.float64), format_of(to))
    found = converted(kernels, case, got)
    assert (found.failed, found.listed) == (0, ())
    bits = got.view(np.uint16)
    for at in (0, 12_345, bits.size - 1):
        kept = bits.flat[at]
        bits.flat[at] = 0x3333
        assert converted(kernels, case, got).listed == ((SLICES[where] // 256 * 256 + at, 0x3333),)
        bits.flat[at] = kept


@pytest.mark.parametrize("to", DIGITS)
def test_conversions_are_judged_as_on_the_host(kernels, to):
    """Wrong roundings of all kinds, and zeros of the other sign, which are no fault."""
    rng = np.random.default_rng(1)
    for first in SLICES.values():
        case = conversion(first, to)
        with np.errstate(all="ignore"):
            got = round_to(materialize_all(case)["x"].astype(np.float64), format_of(to))
        bits = got.view(np.uint16)
        bits += rng.integers(-1, 2, bits.shape).astype(np.uint16) * (rng.random(bits.shape) < 0.01)
        bits ^= np.where(rng.random(bits.shape) < 0.01, np.uint16(0x8000), np.uint16(0))
        here, there = converted(kernels, case, got), HostJudge(got.view(np.uint8).reshape(-1), Numerics()).judge(case)
        assert here.failed == there.failed


@pytest.mark.parametrize("numerics", [Numerics(), Numerics(ftz=True)], ids=["exact", "ftz"])
@pytest.mark.parametrize(
    "gate", [0x0000, 0x0001, 0x3C00, 0x7BFF, 0x7C00, 0x7E01, 0x8001, 0xC900, 0xFBFF, 0xFC00, 0xFE00]
)
def test_gates_are_judged_as_on_the_host(kernels, gate, numerics):
    """All other inputs of one gate: results that are right, and ever further from it."""
    case = pairs(gate * 256, 256)
    inputs = materialize_all(case)
    assert (inputs["gate"].view(np.uint16) == gate).all()
    assert (inputs["up"].view(np.uint16).reshape(-1) == np.arange(1 << 16)).all()
    contract = contract_of("silu_gate")
    reference = Reference(contract, case, inputs)
    with np.errstate(all="ignore"):
        got = round_to(reference.want["out"], format_of("float16"))
    assert gated(kernels, case, got, numerics).failed == 0
    rng = np.random.default_rng(gate)
    bits = got.view(np.uint16)
    bits += rng.integers(-3, 4, bits.shape).astype(np.uint16)
    bits[::7] ^= 0x4000  # no NaN any more, and no Inf
    wrong = failing(got, reference.want["out"], reference.budget(numerics)["out"])
    found = gated(kernels, case, got, numerics)
    assert found.failed == wrong.sum() > 0
    assert {n - first_of(case) for n, _ in found.listed} <= set(np.flatnonzero(wrong).tolist())
    assert 0 <= found.rho <= 1
