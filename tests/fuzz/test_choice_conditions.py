"""Which of a few values a case must have to fail; nothing where that is not known."""

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.choice_conditions import explain_choice, learn_choices
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.kernels.catalog import user_subject


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        ({"a": False, "b": True}, "fails only if style is b"),
        ({"a": True, "b": False}, "fails only if style is a"),
        ({"a": False, "b": True, "c": True}, "fails only if style is not a"),
        ({"a": False, "b": False, "c": True}, "fails only if style is c"),
        ({"a": False, "b": True, "c": None}, "fails only if style is b"),
        ({"a": False, "b": True, "c": True, "d": None}, "fails only if style is not a"),
        ({"a": False, "b": False, "c": True, "d": True, "e": True}, "fails only if style is c, d or e"),
        ({"a": True, "b": True}, ""),
        ({"a": True, "b": None}, ""),
        ({"a": False, "b": None}, ""),
        ({"a": True}, ""),
        ({}, ""),
    ],
)
def test_explain(fails, text):
    assert explain_choice("style", fails) == text


TANH = {"approximate": "tanh"}

HEADS = {
    "silu": "def run(out, x):\n    out[...] = x / (1 + np.exp(-x))\n",
    "gelu": "def run(out, x, approximate):\n"
    "    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))\n"
    "    e = np.vectorize(math.erf)(x / np.sqrt(2))\n"
    "    out[...] = x / 2 * (1 + (t if approximate == 'tanh' else e))\n",
    "rmsnorm": "def run(out, x, weight, eps):\n"
    "    out[...] = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight\n",
    "gemm": "def run(out, a, b, c=None, *, alpha=1.0, beta=1.0):\n"
    "    out[...] = alpha * (a @ b) + (0 if c is None else beta * c)\n",
}


@pytest.fixture
def learned(tmp_path):
    def said(op, bug, case, original=None):
        """What is learned of a right kernel in which those lines do harm."""
        lines = "".join(f"    {line}\n" for line in bug.splitlines())
        (tmp_path / "mine.py").write_text(f'import math\nimport numpy as np\nOP = "{op}"\n{HEADS[op]}{lines}')
        key = f"{op}/mine"
        with Examiner([user_subject(str(tmp_path / "mine.py"), ())]) as examiner:
            verdict = examiner.check([CheckRequest(case, (key,))])[0].verdicts[key]
            assert verdict.failed, verdict
            return learn_choices(Shrinker(examiner, key, verdict), case, original or case)

    return said


def tensor(*shape, layout="contiguous"):
    return TensorRecipe(shape=shape, dtype="float64", layout=layout, fill=Fill(distribution="ones"))


def silu(layout, *shape):
    return Case(op="silu", tensors={"x": tensor(*(shape or (3, 4)), layout=layout)})


def rmsnorm(eps):
    return Case(op="rmsnorm", tensors={"x": tensor(2, 4), "weight": tensor(4)}, attrs={"eps": eps})


def gemm(c=None, **attrs):
    tensors = {"a": tensor(2, 2), "b": tensor(2, 2)} | ({"c": tensor(2, 2, layout=c)} if c else {})
    return Case(op="gemm", tensors=tensors, attrs=attrs)


def test_layouts(learned):
    gapped = "if not x.flags.c_contiguous:\n    out[...] = 9"
    dense = ("fails only if x.layout is row_gaps, element_gaps or transposed",)
    assert learned("silu", gapped, silu("row_gaps")) == dense
    assert learned("silu", gapped, silu("row_gaps"), silu("transposed", 5, 7)) == dense
    assert learned("silu", gapped, silu("row_gaps"), silu("offset_one", 5, 7)) == (), "it failed otherwise, too"
    also = ("fails only if x.layout is row_gaps, element_gaps, transposed or broadcast",)
    assert learned("silu", gapped, silu("row_gaps"), silu("broadcast", 5, 7)) == also
    assert learned("silu", gapped, silu("row_gaps"), silu("row_gaps", 600, 600)) == (), "too large to be tried"
    assert learned("silu", "out[...] = 9", silu("row_gaps")) == ()


def test_layouts_of_outputs(learned):
    bug = "if out.ctypes.data % 16:\n    out[...] = 9"
    moved = silu("contiguous").but(outputs={"out": "offset_one"})
    assert learned("silu", bug, moved) == ("fails only if out.layout is offset_one",)
    assert learned("silu", bug, moved, moved.but(tensors={"x": tensor(600, 600)})) == (), "too large to be tried"


def test_a_rule_is_none_if_it_fails_without_it_in_another_layout(learned):
    """As a kernel does that takes no misaligned tensor."""
    bug = "if (x.ctypes.data | out.ctypes.data) % 16:\n    out[...] = 9"
    assert learned("silu", bug, silu("offset_one")) == ()
    assert learned("silu", bug, silu("contiguous").but(outputs={"out": "offset_one"})) == ()
    bug = "if x.ctypes.data % 16 and out.ctypes.data % 16:\n    out[...] = 9"
    both = silu("offset_one").but(outputs={"out": "offset_one"})
    assert learned("silu", bug, both) == (
        "fails only if x.layout is offset_one",
        "fails only if out.layout is offset_one",
    )


