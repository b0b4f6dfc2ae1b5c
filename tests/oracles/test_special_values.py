"""docs/special-values.md is the table of what NaN, Inf, zeros and overflow must become; the judge holds to every row.

Of each case one element after the other is replaced by every candidate: the judge accepts the answers of the row, and
refuses all others.
"""

import ast
import math
import operator
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.formats import bits_of, format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "special-values.md"
ELSEWHERE = {"quantize", "dequantize", "qgemv", "qgemm"}
"""Ops on packed blocks, whose bytes no call spells out."""
ANYTHING = "anything"
FILLS = ("zeros", "normal")
"""What the recipes are said to be filled with, all of it overwritten: budgets for exact inputs, and for any."""


class Payload(float):
    """A NaN with bits of its own."""


class Signalling(float):
    """A NaN of whose payload the last bit alone is set."""


def words_of(dtype):
    """What the words of a row stand for."""
    fmt = format_of(dtype)
    small = {"tiny": fmt.tiny, "least": fmt.eta} if fmt.is_float else {"tiny": math.nan, "least": math.nan}
    own = {
        "nan": math.nan,
        "inf": math.inf,
        "payload": Payload("nan"),
        "signalling": Signalling("nan"),
        ANYTHING: ANYTHING,
    }
    return {**own, **small, "max": fmt.max}


BINARY = {ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.Sub: operator.sub}


