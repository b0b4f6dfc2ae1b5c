"""`assay`, and `cases` of a reference of one's own, in files of tests as their authors write them."""

import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import numpy.fft  # numpy loads it late and only once; pytester forgets what a run has loaded
import pytest
from _references import hosted

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.reference_place import Target
from kernel_assay.fuzz import testing
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.testing import assay, cases
from kernel_assay.oracles.catalog import forget_contracts
from kernel_assay.oracles.references.examples import examples_in, words_of

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("sandboxes", "no_references")
HEAD = """import os

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from kernel_assay.fuzz.testing import SandboxLimits, assay, cases, hold

CLEAN = {"database": None, "derandomize": True}


def twice(x: "float32[rows, cols]"):
    return x * 2


def right(x):
    return x + x


def wrong(x):
    return np.where(np.arange(x.shape[1]) == 3, 5, x + x).astype(x.dtype)


def aborts(x):
    if x.shape[1] > 2:
        os.abort()
    return x + x


"""


@pytest.fixture
def author(pytester):
    """Run a file of tests, as its author does; what pytest said."""

    def run(text, *words, name="test_mine.py"):
        Path(name).write_text(HEAD + textwrap.dedent(text))
        return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:randomly", name, *words)

    return run


def failure(done):
    """The three lines of the only failure: what is wrong, the case, the command."""
    said = [line.removeprefix("E").strip() for line in done.stdout.lines if line.startswith("E  ")]
    assert len(said) == 3, said
    assert said[0].startswith("AssertionError: ")
    return said[0].removeprefix("AssertionError: "), said[1].split(maxsplit=1)[1], said[2].split(maxsplit=2)[2]


def test_a_right_kernel_passes_and_a_wrong_one_fails_as_small_as_it_gets(author):
    done = author("""
        @settings(max_examples=500, **CLEAN)
        @assay(reference=twice)
        def test_wrong():
            return wrong

        @settings(max_examples=30, **CLEAN)
        @assay(reference=twice)
        def test_right():
            return right
    """)
    done.assert_outcomes(passed=1, failed=1)
    what, label, _ = failure(done)
    assert what.startswith("mismatch: out[0, 3] is 5, must be ")
    assert label.startswith("twice float32 x=1x4:zeros")


def test_the_command_shows_the_same_failure(author, capsys, tmp_path, monkeypatch):
    done = author("""
        @settings(max_examples=500, **CLEAN)
        @assay(reference=twice)
        def test_wrong():
            return wrong
    """)
    what, _, command = failure(done)
    forget_contracts()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(shlex.split(command)[1:]) == 0
    assert what.removeprefix("mismatch: ") in capsys.readouterr().out


def test_a_crash_fails_its_test_and_does_not_end_the_others(author):
    done = author("""
        @settings(max_examples=50, phases=[Phase.generate], **CLEAN)
        @assay(reference=twice)
        def test_crash():
            return aborts

        @settings(max_examples=10, **CLEAN)
        @assay(reference=twice)
        def test_after():
            return right
    """)
    done.assert_outcomes(passed=1, failed=1)
    assert failure(done)[0].startswith("crashed: ")


def test_it_takes_classes_parameters_fixtures_and_marks_as_other_tests_do(author):
    done = author("""
        @pytest.fixture(scope="module")
        def here():
            return __file__

        class TestThem:
            mark = 1

            @pytest.mark.parametrize("name", ["right", "wrong"])
            @settings(max_examples=200, **CLEAN)
            @assay(reference=twice)
            def test_it(self, here, name):
                assert self.mark
                return f"{here}:{name}"

        @pytest.mark.xfail(strict=True)
        @settings(max_examples=200, **CLEAN)
        @assay(reference=__file__ + ":twice")
        def test_known():
            return wrong
    """)
    done.assert_outcomes(passed=1, failed=1, xfailed=1)
    assert any("test_it[wrong]" in line for line in done.stdout.lines if line.startswith("FAILED"))


def test_settings_above_it_count_and_a_deadline_does_not(author):
    done = author("""
        met = []

        @settings(max_examples=7, deadline=1, phases=[Phase.generate], **CLEAN)
        @assay(reference=twice, limits=SandboxLimits(timeout=5))
        def test_right():
            met.append(1)
            return right

        def test_it_was_called_once():
            assert met == [1]
    """, "--hypothesis-show-statistics")  # fmt: skip
    done.assert_outcomes(passed=2)
    assert re.search(r"\b7 passing", done.stdout.str())


def test_an_example_says_what_nothing_else_does(author):
    done = author("""
        def scaled(x, w, ids, by):
            return x[ids] * w * by

        def mine(x, w, ids, by):
            out = x[ids] * w * by
            return np.where(np.arange(out.shape[1]) == 3, 5, out).astype(x.dtype)

        EXAMPLE = np.ones((4, 8), np.float32), np.ones(8, np.float32), np.array([0, 3, 1]), 0.5

        @settings(max_examples=500, deadline=None, **CLEAN)
        @given(cases(reference=scaled, example=EXAMPLE))
        def test_wrong(case):
            hold(case, mine)
    """)
    done.assert_outcomes(failed=1)
    command = next(line for line in done.stdout.lines if "see it" in line).partition("see it")[2]
    words = shlex.split(command)
    assert words[-1].endswith("test_mine.py:scaled(float32[4, 8], float32[8], int64[3] 0..3, 0.5)")
    forget_contracts()
    assert main(words[1:]) == 0


def test_a_built_in_op_and_its_dtypes(author):
    done = author("""
        def mine(x):
            assert x.dtype == np.float32
            with np.errstate(all="ignore"):
                return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)

        @settings(max_examples=20, **CLEAN)
        @assay("silu", dtypes=("float32",), max_elements=64)
        def test_silu():
            return mine
    """)
    done.assert_outcomes(passed=1)


