"""`hold` in a test of one's own: it passes what is right, and tells of what is wrong as small as it gets."""

import ast
import functools
import importlib.util
import inspect
import re
import shlex
import textwrap
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.reading import case_of
from kernel_assay.fuzz import testing
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.generation.strategies import cases
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.testing import hold
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import add_contract, forget_contracts

RIGHT = """import numpy as np
OP = "silu"

def run(out, x):
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
"""
WRONG = RIGHT + "    out[:, 3:4] = 5\n"
ABORTS = RIGHT.replace("np\n", "np, os\n", 1) + "    if x.shape[1] > 2:\n        os.abort()\n"
DRAWN = settings(max_examples=25, deadline=None, database=None, derandomize=True, phases=(Phase.generate, Phase.shrink))
UNTIL_IT_FAILS = settings(DRAWN, max_examples=500)
"""What is drawn depends on which modules are loaded, too: Hypothesis takes constants from them."""
pytest_plugins = ["pytester"]
CONTRACT = """from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CONTRACT = Contract(
    name="twice", summary="twice x", dims={"n": Dim(0, 64)}, inputs={"x": Input(("n",))},
    outputs={"out": Output(("n",), like="x")}, variants=({"x": "float16"},), reference=lambda x: {"out": x * 2.0},
)
"""


@pytest.fixture(autouse=True)
def _sandboxes(sandboxes):
    """Those of a test end with it."""


def one(shape=(2, 5), dtype="float32", op="silu", **fields):
    x = TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="ones"))
    return Case(op=op, tensors={"x": x}, **fields)