def value_of(node, words):
    """A number, a text, or a list of them."""
    match node:
        case ast.List(elts=items):
            return [value_of(item, words) for item in items]
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return words[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -float(value_of(operand, words))
        case ast.BinOp(left=left, op=op, right=right):
            return float(BINARY[type(op)](value_of(left, words), value_of(right, words)))
        case ast.Call(func=ast.Name(id="exp"), args=[argument]):
            return math.exp(value_of(argument, words))
    raise AssertionError(ast.unparse(node))


def parsed(text):
    return ast.parse(text, mode="eval").body


class Row:
    """One call of a row of the page."""

    def __init__(self, call, dtypes, right):
        node = parsed(call)
        self.text, self.dtypes, self.right = f"{dtypes} {call}".strip(), dtypes.split(), right
        self.op, self.said = node.func.id, {k.arg: k.value for k in node.keywords}
        self.contract = contract_of(self.op)

    def answers(self, words, count):
        """What is right for each element."""
        each = [[value_of(parsed(w.lower()), words) for w in part.split(" or ")] for part in self.right.split(", ")]
        assert len(each) in {1, count}, f"{self.text}: {len(each)} answers for {count} elements"
        return each * count if len(each) == 1 else each

    def cases(self):
        """Its cases, with the claims of the kernel and what words stand for; all values of attributes left out."""
        known, free = self.contract.attrs, set(self.contract.optional) | set(self.said)
        unsaid = [name for name in known if name not in free]
        for variant in self.contract.variants:
            if self.dtypes and next(iter(variant.values())) not in self.dtypes:
                continue
            words = words_of(next(iter(variant.values())))
            said = {name: value_of(node, words) for name, node in self.said.items()}
            inputs = {name: np.array(said[name], object) for name in self.contract.inputs if name in said}
            if not all(holds(variant[name], values) for name, values in inputs.items()):
                assert not self.dtypes, f"{self.text}: {variant} does not hold it"
                continue
            claims = Numerics(**{name: value for name, value in said.items() if name in Numerics.model_fields})
            attrs = {name: value for name, value in said.items() if name in known}
            for fill, values in product(FILLS, product(*(known[name] for name in unsaid))):
                tensors = {
                    name: recipe(values, variant[name], len(self.contract.inputs[name].axes), fill)
                    for name, values in inputs.items()
                }
                more = dict(zip(unsaid, values, strict=True))
                yield Case(op=self.op, tensors=tensors, attrs={**attrs, **more}), claims, words


def holds(dtype, values):
    """Whether all of them are numbers of a dtype."""
    fmt = format_of(dtype)
    if not fmt.is_float:
        return all(math.isfinite(v) and v == int(v) and abs(v) <= fmt.max for v in values.reshape(-1))
    with np.errstate(all="ignore"):
        held = values.astype(np.float64).astype(fmt.dtype).astype(np.float64)
    return np.array_equal(held, values.astype(np.float64), equal_nan=True)


def bits(number, fmt):
    if isinstance(number, Payload):
        return fmt.nan_bits | 1
    if isinstance(number, Signalling):
        return fmt.inf_bits | 1
    with np.errstate(all="ignore"):
        return bits_of(number, fmt.dtype)


def recipe(values, dtype, rank, fill):
    """A tensor of these values; of lower rank than it should be, there is one of each outer axis."""
    fmt = format_of(dtype)
    return TensorRecipe(
        shape=(1,) * (rank - values.ndim) + values.shape,
        dtype=dtype,
        fill=Fill(distribution=fill if fmt.is_float else "zeros"),
        pokes=tuple((i, bits(value, fmt)) for i, value in enumerate(values.reshape(-1))),
    )


def rows():
    """Every call of the page, with its dtypes and its answers."""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            calls, dtypes, right, _ = (cell.strip() for cell in line.strip("|").split("|"))
            yield from (Row(call, dtypes, right) for call in re.findall(r"`([^`]+)`", calls))


ROWS = list(rows())


def element(number, fmt):
    return np.array([bits(number, fmt)], fmt.carrier).view(fmt.dtype)


def alike(a, b, *, bitwise, signed=False):
    if bitwise or (signed and a == 0 == b):
        return a.tobytes() == b.tobytes()
    return np.array_equal(a, b) or bool(np.isnan(a) & np.isnan(b))


def accepts(reference, numerics, output):
    subject = Subject(op=reference.case.op, name="mine", backend="numpy", numerics=numerics)
    told = OutputReport(name="out", shape=output.shape, dtype=output.dtype.name)
    execution = Execution(status=Status.OK, subject=subject.key, outputs=(told,))
    kind = judge(reference, subject, execution, {"out": output}).kind
    assert kind in {Kind.PASS, Kind.MISMATCH, Kind.NONFINITE}
    return kind is Kind.PASS


def complaints(row, case, numerics, words):
    """Where the judge is of another mind than the row."""
    reference = Reference(row.contract, case, materialize_all(case))
    shape, fmt = reference.specs["out"].shape, format_of(reference.specs["out"].dtype)
    candidates = [0.0, -0.0, fmt.max, -fmt.max, *([math.nan, math.inf, -math.inf] if fmt.is_float else [-1, 1])]
    answers = row.answers(words, math.prod(shape))
    free = [some == [ANYTHING] for some in answers]
    right = [[element(n, fmt) for n in some if n != ANYTHING] for some in answers]
    how = {"bitwise": row.contract.copies is not None, "signed": reference.budget(numerics)["out"].signed}
    out = np.concatenate([some[0] if some else element(0.0, fmt) for some in right])
    for at, some in enumerate(right):
        for candidate in [*(element(n, fmt) for n in candidates), *some]:
            spoiled = out.copy()
            spoiled[at : at + 1] = candidate
            is_right = free[at] or any(alike(candidate, n, **how) for n in some)
            if accepts(reference, numerics, spoiled.reshape(shape)) != is_right:
                yield f"{case.label}: out[{at}] = {candidate[0]} is {'refused' if is_right else 'accepted'}"


@pytest.mark.parametrize("row", ROWS, ids=[row.text for row in ROWS])
def test_the_judge_accepts_what_is_right_and_nothing_else(row):
    cases = list(row.cases())
    assert cases, "no dtype of the op holds these inputs"
    assert [text for met in cases for text in complaints(row, *met)] == []


def test_every_op_has_its_rows():
    assert {row.op for row in ROWS} == set(load_contracts()) - ELSEWHERE
