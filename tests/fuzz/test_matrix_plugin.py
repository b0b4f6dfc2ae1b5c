"""pytest takes a matrix: every cell is a test, and what it says is what `kassay matrix` says."""

from pathlib import Path

import pytest
from _silu import RIGHT, WRONG

from kernel_assay.corpus.storage.file_store import Store

pytest_plugins = ["pytester"]
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
TEXT = """
ops: [silu]
subjects: [mine.py]
dtypes: [float32, float16]
shapes: [wide, thin]
shape_sets: {wide: [{rows: 2, cols: 5}], thin: [{rows: 4, cols: 2}]}
cases: 6
"""
NAME = "silu/float32/wide/any/cpu/mine.py"


@pytest.fixture
def ran(pytester):
    """Run pytest in a project with a faulty kernel and a matrix of it."""
    Path("mine.py").write_text(WRONG)
    Path("matrix.yaml").write_text(TEXT)
    Path("test_mine.py").write_text("def test_one():\n    pass\n")
    return lambda *words: pytester.runpytest_inprocess(*QUICK, *words)


def test_a_matrix_is_taken_if_somebody_names_it(ran):
    ran().assert_outcomes(passed=1)
    Path("other.yaml").write_text(TEXT)
    assert "no tests ran" in ran("other.yaml").stdout.str(), "it may be of another tool"
    Path("pytest.ini").write_text("[pytest]\nkassay_matrix = other.yaml\n")
    assert len([line for line in ran("--collect-only", "-q").outlines if "::silu/" in line]) == 4


def test_each_cell_is_a_test(ran):
    done = ran("matrix.yaml", "-k", "float32")
    done.assert_outcomes(passed=1, failed=1, deselected=2)
    said = done.stdout.str()
    (finding,) = Store(Path("corpus")).findings("silu")
    assert f"{NAME}: failed\nmismatch: out[0, 3] is 5" in said
    assert f"see it    kassay show {finding.id}" in said
    assert "Traceback" not in said
    assert "pytest_plugin.py" not in said, "no traceback through the tool"


def test_a_cell_is_chosen_like_any_test(ran):
    ran(f"matrix.yaml::{NAME}").assert_outcomes(failed=1)


def test_skips_and_expectations_are_those_of_pytest(ran):
    more = "skip: [{dtype: float16, reason: not yet}]\nxfail: [{shapes: wide, issue: '#7', until: 2099-01-01}]\n"
    Path("matrix.yaml").write_text(TEXT + more)
    done = ran("matrix.yaml", "-rsx")
    done.assert_outcomes(passed=1, xfailed=1, skipped=2)
    assert "not yet" in done.stdout.str()
    assert "(#7, until 2099-01-01)" in done.stdout.str()
    Path("mine.py").write_text(RIGHT)
    done = ran("matrix.yaml")
    done.assert_outcomes(passed=1, failed=1, skipped=2)
    assert "take the entry out of xfail" in done.stdout.str()


def test_what_cannot_be_run_is_no_pass(ran):
    Path("mine.py").write_text("import no_such_module\n" + RIGHT)
    done = ran("matrix.yaml", "-k", "float16 and thin")
    done.assert_outcomes(failed=1, deselected=3)
    assert "No module named 'no_such_module'" in done.stdout.str()


def test_a_mistake_is_one_sentence(ran):
    Path("matrix.yaml").write_text("ops: [silu]\ncase: 3\n")
    done = ran("matrix.yaml")
    done.assert_outcomes(errors=1)
    assert "matrix.yaml, line 2, case: there is no such key" in done.stdout.str()
    assert "Traceback" not in done.stdout.str()