@pytest.fixture
def write(tmp_path):
    def file(text, name="mine.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return file


def loaded(path):
    """The module of a file, as a test imports the kernel that it is about."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failure(kernel, op="silu", **chosen):
    """What a property that holds a kernel to all cases of an op fails with."""
    met = []

    @UNTIL_IT_FAILS
    @given(cases(op, **chosen))
    def held(case):
        met.append(case)
        hold(case, kernel)

    with pytest.raises(AssertionError) as failed:
        held()
    return failed.value, met


def lines(error):
    """The lines of a failure: what is wrong, the case, the command."""
    first, label, command = str(error).splitlines()
    assert (label[:10], command[:10]) == ("case      ", "see it    ")
    return first, label[10:], command[10:]


# what passes


@pytest.mark.parametrize("op", ["softmax", "convert"])
def test_a_clean_kernel_of_the_house_passes(op):
    subject = next(s for s in subjects_of(op) if s.backend == "numpy" and not s.planted)
    path = Path(testing.__file__).parents[1] / subject.path
    met = []

    @DRAWN
    @given(cases(op))
    def held(case):
        met.append(hold(case, path).kind)

    held()
    assert Kind.PASS in met
    assert set(met) <= {Kind.PASS, Kind.UNSUPPORTED}
    assert len(met) >= 25


def test_the_verdict_is_returned(write):
    verdict = hold(one(), write(RIGHT))
    assert (verdict.kind, verdict.failed) == (Kind.PASS, False)
    assert 0 <= verdict.rho <= 1


def test_what_declines_does_not_fail(write):
    text = RIGHT + "    raise NotImplementedError('not today')\n"
    verdict = hold(one(), write(text))
    assert (verdict.kind, "not today" in verdict.message) == (Kind.UNSUPPORTED, True)


def test_a_kernel_may_be_a_path_a_text_or_a_function(write):
    path = write(RIGHT + "\n\ndef other(out, x):\n    out[...] = 5\n")
    for kernel in (path, str(path), f"{path}:run", loaded(path).run):
        assert hold(one(), kernel).kind is Kind.PASS
    for kernel in (f"{path}:other", loaded(path).other):
        with pytest.raises(AssertionError, match="mismatch"):
            hold(one(), kernel)


def test_a_file_need_not_name_its_op(write):
    assert hold(one(), write(RIGHT.replace('OP = "silu"\n', ""))).kind is Kind.PASS


# what fails


def test_a_wrong_kernel_fails_in_words(write):
    with pytest.raises(AssertionError) as failed:
        hold(one(), write(WRONG))
    first, label, command = lines(failed.value)
    assert first.startswith("mismatch: out[0, 3] is 5, must be 0.731058579 to within 3.08e-07")
    assert label == one().label
    assert command == f"kassay show {one().token} --subject {write(WRONG)}:run"


def test_the_command_shows_the_same_failure(write, capsys, tmp_path, monkeypatch):
    error, _ = failure(write(WRONG))
    first, label, command = lines(error)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    out = capsys.readouterr().out
    assert first.removeprefix("mismatch: ") in out
    assert label in out
    assert "reproducer\n" in out


def test_the_command_can_be_pasted_wherever_the_kernel_lies(write):
    path = write(WRONG, "my kernels/mine.py")
    with pytest.raises(AssertionError) as failed:
        hold(one(), path)
    assert shlex.split(lines(failed.value)[2])[-2:] == ["--subject", f"{path}:run"]


def test_what_is_shown_is_as_small_as_it_gets(write):
    """Column 3 is wrong, so one row of four zeros shows it; nothing smaller does."""
    error, met = failure(write(WRONG))
    assert lines(error)[1] == "silu float32 x=1x4:zeros"
    assert any(case.elements > 4 for case in met), "it was found with a larger one"


def test_hypothesis_names_the_case_so_that_it_can_be_brought_back(write):
    error, _ = failure(write(WRONG))
    said = "\n".join(error.__notes__)
    found = re.search(r"<(silu [^|]*) \| (case:[\w-]+)>", said)
    assert case_of(found[2]).label == found[1] == lines(error)[1]


def test_shrinking_goes_along_what_matters(write):
    """Wrong only for the plain NaN, which random bits hardly ever are: the special value must stay, all else goes."""
    kernel = write(RIGHT + "    out[x.view(np.uint32) == 0x7FC00000] = 0\n")
    error, _ = failure(kernel, dtypes=("float32",))
    first, label, _ = lines(error)
    assert first.startswith("nonfinite: ")
    assert re.search(r"x=1x1:.*\+nan", label)
    with pytest.raises(AssertionError, match="nonfinite"):
        hold(case_of(re.search(r"case:[\w-]+", lines(error)[2])[0]), kernel)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise ValueError('told you')", "raised: it raised ValueError: told you"),
        ("pass", "unwritten: "),
    ],
)
def test_every_kind_of_failure_fails(write, body, kind):
    with pytest.raises(AssertionError, match=kind):
        hold(one(), write(f"OP = 'silu'\n\ndef run(out, x):\n    {body}\n"))


def test_a_crash_fails_the_test_and_does_not_end_it(write):
    error, met = failure(write(ABORTS))
    first, label, _ = lines(error)
    assert first.startswith("crashed: ")
    assert label == "silu float32 x=0x3:zeros"
    assert len(met) > 1
    assert hold(one((2, 2)), write(ABORTS)).kind is Kind.PASS, "the next case runs"


def test_a_kernel_that_hangs_fails(write):
    with pytest.raises(AssertionError, match="timeout: "):
        hold(
            one(),
            write("OP = 'silu'\n\ndef run(out, x):\n    while True:\n        pass\n"),
            limits=SandboxLimits(timeout=0.3),
        )


def test_laws_are_held_unless_they_are_left_out(write):
    """Right by itself; wrong in memory that does not begin at a multiple of 256, as the law `moved` tries it."""
    path = write(RIGHT + "    if x.__array_interface__['data'][0] % 256:\n        out[...] *= 2\n")
    with pytest.raises(AssertionError, match="mismatch"):
        hold(one(), path)
    assert hold(one(), path, laws=False).kind is Kind.PASS


def test_a_kernel_is_not_tried_on_what_it_does_not_claim(write):
    text = RIGHT + "    if x.dtype != np.float32:\n        raise TypeError('only float32')\n"
    path = write(text.replace("OP =", 'DTYPES = ("float32",)\nOP =', 1))
    assert hold(one(dtype="float32"), path).kind is Kind.PASS
    assert hold(one(dtype="float16"), path).kind is Kind.UNSUPPORTED


def test_dtypes_are_chosen_by_the_strategy(write):
    text = RIGHT + "    if x.dtype != np.float32:\n        raise TypeError('only float32')\n"
    path = write(text)

    @DRAWN
    @given(cases("silu", dtypes=("float32",)))
    def held(case):
        hold(case, path)

    held()
    assert lines(failure(path)[0])[0].startswith("raised: ")


# an op of one's own


@pytest.fixture
def twice(write):
    yield write(CONTRACT, "twice_contract.py")
    forget_contracts()


def test_an_op_of_ones_own(write, twice):
    path = write("OP = 'twice'\n\ndef run(x):\n    return x + x\n")
    add_contract(twice)

    @DRAWN
    @given(cases("twice"))
    def held(case):
        hold(case, path)

    held()
    error, _ = failure(write("OP = 'twice'\n\ndef run(x):\n    return x * 3\n", "wrong.py"), "twice")
    assert lines(error)[0].startswith(("mismatch: ", "nonfinite: "))


def test_the_command_names_the_contract_of_an_op_of_ones_own(write, twice, tmp_path, monkeypatch):
    add_contract(twice)
    with pytest.raises(AssertionError) as failed:
        hold(one((3,), "float16", "twice"), write("OP = 'twice'\n\ndef run(x):\n    return x * 3\n"))
    forget_contracts()
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(lines(failed.value)[2])[1:]) == 0


# what is refused


def test_a_kernel_of_another_op_is_refused(write):
    with pytest.raises(UsageError, match="is a kernel of silu, not of softmax"):
        hold(Case(op="softmax", tensors=one().tensors, attrs={"axis": -1}), write(RIGHT))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("gone.py", "gone.py does not exist"),
        ("notes.txt", "neither a .py nor a .cu file"),
        (functools.partial(print), "name its file"),
        (lambda out, x: None, "name its file|no function|does not import"),
        (len, "name its file"),
    ],
    ids=["gone", "text", "partial", "lambda", "builtin"],
)
def test_what_is_no_kernel_is_refused_in_one_sentence(kernel, said):
    with pytest.raises(UsageError, match=said) as refused:
        hold(one(), kernel)
    assert "\n" not in str(refused.value)


def test_a_function_in_a_function_is_refused():
    def run(out, x):
        out[...] = x

    with pytest.raises(UsageError, match=r"name its file, as 'my_kernel\.py:name'"):
        hold(one(), run)


def test_a_file_that_cannot_be_a_kernel_is_refused_and_may_be_repaired(write):
    with pytest.raises(UsageError, match=r"takes \(a, b, c\)"):
        hold(one(), write("OP = 'silu'\ndef run(a, b, c): pass\n"))
    assert hold(one(), write(RIGHT)).kind is Kind.PASS


def test_a_file_is_the_one_of_the_folder_of_now(write, tmp_path, monkeypatch):
    write(WRONG, "a/mine.py")
    write(RIGHT, "b/mine.py")
    monkeypatch.chdir(tmp_path / "b")
    assert hold(one(), "mine.py").kind is Kind.PASS
    monkeypatch.chdir(tmp_path / "a")
    with pytest.raises(AssertionError, match="mismatch"):
        hold(one(), "mine.py")


# the example of the module's own words


def example():
    doc = inspect.getdoc(testing)
    _, words = doc.split("for `@given`:\n")
    text = textwrap.dedent("".join(line + "\n" for line in words.splitlines() if line.startswith("    ") or not line))
    assert ast.parse(text).body
    return text.replace("softmax", "silu")


@pytest.fixture
def author(pytester):
    """Run a test file with a kernel beside it, as its author does."""

    def run(kernel, test):
        Path("my_silu.py").write_text(kernel)
        Path("test_mine.py").write_text(test.replace('"my_silu.py"', repr(str(Path("my_silu.py").resolve()))))
        return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "test_mine.py")

    return run


def test_a_failing_test_shows_what_is_wrong_and_not_the_tool(author):
    done = author(WRONG, example().replace("deadline=None", "deadline=None, database=None"))
    done.assert_outcomes(failed=1)
    said = done.stdout.str()
    assert "AssertionError: mismatch: out[0, 3] is 5, must be exactly 0" in said
    assert "see it    kassay show case:" in said
    assert "examiner.check" not in said, "no traceback through the tool"


def test_the_example_passes_a_clean_kernel_that_takes_its_time_to_load(author):
    author("import time\ntime.sleep(0.3)  # as torch does\n" + RIGHT, example()).assert_outcomes(passed=1)
