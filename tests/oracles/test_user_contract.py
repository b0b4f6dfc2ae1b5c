"""A contract from anywhere: entered for one process, refused in one sentence, forgotten on demand."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.oracles.catalog import add_contract, contract_of, forget_contracts, load_contracts, origin_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import Input

HEAD = "import numpy as np\nfrom kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output\n"
MINE = """
def reference(x, *, slope):
    return {"out": np.where(x > 0, x, slope * x)}

CONTRACT = Contract(
    name="leaky",
    summary="x, or a little of it where it is negative",
    dims={"n": Dim(0, 4096)},
    inputs={"x": Input(("n",))},
    outputs={"out": Output(("n",), like="x")},
    variants=({"x": "float32"}, {"x": "float16"}),
    attrs={"slope": (0.01, 0.2)},
    reference=reference,
)
"""


@pytest.fixture(autouse=True)
def _forget():
    yield
    forget_contracts()


@pytest.fixture
def write(tmp_path):
    def written(text=MINE, name="leaky.py", head=HEAD):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(head + text)
        return path

    return written


def refusal(path):
    with pytest.raises(UsageError) as refused:
        add_contract(path)
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    return message.replace(str(path), "FILE")


def test_a_contract_is_entered_and_forgotten(write):
    path = write()
    before = list(load_contracts())
    contract = add_contract(path)
    assert contract_of("leaky") is contract
    assert list(load_contracts()) == [*before, "leaky"]
    assert (contract.origin, origin_of("leaky"), origin_of("silu"), origin_of("no_such")) == (str(path),) * 2 + ("", "")
    assert contract.estimated
    forget_contracts()
    assert list(load_contracts()) == before
    with pytest.raises(UsageError, match="leaky"):
        contract_of("leaky")


def test_a_minimal_contract_judges(write):
    contract = add_contract(write())
    recipe = TensorRecipe(shape=(5,), dtype="float16", fill=Fill(distribution="normal"))
    case = Case(op="leaky", tensors={"x": recipe}, attrs={"slope": 0.2})
    reference = Reference(contract, case, materialize_all(case))
    budget = reference.budget(Numerics())["out"]
    assert budget.estimated
    negative = reference.inputs["x"] < 0
    assert (budget.error[negative] > 0).all()
    assert not budget.error[~negative].any()


def test_the_same_file_twice_is_read_again(write):
    path = write()
    add_contract(path)
    assert add_contract(write(MINE.replace("0.01", "0.5"))).attrs["slope"] == (0.5, 0.2)


def test_one_of_the_house_can_be_replaced(write):
    house = contract_of("silu")
    source = Path(__file__).resolve().parents[2] / "oracles" / "contracts" / "silu.py"
    mine = add_contract(write(source.read_text(), "other.py", head=""))
    assert contract_of("silu") is mine is not house
    assert list(load_contracts()).count("silu") == 1
    forget_contracts()
    assert contract_of("silu") is house


def test_two_files_of_one_op(write):
    first, second = write(), write(name="again/leaky.py")
    add_contract(first)
    assert refusal(second).replace(str(first), "FIRST") == "op 'leaky' is defined twice: FIRST and FILE"
    assert origin_of("leaky") == str(first)


def test_a_missing_file(tmp_path):
    assert refusal(tmp_path / "none.py") == "the contract FILE does not exist"


@pytest.mark.parametrize(("text", "words"), [
    ("import no_such_module\n", "does not import: ModuleNotFoundError: No module named 'no_such_module' (line 3)"),
    ("def f(:\n", "does not import: SyntaxError: invalid syntax"),
    ("\ndef f():\n    return 1 / 0\n\nf()\n", "does not import: ZeroDivisionError: division by zero (line 5)"),
    ("raise SystemExit(3)\n", "does not import: SystemExit: 3 (line 3)"),
    ("Input(('n',), low=2, high=1)\n", "the range of an input is empty: low=2 is above high=1 (line 3)"),
    ("", "defines no CONTRACT"),
    ("CONTRACT = {}\n", "defines a CONTRACT of type dict"),
])  # fmt: skip
def test_a_file_that_defines_none(write, text, words):
    assert words in refusal(write(text))


@pytest.mark.parametrize(("old", "new", "words"), [
    ('"leaky"', '"my leaky"', "must be a word of letters, digits and _, not 'my leaky'"),
    ('"leaky"', '"../x"', "must be a word"),
    ('Input(("n",))', 'Input(("m",))', "dimension 'm' must be one of the dims and an axis of an input"),
    ('Output(("n",)', 'Output(("m",)', "dimension 'm' must be one of the dims"),
    ('like="x"', 'like="y"', "output 'out' must be like one of the inputs, or have a dtype"),
    ('like="x"', 'dtype="float31"', "dtype 'float31' is not known"),
    ('{"x": "float16"}', '{"y": "float16"}', "the variant {'y': 'float16'} must give a dtype to each input"),
    ('"float16"', '"half"', "dtype 'half' is not known"),
    ('{"out": np.where', '{"y": np.where', "the reference gives nothing for out, not (0,)"),
    ("slope * x)}", "slope * x)[:1]}", "the reference gives (1,) for out, not (2,)"),
    ("    return", "    x.max()\n    return", "fails on leaky float32 x=0:uniform slope=0.01 (ValueError: zero-size"),
    ("    return", "    float(x.sum())\n    return", "the reference cannot be followed (it makes plain numbers"),
    ("attrs=", "factor=0.5, attrs=", "the factor of an estimated budget must be at least 1, not 0.5"),
    ("attrs=", 'separable=("m",), attrs=', "separable names 'm', which must be one of the dims"),
    ("attrs=", 'placed={"n": dict}, attrs=', "placed names 'n', which must be separable"),
    ('Input(("n",))', 'Input(("n",), low=1e5)', "no float16 number lies in the range from 100000.0 to 110000.0"),
])  # fmt: skip
def test_a_contract_that_cannot_work(write, old, new, words):
    assert old in MINE
    assert words in refusal(write(MINE.replace(old, new)))
    assert "leaky" not in load_contracts()


def test_a_dim_that_is_not_separable_must_not_be_said_to_be(write):
    mine = MINE.replace("attrs=", 'separable=("n",), attrs=')
    assert add_contract(write(mine)).separable == ("n",)
    told = refusal(write(mine.replace("slope * x)", "slope * x - x[:1])")))
    assert (
        "'n' is not separable, because out is another for the last of its indices alone than among the others" in told
    )


def test_a_budget_of_ones_own_is_used(write):
    contract = add_contract(write(MINE.replace("attrs=", 'budget=lambda q: {"out": Budget(0.25)}, attrs=')))
    assert not contract.estimated
    recipe = TensorRecipe(shape=(2,), dtype="float32")
    case = Case(op="leaky", tensors={"x": recipe}, attrs={"slope": 0.2})
    assert Reference(contract, case, materialize_all(case)).budget(Numerics())["out"].error == 0.25


def test_a_fault_of_a_users_reference_is_the_users(write):
    """It shows late: the sample of add_contract has two elements at most."""
    text = MINE.replace("    return", "    assert x.size < 3, 'too many'\n    return")
    case = Case(op="leaky", tensors={"x": TensorRecipe(shape=(3,), dtype="float32")}, attrs={"slope": 0.2})
    contract = add_contract(write(text))
    with pytest.raises(UsageError, match=re.escape("x=3:zeros slope=0.2 (AssertionError: too many)")):
        _ = Reference(contract, case, materialize_all(case)).want


def test_a_fault_of_the_houses_reference_is_ours():
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 2), dtype="float32")}, attrs={"slope": 0.2})
    with pytest.raises(InternalError, match="unexpected keyword"):
        _ = Reference(contract_of("silu"), case, materialize_all(case)).want


def test_helpers_and_classes_of_the_file_are_there(write):
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text = """
@dataclass
class Slope:
    value: float

