"""Nobody who is honest is accused: any legal order, fused or not, with roots, quotients and functions off by their few
units. And whoever does the same work but for one slip is.

Longer: scripts/bench/honest.
"""

from random import Random

import numpy as np
import pytest
from _arithmetic import Machine, Value
from _honest import Trial, trials
from _kernels import KERNELS

from kernel_assay.corpus.formats import bits_of
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.catalog import load_contracts
from kernel_assay.oracles.judging.judge import judge

OPS = sorted(load_contracts())
CASES = 100
SLIPS = 100
"""Cases in which a slip must show."""


def said(trial):
    """What the judge holds against a trial; not what it cannot decide."""
    return [f"{v.message} {trial.case.token} {trial.seed}" for v in trial.verdicts() if v.kind is not Kind.PASS]


def test_every_op_has_an_honest_kernel():
    assert sorted(KERNELS) == OPS


@pytest.mark.parametrize("op", OPS)
def test_an_honest_kernel_is_never_accused(op):
    assert [text for trial in trials(op, 0, CASES) for text in said(trial)] == []


def poked(op, attrs, dtype="float32", **values):
    """A case of these values."""
    tensors = {}
    for name, value in values.items():
        array = np.asarray(value, np.float64)
        pokes = tuple((i, bits_of(x, np.dtype(dtype))) for i, x in enumerate(array.reshape(-1).tolist()))
        tensors[name] = TensorRecipe(shape=array.shape, dtype=dtype, pokes=pokes)
    return Case(op=op, tensors=tensors, attrs=attrs)


def heads(rows):
    return np.asarray(rows, np.float64)[None, None]


FORMER = {
    "a product of a tiny weight and a huge value": poked(
        "attention", {"causal": False, "scale": 0.0},
        q=heads([[30.0, 0.0]]), k=heads([[4.0, -2.0], [-3.0, -2.0]]), v=heads([[0.0, 0.0], [3.689e19, 0.0]]),
    ),
    "a root of one": poked("rmsnorm", {"eps": 0.0}, x=[[1.0, 1.0]], weight=[1.0, 1.0]),
    "one key, of which a fused score leaves something": poked(
        "attention", {"causal": False, "scale": 0.3}, q=heads([[2.0]]), k=heads([[1.7]]), v=heads([[-3.0]])
    ),
    "equal scores, likewise": poked("softmax", {"scale": 0.3}, x=[[3.0, 3.0, 3.0, 3.0]]),
    "a subnormal result that is doubled": poked(
        "gemm", {"alpha": 1.0, "beta": 1.0}, "float16", a=[[2.0**-20]], b=[[0.3]]
    ),
    "a signalling NaN": Case(
        op="row_max",
        tensors={"x": TensorRecipe(shape=(1, 3), dtype="float16", pokes=((0, 0x4000), (1, 0x7C01)))},
    ),
    "an infinite scale": Case(
        op="dequantize",
        tensors={"w": TensorRecipe(shape=(1, 18), dtype="uint8", pokes=((0, 0x00), (1, 0x7C)))},
        attrs={"format": "q4_0"},
    ),
    "half of the way to Inf": poked("silu_gate", {}, "float64", gate=[[1.7976931348623157e308]], up=[[-2.0**-400]]),
}  # fmt: skip
"""Cases in which one was accused."""


@pytest.mark.parametrize("case", FORMER.values(), ids=FORMER)
def test_former_false_alarms(case):
    random = Random(1)
    some = [Trial(case, random.getrandbits(32), random.random() < 0.5, Numerics()) for _ in range(50)]
    assert [text for trial in some for text in said(trial)] == []


class Forgetful(Machine):
    """Leaves the last term out of long sums."""

    def sum(self, x: Value) -> Value:
        return super().sum(x[..., :-1] if x.data.shape[-1] > 4 else x)


class Coarse(Machine):
    """Makes bfloat16 of every function's value."""

    def near(self, exact, *arguments, **how):
        found = super().near(exact, *arguments, **how)
        return Value(self, (found.data.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))


class Narrow(Machine):
    """Makes bfloat16 of every product."""

    def kept(self, x):
        x = np.asarray(x, np.float32)
        return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).reshape(x.shape)


SUMMING = ("row_sum", "rmsnorm", "gemma_rmsnorm", "layernorm", "softmax", "gemm", "gemv", "qgemm", "qgemv", "attention")
FUNCTIONS = ("softmax", "attention", "rmsnorm", "layernorm", "silu", "silu_gate", "gelu", "gelu_gate", "rope")
ROUNDING = (*FUNCTIONS, "gemma_rmsnorm", "gemm", "gemv", "qgemm", "qgemv", "dequantize")


@pytest.mark.parametrize(
    ("machine", "op"),
    [*((Forgetful, op) for op in SUMMING), *((Coarse, op) for op in FUNCTIONS), *((Narrow, op) for op in ROUNDING)],
)
def test_a_slip_is_found(monkeypatch, machine, op):
    monkeypatch.setattr("_honest.Machine", machine)
    for trial in trials(op, 0, SLIPS):
        if trial.case.dtype == "float64":
            continue
        ran = trial.ran(trial.case)
        if judge(ran.reference, ran.subject, ran.execution, ran.outputs).failed:
            return
    pytest.fail("nobody saw it")
