"""Inline PTX: each family of instructions beside what CUDA C++ says for it, and what the judge says of its accesses."""

from pathlib import Path

import numpy as np
import pytest
from _simt import CHECK, FAST, Kernels, aligned, blank

from kernel_assay.kernels.backends.simt.assembly import without_assembly

pytestmark = pytest.mark.usefixtures("simt_cache")

FOLDER = Path(__file__).with_name("cuda")
NUMBERS = np.arange(256, dtype=np.int32) * 3


@pytest.fixture(scope="module")
def families(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("families"), (FOLDER / "ptx_families.cu").read_text())


@pytest.fixture(scope="module")
def memory(simt_cache, tmp_path_factory):
    source = (FOLDER / "ptx_memory.cu").read_text()
    return Kernels(tmp_path_factory.mktemp("memory"), source, "flag<0>", "flag<1>", "flag<2>")


@pytest.mark.parametrize(("entry", "count"), [("numbers", 40), ("reals", 37), ("warps", 12)])
def test_instructions_give_what_their_functions_give(families, entry, count):
    out = np.full((128, 2, 32), 12345, np.uint64)
    ran = families.run(entry, out=out, mode=CHECK)
    assert ran.said + ran.warned == ""
    assert (out != 12345).any((1, 2)).sum() == count
    for row, (found, wanted) in enumerate(out):
        assert found.tolist() == wanted.tolist(), f"row {row}"


def checked(kernels, entry, **how):
    """The output of a launch in check mode, without an alarm; in fast mode it is the same."""
    outs = []
    for mode in (CHECK, FAST):
        given = {k: aligned(v) if isinstance(v, np.ndarray) else v for k, v in how.items()}
        ran = kernels.run(entry, mode=mode, order="shuffle", **given)
        assert ran.said + ran.warned == ""
        outs.append(given["out"])
    np.testing.assert_array_equal(*outs)
    return outs[0]


def test_loads_stores_and_copies(memory):
    t = np.arange(64)
    out = checked(memory, "memory", block=64, shared=256, out=blank(256, np.int32), **{"in": NUMBERS})
    assert out[:128:2].tolist() == (3 * ((4 * ((t + 5) % 64 + 1)) % 256 + 1)).tolist()
    assert out[1:128:2].tolist() == (3 * ((t + 1) % 64)).tolist()
    assert out[128:192].tolist() == (3 * (4 * t + 1)).tolist(), "what the size of the source leaves out is 0"
    assert out[192:].all()


def test_atomic_operations(memory):
    out = checked(memory, "atomics", block=64, out=blank(6, np.int32))
    assert out.tolist() == [64, -7, np.float32(64).view(np.int32), 0, sum(range(64)), 4]


