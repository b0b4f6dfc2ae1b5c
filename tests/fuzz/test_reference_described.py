"""What a reference takes: read from a table, from annotations, or found by asking it; and what is refused."""

import numpy as np
import pytest
from _references import LINEAR, axes, hosted

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.generation.strategies import distributions_for
from kernel_assay.oracles.references.contract import FLOATS

INIT = "class M(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        {}\n"
FORWARD = "    def forward(self, x): return {}\ndef get_inputs(): return [torch.rand(3, 4)]\n"
PLAIN = "class M(nn.Module):\n" + FORWARD
FIXED = "    def __init__(self):\n        super().__init__()\n        self.d = {}\n"


def test_the_axes_of_a_module_and_of_its_weights_are_named_by_the_arguments_of_its_class(tmp_path):
    host = hosted(tmp_path, LINEAR, "Model")
    assert axes(host) == {
        "x": ("x0", "in_features"),
        "linear_weight": ("out_features", "in_features"),
        "linear_bias": ("out_features",),
    }
    assert host.described.init_dims == {0: "in_features", 1: "out_features"}
    assert host.described.init_of({"in_features": 3, "out_features": 9}) == [3, 9]
    assert host.outputs == {"out": "float32"}
    assert host.message()["summary"] == "the module Model of ref.py, eval mode"
    assert host.unfollowed == set()


def test_extents_that_are_equal_by_chance_are_told_apart(tmp_path):
    text = """
class M(nn.Module):
    def __init__(self, channels, out, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, size)
    def forward(self, x): return self.conv(x)
def get_inputs(): return [torch.rand(3, 3, 9, 9)]
def get_init_inputs(): return [3, 3, 3]
"""
    found = axes(hosted(tmp_path, text, "M"))
    assert found["conv_weight"] == ("out", "channels", "size", "size")
    assert found["x"] == ("x0", "channels", "x2", "x3")


def test_extents_that_must_be_equal_are_one_dimension(tmp_path):
    text = "def f(a, b, c): return a @ b + c\n"
    text += "def get_inputs(): return [torch.rand(4, 6), torch.rand(6, 5), torch.rand(5)]\n"
    assert axes(hosted(tmp_path, text)) == {"a": ("a0", "a1"), "b": ("a1", "b1"), "c": ("b1",)}


def test_an_extent_that_the_reference_insists_on_is_a_number(tmp_path):
    text = "def f(x): return x.reshape(-1, 6, 2)\ndef get_inputs(): return [torch.rand(5, 12)]\n"
    (found,) = axes(hosted(tmp_path, text)).values()
    assert found[0] == "x0"
    text = "def f(x):\n    assert x.shape[1] == 7\n    return x * 2\ndef get_inputs(): return [torch.rand(5, 7)]\n"
    assert axes(hosted(tmp_path, text)) == {"x": ("x0", "7")}


def test_integers_that_may_not_reach_an_extent_are_indices(tmp_path):
    text = "def f(t, i): return t[i]\ndef get_inputs(): return [torch.rand(9, 4), torch.randint(0, 9, (6,))]\n"
    host = hosted(tmp_path, text)
    assert [t.below for t in host.described.tensors] == ["", "t0"]


def test_a_table_and_annotations_say_the_same(tmp_path):
    told = "x: 'float32[rows, cols] 0..1', i: 'int64[rows] < cols', *, eps: float = 1e-5"
    body = "): return torch.gather(x, 1, i[:, None]) + {}\n"
    first = hosted(tmp_path, f"def f({told}{body.format('eps')}")
    table = 'INPUTS = {"x": "float32[rows, cols] 0..1", "i": "int64[rows] < cols", "scale": 0.5}\n'
    second = hosted(tmp_path, f"{table}def f(x, i, scale{body.format('scale')}")
    assert axes(first) == axes(second) == {"x": ("rows", "cols"), "i": ("rows",)}
    assert (first.described.attrs, second.described.attrs) == ({"eps": 1e-5}, {"scale": 0.5})
    assert [(t.low, t.high, t.below) for t in first.described.tensors] == [(0.0, 1.0, ""), (None, None, "cols")]


def test_one_line_corrects_the_range_of_a_dimension(tmp_path):
    text = 'DIMS = {"cols": (8, 64), "rows": 3}\ndef f(x: "float32[rows, cols]"): return x.sum(1)\n'
    assert hosted(tmp_path, text).described.dims == {"rows": (3, 3), "cols": (8, 64)}


