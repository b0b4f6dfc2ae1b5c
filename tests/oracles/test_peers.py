"""A comparison with a peer finds one wrong element among millions, and accuses nobody who is right."""

from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.large.parts import GROUPS, around, sample
from kernel_assay.oracles.large.peers import confront, room_of
from kernel_assay.oracles.large.suspects import MOST, suspects

OPS = sorted(load_contracts())


def tensor(shape, dtype="float16", seed=1, name="normal", **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=name, seed=seed), **fields)


def product(m=4096, n=4096, k=64, dtype="float16", name="normal", **fields):
    return Case(op="gemm", tensors={"a": tensor((m, k), dtype, 1, name, **fields), "b": tensor((k, n), dtype, 2)})


def straight(case):
    a, b = (x.astype(np.float32) for x in materialize_all(case).values())
    return {"out": (a @ b).astype(case.dtype)}


def split(case, parts=4):
    """The same with the sum cut into parts, which are added in float32."""
    a, b = (x.astype(np.float32) for x in materialize_all(case).values())
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for some in np.array_split(np.arange(a.shape[1]), parts):
        total += a[:, some] @ b[some]
    return {"out": total.astype(case.dtype)}


def tf32(case):
    """Operands cut to 10 bits of mantissa."""
    a, b = (
        (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        for x in materialize_all(case).values()
    )
    return {"out": a @ b}


def subject(name, op="gemm", **numerics):
    return Subject(op=op, name=name, backend="numpy", numerics=Numerics(**numerics))


def confronted(case, x, y, **numerics):
    return confront(contract_of(case.op), case, (subject("x", case.op, **numerics), x), (subject("y", case.op), y))


@pytest.mark.parametrize(
    ("at", "off"),
    [((2717, 3001), 0.5), ((4095, 4094), -3.0), ((1, 17), np.nan), ((77, 2000), np.inf)],
)
def test_one_wrong_element_of_sixteen_millions_is_found(at, off):
    case = product()
    x, y = straight(case), split(case)
    x["out"][at] += np.float16(off)
    said = confronted(case, x, y)
    assert said.mine.verdict.kind is (Kind.MISMATCH if np.isfinite(off) else Kind.NONFINITE)
    assert said.mine.verdict.message.startswith(f"out[{at[0]}, {at[1]}] is ")
    assert said.mine.verdict.signature.index_pattern == "single"
    assert said.theirs.verdict.kind is Kind.PASS
    assert said.suspects["out"].at[0] == at[0] * 4096 + at[1]
    assert said.mine.shares[0].peer == 4096 * 4096


def test_elements_at_which_two_right_outputs_differ_are_no_sample_of_the_errors_of_all():
    """These are the ties, whose errors are as large as rounding makes any."""
    case = product(14336, 1, 1024)
    said = confronted(case, straight(case), split(case))
    assert len(said.suspects["out"].at) > 8
    assert (said.mine.verdict.kind, said.theirs.verdict.kind) == (Kind.PASS, Kind.PASS), said.mine.verdict


def test_three_steps_are_found():
    case = product(2000, 3000)
    x, y = straight(case), split(case)
    x["out"].view(np.uint16)[1234, 2345] += 3
    said = confronted(case, x, y)
    assert said.mine.verdict.message.startswith("out[1234, 2345] is ")
    assert said.theirs.verdict.kind is Kind.PASS


def test_the_wrong_one_may_be_the_peer():
    case = product(1000, 900)
    x, y = straight(case), split(case)
    y["out"][500, 400] += 1
    said = confronted(case, x, y)
    assert (said.mine.verdict.kind, said.theirs.verdict.kind) == (Kind.PASS, Kind.MISMATCH)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["normal", "huge_row", "wide", "cancellation", "positive", "log_uniform", "sparse"])
def test_two_orders_of_a_sum_do_not_alarm(name, dtype):
    case = product(700, 600, 300, dtype, name)
    with np.errstate(all="ignore"):
        said = confronted(case, straight(case), split(case, 7))
    assert said.mine.verdict.kind is said.theirs.verdict.kind is Kind.PASS