def test_barriers_of_a_part_of_the_block(memory):
    t = np.arange(128)
    found = checked(memory, "parts", block=128, out=blank(128, np.int32))
    assert found.tolist() == (t // 64 * 64 + (t + 1) % 64).tolist()
    said = memory.run("never", block=128, out=blank(1, np.int32)).said
    assert said == memory.placed("deadlock in block 0: 32 of 64 threads have come to barrier 1 (<never>)")


def drawn(low, high, *shape, dtype):
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


def test_matrix_products(memory):
    a, b = drawn(-4, 4, 16, 16, dtype=np.float16), drawn(-4, 4, 16, 8, dtype=np.float16)
    found = checked(memory, "product", out=blank((16, 8)), a=a, b=b)
    assert found.tolist() == (a.astype(float) @ b.astype(float) + 1).tolist()
    a, b = drawn(-128, 128, 16, 32, dtype=np.int8), drawn(-128, 128, 8, 32, dtype=np.int8)
    found = checked(memory, "bytes", out=blank((16, 8), np.int32), a=a, b=b)
    assert found.tolist() == (a.astype(int) @ b.T.astype(int)).tolist()
    a, b = drawn(-9, 9, 8, 4, dtype=np.float64), drawn(-9, 9, 4, 8, dtype=np.float64)
    assert checked(memory, "doubles", out=blank((8, 8), np.float64), a=a, b=b).tolist() == (a @ b).tolist()
    a, b = drawn(-9, 9, 16, 8, dtype=np.float32), drawn(-9, 9, 8, 8, dtype=np.float32)
    assert checked(memory, "floats", out=blank((16, 8)), a=a, b=b).tolist() == (a @ b).tolist()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("raced", "writes 4 bytes at byte 128 of s (<race>), which thread 31 read"),
        ("beyond", "thread 16 of block 0 reads in[16] (<beyond>), but it has 16 elements"),
        ("flag<0>", ""),
        ("flag<1>", "thread 32 of block 0 reads out[2] (<told>), which thread 0 wrote (<tells>), and nothing orders"),
        ("flag<2>", ""),
        ("early", "reads 4 bytes at byte 0 of s (<early>), which thread 0 wrote in the background (<copy>)"),
        ("misaligned", "by thread 0 of block 0 (<odd>)"),
        ("far", "thread 0 of block 0 reads 4 bytes far from everything it was given (<far>)"),
        ("traps", "trap by thread 3 of block 0 (<trap>)"),
        ("unknown", "the PTX instruction wgmma.fence.sync.aligned is not emulated (<unknown>)"),
    ],
)
def test_findings_are_those_of_cuda_and_name_the_line(memory, entry, words):
    how = (
        {"in": NUMBERS[: 16 if entry == "beyond" else 64].copy()} if entry in {"beyond", "early", "misaligned"} else {}
    )
    how |= {"n": 16} if entry == "beyond" else {}
    block = 32 if entry in {"beyond", "early"} else 64
    said = memory.run(entry, mode=CHECK, block=block, out=blank(64, np.int32), **how).said
    assert memory.placed(words) in said
    assert bool(said) == bool(words)


@pytest.mark.parametrize(
    ("number", "instruction"),
    enumerate(
        [
            "mbarrier.init.shared::cta.b64",
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
            "mbarrier.try_wait.parity.shared::cta.b64",
            "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32",
            "barrier.cluster.arrive",
            "barrier.sync of barrier 17 (a block has 16)",
            "bar.sync of 20 threads (no multiple of 32)",
            "bar.arrive",
        ]
    ),
)
def test_what_is_not_emulated_is_named_with_its_line(memory, number, instruction):
    said = memory.run("refused", out=blank(1, np.int32), n=number).said
    assert said == memory.placed(f"the PTX instruction {instruction} is not emulated (<refused {number}>)")


def test_an_address_that_nobody_may_touch_has_its_line_in_fast_mode(memory):
    said = memory.run("far", out=blank(32, np.int32)).said
    assert said == memory.placed("memory fault at 0x7f0000001000 by thread 0 of block 0 (<far>)")


def test_statements_become_calls_where_they_stand():
    text = """#define CP(d) asm volatile("x [%0];\\n" \\
  :: "r"(d) : "memory")
  asm("trap;");  // asm("trap;")
  __asm__ __volatile__("y" : "=r"(a.b), "+f"(v[f(1, 2)]) : : "memory", "cc");
  asm volatile("" ::: "memory");
  const char* masm = "asm(1)";
"""
    call = without_assembly(text)
    assert [" ".join(x.split()) for x in call.splitlines()] == [
        '#define CP(d) SIMT_ASM (("x [%0];\\n" \\',
        ') ,simt::asm_input("r",(d)) )',
        'SIMT_ASM(("trap;")); // asm("trap;")',
        'SIMT_ASM (("y" ) ,simt::asm_output("=r",(a.b)) ,simt::asm_output("+f",(v[f(1, 2)])) );',
        'SIMT_ASM (("" ) );',
        'const char* masm = "asm(1)";',
    ]