def test_only_what_nobody_gives_a_range_is_longer_than_usual(tmp_path):
    text = 'DIMS = {"d": (1, 64)}\ndef f(x: "float32[a, b, c, d]"): return x\n'
    contract = hosted(tmp_path, text).contract
    assert {name: (dim.most, dim.high) for name, dim in contract.dims.items()} == {
        **dict.fromkeys("abc", (48, 300)),
        "d": (64, 64),
    }


@pytest.mark.parametrize(
    ("example", "ends", "two"),
    [
        ("(torch.arange(16) % 2 * 2 - 1).float()", (-1.0, 1.0), True),
        ("(torch.arange(16) % 2).bfloat16()", (0.0, 1.0), True),
        ("(torch.arange(15) % 2).float()", (None, None), False),
        ("(torch.arange(16) % 3).float()", (None, None), False),
        ("torch.tensor([0.0, -torch.inf] * 8)", (None, None), False),
        ("torch.tensor([0.0, torch.nan] * 8)", (None, None), False),
        ("torch.ones(16)", (None, None), False),
    ],
)
def test_an_example_of_two_numbers_says_that_there_are_no_others(tmp_path, example, ends, two):
    text = f"class M(nn.Module):\n    def forward(self, x): return x + 1\ndef get_inputs(): return [{example}]\n"
    host = hosted(tmp_path, text, "M")
    (told,), spec = host.described.tensors, host.contract.inputs["x"]
    assert ((told.low, told.high), told.two) == (ends, two)
    assert (distributions_for(spec, told.dtype) == ("either",)) == two
    case = propose([Target(host.contract)], 1, 5, Elites([])).case
    assert not two or {*materialize_all(case)["x"].reshape(-1).tolist()} <= {*ends}


@pytest.mark.parametrize(
    ("first", "named", "square"),
    [
        ("torch.rand(30, 30).tril()", "lower", ("x0", "x0")),
        ("(lambda a: a + a.T)(torch.rand(30, 30))", "symmetric", ("x0", "x0")),
        ("torch.rand(30, 30)", "", ("x0", "x1")),
        ("torch.rand(3, 3).tril()", "", ("x0", "x1")),
    ],
)
def test_an_example_with_a_structure_says_that_every_case_has_it(tmp_path, first, named, square):
    text = "class M(nn.Module):\n    def forward(self, x, y): return x @ y\n"
    text += f"def get_inputs(): x = {first}; return [x, torch.rand(len(x), len(x))]\n"
    host = hosted(tmp_path, text, "M")
    assert [t.structure for t in host.described.tensors] == [named, ""]
    assert axes(host) == {"x": square, "y": (square[1], "y1")}
    for number in range(20):
        case = propose([Target(host.contract)], number, 5, Elites([])).case
        x = materialize_all(case)["x"]
        assert not named or (x == x.T if named == "symmetric" else np.tril(x) == x)[~np.isnan(x)].all()


def test_words_name_a_structure(tmp_path):
    text = 'def f(a: "float32[b, n, n] 0..1 lower", c: "list[float32[n, n] symmetric]"): return a @ c[0]\n'
    found = hosted(tmp_path, text).described.tensors
    assert [(t.structure, t.low) for t in found] == [("lower", 0.0), *[("symmetric", None)] * 3]