def test_layouts_that_lie_the_same_are_one(learned):
    """A transposed column lies in memory as a contiguous one."""
    bug = "if x.strides[0] != 8:\n    out[...] = 9"
    assert learned("silu", bug, silu("row_gaps", 4, 1)) == ("fails only if x.layout is row_gaps or element_gaps",)


def test_a_layout_under_which_it_fails_otherwise_is_none_under_which_it_works(learned):
    bug = "if x.strides[1] != 8:\n    out[...] = 9\nif x.strides[1] == 16:\n    raise ValueError"
    assert learned("silu", bug, silu("transposed")) == ("fails only if x.layout is element_gaps or transposed",)
    bug = "if not x.flags.c_contiguous:\n    out[...] = 9\nelse:\n    raise ValueError"
    assert learned("silu", bug, silu("transposed")) == ()


def test_a_layout_that_is_not_taken_is_not_told(learned):
    bug = (
        "if x.strides[1] == 16:\n    raise NotImplementedError('gaps')\nif not x.flags.c_contiguous:\n    out[...] = 9"
    )
    assert learned("silu", bug, silu("transposed")) == ("fails only if x.layout is row_gaps or transposed",)


@pytest.mark.parametrize("own", ["none", "tanh"])
def test_attributes_with_names(learned, own):
    case = Case(op="gelu", tensors={"x": tensor(2, 2)}, attrs={"approximate": own})
    assert learned("gelu", f"if approximate == {own!r}:\n    out[...] = 9", case) == (
        f"fails only if approximate is {own}",
    )
    assert learned("gelu", "out[...] = 9", case) == ()


HALF = """OP = "gelu"
import math
import numpy as np
def run(out, x, *, approximate):
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    e = np.vectorize(math.erf)(x / np.sqrt(2))
    if approximate == "tanh" or (x > 0.5).any():
        t, e = t.astype(np.float16), e.astype(np.float16)
    out[...] = x / 2 * (1 + (t if approximate == "tanh" else e))
"""


def test_what_holds_for_the_smallest_case_alone_is_not_said(tmp_path):
    """As small as it has become, it does not fail without tanh; as it was found it does."""
    (tmp_path / "half.py").write_text(HALF)
    small = Case(op="gelu", tensors={"x": tensor(1, 1).but(pokes=((0, 0x3FD5555555555555),), fill=Fill())}, attrs=TANH)
    before = Case(op="gelu", tensors={"x": tensor(4, 4).but(fill=Fill(distribution="normal"))}, attrs=TANH)
    tiny = Case(
        op="gelu", tensors={"x": tensor(4, 4).but(fill=Fill(distribution="normal", scale=2.0**-10))}, attrs=TANH
    )
    (tmp_path / "tanh.py").write_text(HALF.replace(" or (x > 0.5).any()", ""))
    subjects = [user_subject(str(tmp_path / f"{name}.py"), ()) for name in ("half", "tanh")]
    with Examiner(subjects) as examiner:
        checked = examiner.check([CheckRequest(small, ("gelu/half", "gelu/tanh"))])[0]
        shrinker = Shrinker(examiner, "gelu/half", checked.verdicts["gelu/half"])
        assert learn_choices(shrinker, small, before) == ()
        assert learn_choices(shrinker, small, tiny) == (), "nor does it as it was found, but larger numbers do"
        shrinker = Shrinker(examiner, "gelu/tanh", checked.verdicts["gelu/tanh"])
        assert learn_choices(shrinker, small, tiny) == ("fails only if approximate is tanh",)
        looks = iter([False] * 3 + [True] * 9)
        shrinker.stopping = lambda: next(looks)
        assert learn_choices(shrinker, small, tiny) == (), "time was over before it was sure"


def test_numbers_and_inputs_that_need_not_be_there_are_no_matter_of_a_rule(learned):
    assert learned("rmsnorm", "if eps:\n    out[...] = 9", rmsnorm(0.1)) == ()
    assert learned("gemm", "if c is not None:\n    out[...] = 9", gemm("contiguous")) == ()
    assert learned("gemm", "if c is None:\n    out[...] = 9", gemm()) == ()


def test_several_rules(learned):
    bug = "if c is not None and a.strides[0] != 16 and not c.flags.c_contiguous:\n    out[...] = 9"
    case = gemm("row_gaps").but(tensors={**gemm("row_gaps").tensors, "a": tensor(2, 2, layout="transposed")})
    assert learned("gemm", bug, case) == (
        "fails only if a.layout is row_gaps, element_gaps or transposed",
        "fails only if c.layout is row_gaps, element_gaps or transposed",
    )


def test_what_decides_the_dtype_of_the_output_is_no_matter_of_a_rule(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text('OP = "convert"\ndef run(out, x, *, to):\n    out[...] = x if out.dtype.itemsize > 2 else 9\n')
    recipe = tensor(2, 2).but(dtype="float32")
    case = Case(op="convert", tensors={"x": recipe}, attrs={"to": "float16"})
    with Examiner([user_subject(str(path), ())]) as examiner:
        verdict = examiner.check([CheckRequest(case, ("convert/mine",))])[0].verdicts["convert/mine"]
        assert verdict.failed
        assert learn_choices(Shrinker(examiner, "convert/mine", verdict), case, case) == ()
