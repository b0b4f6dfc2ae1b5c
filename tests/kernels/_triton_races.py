"""Small Triton kernels that race, or do not; run by tests/kernels/test_triton_races.py in a process of its own.

Prints one JSON object: kernel -> what is said of it with its programs in order and in another, and what is doubted.
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from kernel_assay.kernels.backends.triton_cpu.interpreter import JUDGE, Programs, mend

X = torch.arange(100.0)
SIZE = 16
KERNELS = {}


def launched(programs=7, outputs=1, words=(0,)):
    """words: of memory that holds integers, and None for one that holds nothing yet."""

    def enter(kernel):
        def launch():
            out = torch.zeros(outputs) if outputs else undefined(1)
            kernel[(programs,)](
                out, X.clone(), *[undefined(8) if w is None else torch.tensor([w]) for w in words], SIZE
            )

        KERNELS[kernel.fn.__name__] = launch
        return kernel

    return enter


def undefined(count):
    """Memory as torch.empty gives it to a kernel that is judged."""
    made = torch.empty(count)
    made.numpy().view("u1")[:] = 0xA5
    return made


@triton.jit
def part_of(x, size: tl.constexpr):
    i = tl.program_id(0) * size + tl.arange(0, size)
    return tl.sum(tl.load(x + i, mask=i < 100, other=0.0), axis=0)


@launched()
@triton.jit
def added_by_a_store(out, x, word, size: tl.constexpr):
    tl.store(out, tl.load(out) + part_of(x, size))


@launched()
@triton.jit
def added_atomically(out, x, word, size: tl.constexpr):
    tl.atomic_add(out, part_of(x, size))


@launched()
@triton.jit
def added_atomically_for_its_own_block(out, x, word, size: tl.constexpr):
    tl.atomic_add(out, part_of(x, size), scope="cta")


@launched(outputs=0)
@triton.jit
def added_to_nothing(out, x, word, size: tl.constexpr):
    tl.atomic_add(out, part_of(x, size))


@launched()
@triton.jit
def added_and_read(out, x, word, size: tl.constexpr):
    tl.atomic_add(out, part_of(x, size))
    tl.store(word, (tl.load(out) > 1e9).to(tl.int64), mask=tl.load(out) > 1e9)


@launched()
@triton.jit
def locked(out, x, word, size: tl.constexpr):
    while tl.atomic_cas(word, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out, tl.load(out) + part_of(x, size))
    tl.debug_barrier()
    tl.atomic_xchg(word, 0, sem="release")


@launched()
@triton.jit
def locked_without_order(out, x, word, size: tl.constexpr):
    while tl.atomic_cas(word, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out, tl.load(out) + part_of(x, size))
    tl.atomic_xchg(word, 0, sem="relaxed")


@launched(words=(0, None))
@triton.jit
def last_adds_up(out, x, word, parts, size: tl.constexpr):
    tl.store(parts + tl.program_id(0), part_of(x, size))
    if tl.atomic_add(word, 1) == tl.num_programs(0) - 1:
        j = tl.arange(0, 8)
        tl.store(out, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0.0)))


@launched(words=(0, None))
@triton.jit
def last_adds_up_too_much(out, x, word, parts, size: tl.constexpr):
    tl.store(parts + tl.program_id(0), part_of(x, size))
    if tl.atomic_add(word, 1) == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, 8))))


@launched(words=(0, None))
@triton.jit
def anybody_adds_up(out, x, word, parts, size: tl.constexpr):
    tl.store(parts + tl.program_id(0), part_of(x, size))
    if tl.atomic_add(word, 1, sem="relaxed") == tl.num_programs(0) - 1:
        j = tl.arange(0, 8)
        tl.store(out, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0.0)))


@launched(outputs=7, words=(0, None))
@triton.jit
def handed_on(out, x, flag, parts, size: tl.constexpr):
    if tl.program_id(0) == 3:
        tl.store(parts, part_of(x, size))
        tl.atomic_store(flag, 1)
    if tl.atomic_load(flag) == 1:
        tl.store(out + tl.program_id(0), tl.load(parts))


@launched(outputs=7, words=(0, None))
@triton.jit
def seen_and_not_handed_on(out, x, flag, parts, size: tl.constexpr):
    if tl.program_id(0) == 3:
        tl.store(parts, part_of(x, size))
        tl.atomic_store(flag, 1)
    if tl.load(flag, volatile=True) == 1:
        tl.store(out + tl.program_id(0), tl.load(parts))


@launched()
@triton.jit
def stores_the_same(out, x, word, size: tl.constexpr):
    tl.store(out, 5.0)


@launched(programs=1, outputs=8)
@triton.jit
def lanes_of_one_store(out, x, word, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(out + i // 2, tl.load(x + i))


@launched(programs=3, outputs=64)
@triton.jit
def blocks_of_a_descriptor(out, x, word, size: tl.constexpr):
    to = tl.make_tensor_descriptor(out, shape=[64], strides=[1], block_shape=[size])
    to.store([tl.program_id(0) * (size - 4)], tl.load(x + tl.arange(0, size)) * tl.program_id(0))


@launched(outputs=100)
@triton.jit
def neighbour(out, x, word, size: tl.constexpr):
    i = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(out + i, tl.load(x + i, mask=i < 100), mask=i < 100)
    tl.store(x + i, tl.load(out + i + 1, mask=i + 1 < 100), mask=i < 100)


@launched()
@triton.jit
def bytes_of_one_element(out, x, word, size: tl.constexpr):
    tl.store(word.to(tl.pointer_type(tl.int8)) + tl.program_id(0), 3)


@launched()
@triton.jit
def half_of_an_element(out, x, word, size: tl.constexpr):
    tl.store(word.to(tl.pointer_type(tl.int32)) + tl.program_id(0) % 2, tl.program_id(0) // 2)


def said(launch, seed):
    Programs.seed, Programs.backwards = seed, True
    JUDGE.prepare(checked=True)
    try:
        with JUDGE.watching():
            launch()
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return f"{getattr(error, 'kind', type(error).__name__)}: {error}"
    return " ".join(["fine", *JUDGE.warnings])


mend()
sys.stdout.write(json.dumps({name: [said(launch, seed) for seed in range(6)] for name, launch in KERNELS.items()}))
sys.stdout.flush()
os._exit(0)  # else Triton's library complains of what is left