def leak(x, slope: Slope):
    return np.asarray(x, dtype=np.float64) * slope.value

def reference(x, *, slope):
    out = np.zeros(x.shape)
    out[:] = leak(x, Slope(slope))
    return {"out": np.maximum(x, out)}
"""
    assert add_contract(write(text + MINE[MINE.index("CONTRACT") :], head=head + HEAD)).estimated


@pytest.mark.parametrize("wrong", [
    {"low": 2.0, "high": 1.0}, {"low": np.inf}, {"high": np.nan}, {"low": 0.0, "below": "n"},
    {"low": 0.0, "distributions": ("normal",)},
])  # fmt: skip
def test_a_range_without_sense(wrong):
    with pytest.raises(UsageError, match="range"):
        Input(("n",), **wrong)


PROBIT = """
from scipy import special

def reference(x):
    return {"out": x * special.ndtr(x)}

CONTRACT = Contract(
    name="probit",
    summary="by a function of scipy, which takes no longdouble",
    dims={"n": Dim(1, 64)},
    inputs={"x": Input(("n",), low=-3.0, high=3.0)},
    outputs={"out": Output(("n",), like="x")},
    variants=({"x": "float32"}, {"x": "float64"}),
    reference=reference,
)
"""
BUDGETED = PROBIT.replace(
    "    reference=reference,",
    "    reference=reference,\n    budget=lambda q: {'out': Budget(8 * q.u * np.abs(q.want['out']))},",
)


@pytest.mark.parametrize(("text", "room"), [(PROBIT, 3.0 / 2.0), (BUDGETED, 2.0)])
def test_a_reference_that_takes_no_longdouble_computes_in_float64_and_has_room_for_its_own_error(write, text, room):
    contract = add_contract(write(text, "probit.py"))
    x = TensorRecipe(shape=(32,), dtype="float64", fill=Fill(distribution="between", params={"low": -3.0, "high": 3.0}))
    reference = Reference(
        contract, Case(op="probit", tensors={"x": x}), materialize_all(Case(op="probit", tensors={"x": x}))
    )
    out, want = reference.inputs["x"] * special.ndtr(reference.inputs["x"]), reference.want["out"]
    error = np.asarray(reference.budget(Numerics())["out"].error)
    assert (np.abs(out - want) <= error).all()
    assert (error < 1e-13).all()
    narrow = Reference(
        contract,
        Case(op="probit", tensors={"x": x.but(dtype="float32")}),
        {"x": reference.inputs["x"].astype(np.float32)},
    )
    same = np.asarray(narrow.budget(Numerics())["out"].error)
    ratio = np.median(error / same) * 2.0**29
    assert room * 0.9 < ratio < room * 1.8


def test_a_reference_that_fails_in_float64_too_says_why(write):
    with pytest.raises(UsageError, match=r"the reference fails on .*no such thing"):
        add_contract(write(MINE.replace('return {"out"', 'raise ValueError("no such thing")\n    return {"out"')))