def test_variances_are_not_negative(tmp_path):
    text = FIXED.format("nn.BatchNorm1d(4)") + FORWARD.format("self.d(x)")
    host = hosted(tmp_path, "class M(nn.Module):\n" + text, "M")
    assert {t.weight: t.low for t in host.described.tensors}["d.running_var"] == 0.0


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("def f(x: 'float32[n]'): return x\n", "g", "ref.py has no function or class 'g'; it has f"),
        ("def f(x, y): return x\n", "f", "nothing says what its inputs are; give the file get_inputs(), or a table"),
        ("INPUTS = {'x': 'float32[n]'}\ndef f(x, y): return x\n", "f", "nothing says what its input 'y' is"),
        ("INPUTS = 5\ndef f(x): return x\n", "f", "INPUTS is of the type int, not a dict; write INPUTS = {"),
        ("DIMS = [5]\ndef f(x: 'float32[n]'): return x\n", "f", "DIMS is of the type list, not a dict; write DIMS = {"),
        ("SHAPES = 5\ndef f(x: 'float32[n]'): return x\n", "f", "SHAPES is no list of dicts; write SHAPES = ["),
        ("raise ValueError\n", "f", "ref.py does not import: ValueError (line "),
        ("INPUTS = {'x': 'float32(n)'}\ndef f(x): return x\n", "f", "x = 'float32(n)' is not understood"),
        ("def f(x: 'float32[n, c'): return x\n", "f", "x = 'float32[n, c' is not understood"),
        ("def f(x: 'float32[n] 5..-5'): return x\n", "f", "x = 'float32[n] 5..-5' is not possible: the range ends"),
        ("INPUTS = {'x': 'float32[n] 1e..5'}\ndef f(x): return x\n", "f", "x = 'float32[n] 1e..5' is not understood"),
        ("def f(x: 'float32[n, c] lower'): return x\n", "f", "lower are numbers whose last two axes are one"),
        ("def f(x: 'bool[n, n] upper'): return x\n", "f", "upper are numbers whose last two axes are one"),
        ("def f(x: 'float32[n, c*0]'): return x\n", "f", "is not possible: an axis of 0 leaves it empty"),
        ("INPUTS = {'x': 'float31[n]'}\ndef f(x): return x\n", "f", "x = 'float31[n]' is not understood"),
        ("INPUTS = {'z': 'float32[n]'}\ndef f(): return 1\n", "f", "INPUTS names 'z', which the reference does not"),
        ("def f(x: 'float32[n+1]'): return x\n", "f", "the axis 'n+1' of x must be a name, a number, or a product"),
        ("def f(x: 'float32[n]', i: 'int64[n] < k'): return x\n", "f", "i < k, which is no axis of any input"),
        ("DIMS = {'k': 4}\ndef f(x: 'float32[n]'): return x\n", "f", "DIMS names 'k', which is none of n"),
        ("DIMS = {'n': (5, 2)}\ndef f(x: 'float32[n]'): return x\n", "f", "must be an extent, or the"),
        ("def f(x: 'float32[n]'): return 'yes'\n", "f", "its output out is a str; it must be a tensor or an array"),
        ("def f(x: 'float32[n]'): return ()\n", "f", "it returns (), and no tensor"),
        ("def f(x: 'float32[n]'): return x > 0\n", "f", "its output out is bool, which is none of float64, float32"),
        ("def f(x: 'float32[n]'): return x + torch.rand_like(x)\n", "f", "two runs of the reference on one input"),
        ("def f(x: 'float32[n]'): raise ValueError('no')\n", "f", "for every shape that was tried (ValueError: no"),
        ("def f(x: 'float32[n]'): raise SystemExit(3)\n", "f", "for every shape that was tried (SystemExit: 3"),
        ("def f(x: 'float32[n, m]'): return x.argmax(1) + 1\n", "f", "its output out holds positions, of which ties"),
        ("def f(x) return x\n", "f", "ref.py does not import: SyntaxError"),
        ("import nothing_here\n", "f", "ref.py does not import: ModuleNotFoundError: No module named"),
        ("class A:\n    pass\n", "A", "the class A is no nn.Module of torch; a reference is one, or a function"),
        ("def f(x): return x\ndef get_inputs(): return [[torch.rand(3), None]]\n", "f", "its input 'x' is a list"),
        ("def f(x): return x\ndef get_inputs(): return [None]\n", "f", "its input 'x' is None; leave it out"),
        ("def f(x): return x\ndef get_inputs(): return [0 / 0]\n", "f", "get_inputs() raises ZeroDivisionError"),
        ("def f(x): return x.reshape(7)\ndef get_inputs(): return [torch.rand(3)]\n", "f", "on its own examples"),
        ("def f(x): return x\ndef get_inputs(): return [torch.rand(3).cfloat()]\n", "f", "its input 'x' is complex"),
        ("def f(x): return x\ndef get_inputs(): return [1, 2]\n", "f", "get_inputs() gives 2 inputs, but the"),
        (INIT.format("") + FORWARD.format("x"), "M", "M takes arguments; give the file get_init_inputs()"),
        (INIT.format("raise ValueError('no')") + FORWARD.format("x") + "def get_init_inputs(): return [3]\n", "M",
         "M(3) raises ValueError: no"),
        ("MODE = 'both'\n" + PLAIN.format("x"), "M", "MODE = 'both' must be 'eval' or 'train'"),
        ("MODE = 'train'\nclass M(nn.Module):\n" + FIXED.format("nn.Dropout(0.5)") + FORWARD.format("self.d(x)"), "M",
         "in train mode dropout does: leave out MODE"),
        ("MODE = 'train'\nclass M(nn.Module):\n" + FIXED.format("nn.BatchNorm1d(4)") + FORWARD.format("self.d(x)"), "M",
         "in train mode it changes its buffer d.running_mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_reference_is_refused_in_a_sentence(tmp_path, text, name, said):
    with pytest.raises(UsageError) as refused:
        hosted(tmp_path, text, name)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "wanted", "taken"),
    [
        ("x + x", "like", FLOATS),
        ("x.float() + 1", "float32", FLOATS),
        ("x.sum(1, dtype=torch.float64)", "float64", FLOATS),
        ("x.half()", "float16", FLOATS),
        ("x * torch.ones(1)", "like", ("float32", "float64")),
        ("x.float() if x.dtype == torch.bfloat16 else x", "like", ("float32", "float16", "float64")),
        ("F.cross_entropy(x.float(), torch.zeros(len(x), dtype=torch.int64), reduction='none')", "float32", FLOATS),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_output_has_the_dtype_that_the_reference_gives_it(tmp_path, dtype, body, wanted, taken):
    contract = hosted(tmp_path, f"def f(x: '{dtype}[n, m]'): return {body}\n").contract
    out, variants = contract.outputs["out"], [one["x"] for one in contract.variants]
    assert variants[0] == dtype
    if dtype in taken:
        assert (out.like, out.dtype) == (("x", "") if wanted == "like" else ("", wanted))
        assert sorted(variants) == sorted(taken)


def test_a_module_has_all_its_numbers_in_one_dtype(tmp_path):
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(1), persistent=False)
        self.linear = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.linear(x) * self.table