def test_two_files_may_have_references_of_one_name(author):
    text = """
        @settings(max_examples=200, **CLEAN)
        @assay(reference=twice)
        def test_it():
            return {}
    """
    author(text.format("right")).assert_outcomes(passed=1)
    done = author(text.format("wrong"), name="test_other.py")
    done.assert_outcomes(failed=1)
    _, label, command = failure(done)
    assert label.startswith("twice_2 ")
    forget_contracts()
    assert main(shlex.split(command)[1:]) == 0, "where it is the only one it has its usual name"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@assay(reference=twice)\ndef test_it():\n    right\n", "test_it returns no kernel"),
        ("@assay(reference=twice)\ndef test_it():\n    return lambda x: x\n", "is no function of a module's own"),
        (
            "def odd(x):\n    return x\n\n@assay(reference=odd)\ndef test_it():\n    return right\n",
            "what its inputs are",
        ),
        ("@assay(reference='gone.py:f')\ndef test_it():\n    return right\n", "gone.py does not exist"),
        ("@assay(reference=twice)\ndef test_it():\n    return 'test_mine.py:gone'\n", "gone"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence_at_once(author, text, said):
    begun = time.monotonic()
    done = author(text)
    done.assert_outcomes(failed=1)
    assert any("UsageError" in line and said in line for line in done.stdout.lines), done.stdout.str()
    assert time.monotonic() - begun < 30, "it is not shrunk"


def test_an_op_or_a_reference_not_both_and_not_neither():
    for words in ({}, {"op": "silu", "reference": "ref.py:f"}):
        with pytest.raises(UsageError, match="name one, as"):
            cases(**words)
        with pytest.raises(UsageError, match="name one, as"):
            assay(**words)


@pytest.mark.slow
def test_it_runs_in_several_processes(author, pytester):
    author("")
    Path("test_mine.py").write_text(
        HEAD
        + "\n".join(
            "@settings(max_examples=10, phases=[Phase.generate], **CLEAN)\n@assay(reference=twice)\n"
            f"def test_{n}():\n    return {n}\n"
            for n in ("right", "aborts")
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_mine.py"],
        env={**os.environ, "PYTHONPATH": str(Path(testing.__file__).parents[2])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert re.search(r"1 failed, 1 passed", done.stdout), done.stdout + done.stderr


def test_a_file_of_tests_is_loaded_where_tests_do_nothing(author):
    """Whatever its tests are made of: the kernel's process has no Hypothesis strategies of ours, nor an oracle."""
    done = author("""
        from hypothesis import strategies as st
        from kernel_assay.fuzz import testing
        from kernel_assay.fuzz.generation.strategies import cases as older

        @settings(max_examples=5, **CLEAN)
        @given(case=older("silu").map(lambda case: case).filter(lambda case: True) | cases(reference=twice))
        def test_composed(case):
            assert case.op in {"silu", "twice"}

        class TestIt:
            @settings(max_examples=5, **CLEAN)
            @testing.assay(reference=twice)
            def test_right(self):
                return right
    """)
    done.assert_outcomes(passed=2)


def test_the_library_of_a_function_is_found_from_its_own_names(tmp_path):
    pytest.importorskip("torch")
    text = """
import numpy as np

def helper(x): return np.exp(x)

def f(x: "float32[n]"): return helper(x)

def g(x: "float32[n]"): return torch.exp(x)

def h(x: "float32[n]"): return x * 2
"""
    found = {name: hosted(tmp_path, text, name).message()["library"] for name in "fgh"}
    assert found == {"f": "numpy", "g": "torch", "h": "torch"}


def test_words_of_examples_are_read_again():
    given = (np.ones((2, 3), np.float16), np.array([4, -1]), np.zeros(0, np.int32), 0.5, True, "mean", [1, 2])
    words = words_of(given)
    assert words == "(float16[2, 3], int64[2] -1..4, int32[0], 0.5, True, 'mean', [1, 2])"
    tensor, ids, none, *rest = examples_in("ref.py:f", words)
    assert (tensor.dtype, tensor.shape) == ("float16", (2, 3))
    assert (ids.dtype, ids.shape, ids.min(), ids.max()) == ("int64", (2,), -1, 4)
    assert (none.shape, rest) == ((0,), [0.5, True, "mean", [1, 2]])
    assert words_of((np.float32(1),)) == "(float32[])"
    with pytest.raises(UsageError, match="the example 'float32' is not understood"):
        examples_in("ref.py:f", "(float32)")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a (b)/ref.py:f(float32[4], 2)", ("a (b)/ref.py", "f", "(float32[4], 2)", True)),
        ("ref.py", ("ref.py", "", "", True)),
        ("pkg.mod:f", ("pkg.mod", "f", "", False)),
        ("pkg.mod:f(1)", ("pkg.mod", "f", "(1)", False)),
    ],
)
def test_a_reference_is_named_with_or_without_examples(text, parts):
    target = Target.read(text)
    assert (target.where, target.name, target.examples, target.is_file) == parts
    assert str(target) == text


def test_the_example_of_the_module_runs(author, tmp_path):
    pytest.importorskip("torch")
    words, _ = inspect.getdoc(testing).split("`assay` is for")
    text = textwrap.dedent("".join(line + "\n" for line in words.splitlines() if line.startswith("    ") or not line))
    Path("test_doc.py").write_text(
        text.replace("@assay", "from hypothesis import settings\n@settings(max_examples=10)\n@assay")
    )
    assert "my_kernel" in text
    done = author("", "test_doc.py")
    done.assert_outcomes(passed=1)