def test_arithmetic_that_is_declared_does_not_alarm_and_that_is_not_does():
    case = product(700, 600, 300, "float32")
    x, y = tf32(case), straight(case)
    assert confronted(case, x, y, tf32="rz").mine.verdict.kind is Kind.PASS
    said = confronted(case, x, y)
    assert (said.mine.verdict.kind, said.theirs.verdict.kind) == (Kind.MISMATCH, Kind.PASS)


def test_a_fault_of_both_is_missed():
    case = product(1000, 900)
    x = straight(case)
    part = sample(contract_of("gemm"), case)[0].axes["out"]
    row, column = (next(i for i in range(1, 900) if i not in part[axis]) for axis in (0, 1))
    x["out"][row, column] += 2
    assert confronted(case, x, {"out": x["out"].copy()}).mine.verdict.kind is Kind.PASS


@pytest.mark.parametrize("op", OPS)
def test_right_outputs_of_every_op_do_not_alarm_and_a_wrong_element_does(op):
    from test_sampled import rounded

    random, contract, found = Random(f"peers {op}"), contract_of(op), 0
    while found < 12:
        case, _ = generate(Target(contract, max_elements=1 << 9), random)
        outputs = rounded(case)
        said = confronted(case, outputs, {name: x.copy() for name, x in outputs.items()})
        assert said.mine.verdict.kind is said.theirs.verdict.kind is Kind.PASS, case
        if not outputs["out"].size:
            continue
        found += 1
        wrong = {"out": outputs["out"].copy()}
        at = random.randrange(wrong["out"].size)
        wrong["out"].reshape(-1).view(np.uint8)[at * wrong["out"].itemsize] ^= 1
        compared = confronted(case, wrong, outputs).suspects["out"].at
        assert compared.tolist() in ([at], []), case  # a NaN of another payload may be as right


def test_numbers_that_are_alike_are_no_suspects():
    case = product(40, 30, 20, specials=(Special(value="nan", place="one_column"),))
    x = straight(case)["out"]
    pairs = [(part, part.reference()) for part in sample(contract_of("gemm"), case)]
    room = room_of(pairs, "out", (Numerics(), Numerics()), x)
    found = suspects(x, x.copy(), room)
    assert (found.at.size, found.beyond, found.reach) == (0, 0, 0.0)
    y = x.copy()
    y[3, 4] = 1
    found = suspects(x, y, room)
    assert (found.at.tolist(), found.beyond, found.reach) == ([94], 1, np.inf)
    with pytest.raises(UsageError, match="cannot be compared"):
        suspects(x, y[1:], room)


def test_of_too_many_suspects_some_from_all_over_are_taken():
    case = product(300, 200, 20)
    x, y = straight(case), split(case)
    x["out"][:] = np.nan
    pairs = [(part, part.reference()) for part in sample(contract_of("gemm"), case)]
    found = suspects(x["out"], y["out"], room_of(pairs, "out", (Numerics(), Numerics()), y["out"]))
    assert (len(found.at), found.beyond) == (MOST, 60000)
    assert {0, 59999} <= set(found.at.tolist())


@pytest.mark.parametrize("op", OPS)
def test_parts_around_elements_hold_them(op):
    random, contract = Random(f"around {op}"), contract_of(op)
    for _ in range(20):
        case, _ = generate(Target(contract, max_elements=1 << 9), random)
        shape = contract.output_specs(case)["out"].shape
        size = int(np.prod(shape))
        flat = random.sample(range(size), min(5, size))
        parts, left = around(contract, case, "out", flat)
        assert left == []
        places = np.arange(size).reshape(shape)
        held = {int(i) for part in parts for i in part.of({"out": places})["out"].reshape(-1)}
        assert set(flat) <= held


def test_suspects_that_lie_too_far_apart_are_counted():
    case = Case(op="rope", tensors={"x": tensor((1 << 15, 1, 1 << 10), "float32")}, attrs={"style": "neox"})
    flat = [i << 21 for i in range(16)]
    parts, left = around(contract_of("rope"), case, "out", flat)
    assert len(parts) == GROUPS
    assert left
    assert set(left) < set(flat)