def get_inputs():
    return [torch.ones(2, 3)]
"""
    contract = hosted(tmp_path, text, "Model").contract
    assert contract.outputs["out"].like == "x"
    assert len(contract.variants) == len(FLOATS)


OPTIONAL = """
class Model(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.linear = nn.Linear({sizes})

    def forward(self, x{x}, mask{mask}=None):
        y = self.linear(x)
        return y if mask is None else y * mask
"""
KNOWN = {
    "fixed": (
        OPTIONAL.format(parameters="", sizes="12, 8", x=": 'float32[n, d]'", mask=": 'float32[n, k]'"),
        "12",
        "8",
    ),
    "named": (
        OPTIONAL.format(parameters="d, k", sizes="d, k", x="", mask="")
        + 'INPUTS = {"x": "float32[n, d]", "mask": "float32[n, k]"}\ndef get_init_inputs(): return [48, 8]\n',
        "d",
        "k",
    ),
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_a_table_names_is_tied_to_the_weights_of_a_module(tmp_path, name):
    text, d, k = KNOWN[name]
    host = hosted(tmp_path, text, "Model")
    assert axes(host) == {"x": ("n", d), "mask": ("n", k), "linear_weight": (k, d), "linear_bias": (k,)}
    assert set(host.described.dims) == {"n", d, k} - {"12", "8"}
    assert host.contract.optional == ("mask",)


def test_an_input_that_the_reference_cannot_do_without_is_in_every_case(tmp_path):
    host = hosted(tmp_path, "def f(x: 'float32[n]', y: 'float32[n]' = None, z: 'float32[n]' = None): return x * y\n")
    assert host.contract.optional == ("z",)


def test_a_parameter_of_which_nothing_is_said_is_named(tmp_path):
    text = "def f(x, mask=None): return x\ndef get_inputs(): return [torch.ones(3, 4)]\n"
    assert hosted(tmp_path, text).described.untold == ["mask"]
    text = text.replace("4)]", "4), torch.ones(3, 4)]")
    assert hosted(tmp_path, text).contract.optional == ("mask",)


TABLES = """
class Model(nn.Module):
    def __init__(self, width, most):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.register_buffer("mask", torch.tril(torch.ones(most, most)))
        self.register_buffer("drawn", torch.randn(width))

    def forward(self, x):
        n = x.shape[0]
        return self.mask[:n, :n] @ self.norm(x) + self.drawn

def get_inputs():
    return [torch.rand(16, 32)]

def get_init_inputs():
    return [32, 64]
"""


def test_a_buffer_that_a_class_computes_is_no_input(tmp_path):
    host = hosted(tmp_path, TABLES, "Model")
    weights = {t.weight for t in host.described.tensors if t.weight}
    assert weights == {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "drawn"}
    assert host.described.init[1] == 64
    assert "most" not in host.described.dims
