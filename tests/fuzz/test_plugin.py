"""pytest replays a corpus: every finding is a test, and what it says is what `replay` says."""

import json
import os
import re
import shlex
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from _command import snapshot
from _silu import RIGHT, WRONG, finding_of

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.storage.file_store import Store, load_record
from kernel_assay.fuzz.__main__ import main
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import add_contract, forget_contracts

pytest_plugins = ["pytester"]
CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 5), dtype="float32", fill=Fill(distribution="ones"))})
DAY = timedelta(days=1)
TODAY = datetime.now(UTC).date()
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
INI = "[pytest]\nkassay_corpus = corpus/regressions\n"


@pytest.fixture
def project(pytester):
    """An empty project that replays its committed findings, and a faulty kernel in it."""
    Path("pytest.ini").write_text(INI)
    kernel(WRONG)
    return pytester


def kernel(text):
    Path("mine.py").write_text(text)


@pytest.fixture
def replayed(project):
    """Run pytest in the project."""
    return lambda *words: project.runpytest_inprocess(*QUICK, *words)


@pytest.fixture(scope="module")
def met(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "mine.py"
    path.write_text(WRONG)
    return finding_of(path, CASE, state=State.CONFIRMED)


@pytest.fixture
def commit(project, met):
    """Commit the finding of the project's kernel, changed in some fields; its file."""

    def promoted(**changes):
        subject = met.subject.but(path=str(Path("mine.py").resolve()))
        with Store(Path("corpus")) as store:
            path = store.promote(met.but(**{"subject": subject, **changes}))
        if "state" in changes:
            path.write_text(json.dumps({**json.loads(path.read_text()), "state": changes["state"].value}))
        return path

    return promoted


# what is a test


def test_without_the_setting_nothing_is_collected(replayed, commit):
    commit()
    Path("pytest.ini").write_text("[pytest]\n")
    Path("test_mine.py").write_text("def test_one():\n    pass\n")
    replayed().assert_outcomes(passed=1)


def test_without_the_setting_the_tool_is_not_even_loaded(project):
    """pytest runs of others must not wait for it."""
    Path("pytest.ini").write_text("[pytest]\n")
    names = ["corpus", "oracles", "kernels", "numpy", "numba"]
    Path("test_mine.py").write_text(
        f"import sys\n\ndef test_one():\n    assert not [n for n in {names} if n in sys.modules]\n"
    )
    project.runpytest_subprocess(*QUICK).assert_outcomes(passed=1)


def test_findings_stand_among_other_tests(replayed, commit):
    commit()
    Path("test_mine.py").write_text("def test_one():\n    pass\n")
    done = replayed()
    done.assert_outcomes(passed=1, failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED


def test_a_test_is_named_by_its_subject_and_its_case(replayed, commit):
    path = commit()
    done = replayed("--collect-only", "-q")
    assert f"{path}::silu/mine[{CASE.label}]" in done.outlines


def test_a_test_is_chosen_like_any_other(replayed, commit):
    path = commit()
    other = shutil.copy(path, path.with_name("other.json"))
    replayed("-k", "silu/mine").assert_outcomes(failed=2)
    replayed("-k", "softmax").assert_outcomes(deselected=2)
    replayed(other).assert_outcomes(failed=1)
    replayed(f"{path}::silu/mine[{CASE.label}]").assert_outcomes(failed=1)


def test_only_the_named_folders_are_replayed(replayed, commit):
    path = commit()
    Path("elsewhere").mkdir()
    shutil.copy(path, "elsewhere/finding.json")
    Path("elsewhere/package.json").write_text('{"name": "not ours"}')
    Path("corpus/regressions/README.md").write_text("words")
    replayed().assert_outcomes(failed=1)
    Path("pytest.ini").write_text(INI.rstrip() + " no_such_folder\n")
    replayed().assert_outcomes(failed=1)


def test_several_folders_may_be_named(replayed, commit):
    path = commit()
    Path("elsewhere").mkdir()
    shutil.copy(path, "elsewhere/finding.json")
    Path("pytest.ini").write_text(INI.rstrip() + " elsewhere\n")
    replayed().assert_outcomes(failed=2)


def test_the_setting_stands_in_pyproject_as_well(replayed, commit):
    commit()
    Path("pytest.ini").unlink()
    Path("pyproject.toml").write_text('[tool.pytest.ini_options]\nkassay_corpus = ["corpus/regressions"]\n')
    replayed().assert_outcomes(failed=1)


def test_a_bare_case_is_a_test_for_every_subject_of_the_house(replayed, monkeypatch):
    monkeypatch.setattr(type(loader_of("torch")), "unavailable", lambda _: "it takes seconds to load")
    Path("corpus/regressions").mkdir(parents=True)
    Path("corpus/regressions/case.json").write_text(json.dumps(CASE.plain()))
    clean = [s for s in subjects_of("silu") if not s.planted and not loader_of(s.backend).unavailable()]
    replayed().assert_outcomes(passed=len(clean))


# what becomes of it


def test_what_fails_fails_in_words(replayed, commit, capsys):
    path = commit()
    before = snapshot()
    done = replayed()
    done.assert_outcomes(failed=1)
    said = done.stdout.str()
    assert "silu/mine: fails\n" in said
    assert "mismatch: out[0, 3] is 5, must be 0.731058579 to within 3.08e-07" in said
    assert f"case      {CASE.label}" in said
    assert "Traceback" not in said
    assert "pytest_plugin.py" not in said, "no traceback through the tool"
    assert snapshot() == before
    command = re.search(r"see it +(kassay show .*)", said)[1]
    assert str(path) in command
    assert main(shlex.split(command)[1:]) == 0
    assert "out[0, 3] is 5" in capsys.readouterr().out


def test_the_command_can_be_pasted_whatever_the_folder_is_called(replayed, commit):
    path = commit()
    Path("my corpus").mkdir()
    shutil.move(path, "my corpus/finding.json")
    Path("pytest.ini").write_text('[pytest]\nkassay_corpus = "my corpus"\n')
    done = replayed()
    done.assert_outcomes(failed=1)
    command = re.search(r"see it +(kassay show .*)", done.stdout.str())[1]
    assert main(shlex.split(command)[1:]) == 0


@pytest.mark.parametrize("state", [State.OPEN, State.REGRESSION])
def test_what_was_repaired_passes(replayed, commit, state):
    commit(state=state)
    kernel(RIGHT)
    before = snapshot()
    done = replayed()
    done.assert_outcomes(passed=1)
    assert (done.ret, snapshot()) == (0, before)


def test_a_regression_that_comes_back_fails(replayed, commit):
    commit(state=State.REGRESSION)
    replayed().assert_outcomes(failed=1)


@pytest.mark.parametrize("dated", [False, True])
def test_what_is_expected_to_fail_is_an_xfail(replayed, commit, dated):
    today = datetime.now(UTC).date()  # all tests together may run into the next day
    commit(expect="fail", reason="issue 7", expires=today.isoformat() if dated else "")
    done = replayed("-rx")
    done.assert_outcomes(xfailed=1)
    assert done.ret == 0
    assert "out[0, 3] is 5" in done.stdout.str()


def test_when_its_time_is_over_it_fails(replayed, commit):
    commit(expect="fail", reason="issue 7", expires=(TODAY - DAY).isoformat())
    done = replayed()
    done.assert_outcomes(failed=1)
    assert "silu/mine: fails, and is no longer expected to\n" in done.stdout.str()


def test_what_started_to_pass_fails_so_that_somebody_takes_the_expectation_back(replayed, commit):
    path = commit(expect="fail", reason="issue 7")
    kernel(RIGHT)
    done = replayed()
    done.assert_outcomes(failed=1)
    assert "silu/mine: started to pass\n" in done.stdout.str()
    assert main(["expect-failure", load_record(path).id, "--clear"]) == 0
    replayed().assert_outcomes(passed=1)


def test_what_cannot_be_told_is_skipped(replayed, commit):
    commit()
    kernel(RIGHT + "    raise NotImplementedError('not today')\n")
    done = replayed("-rs")
    done.assert_outcomes(skipped=1)
    assert "not today" in done.stdout.str()


def test_other_inputs_than_those_that_failed_fail(replayed, commit):
    commit(input_digest="0" * 32)
    kernel(RIGHT)
    done = replayed()
    done.assert_outcomes(failed=1)
    assert "silu/mine: recipe drifted\n" in done.stdout.str()


def test_a_planted_bug_is_expected_and_must_not_be_lost(replayed, commit):
    planted = WRONG.replace("OP =", 'PLANTED = "mismatch"\nOP =', 1)
    kernel(planted)
    commit(subject=user_subject("mine.py", ()))
    replayed().assert_outcomes(xfailed=1)
    kernel(planted.replace("= 5", "*= 1"))
    replayed().assert_outcomes(failed=1)


def test_a_crash_is_one_failure_and_the_rest_goes_on(replayed, commit):
    commit()
    case = CASE.but(tensors={"x": CASE.tensors["x"].but(shape=(2, 4))})
    commit(case=case, signature=finding_of("mine.py", case).signature.but(error_pattern="other"), input_digest="")
    kernel(RIGHT.replace("np\n", "np, os\n", 1) + "    if x.shape[1] == 5:\n        os.abort()\n")
    done = replayed()
    done.assert_outcomes(passed=1, failed=1)
    assert "crashed: " in done.stdout.str()


def test_a_finding_of_an_op_of_ones_own(replayed, commit):
    """Its contract is found by what the finding says of it."""
    Path("twice.py").write_text(
        "from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output\n\nCONTRACT = Contract(\n"
        '    name="twice", summary="twice x", dims={"n": Dim(0, 64)}, inputs={"x": Input(("n",))},\n'
        '    outputs={"out": Output(("n",), like="x")}, variants=({"x": "float16"},),\n'
        '    reference=lambda x: {"out": x * 2.0},\n)\n'
    )
    kernel("OP = 'twice'\n\ndef run(x):\n    return x * 3\n")
    add_contract(Path("twice.py"))
    x = TensorRecipe(shape=(3,), dtype="float16", fill=Fill(distribution="ones"))
    with Store(Path("corpus")) as store:
        store.promote(finding_of("mine.py", Case(op="twice", tensors={"x": x}), state=State.CONFIRMED))
    forget_contracts()
    try:
        done = replayed()
        done.assert_outcomes(failed=1)
        assert "mismatch: out[0] is 3, must be 2 to within 2.38e-07" in done.stdout.str()
    finally:
        forget_contracts()


# what cannot be a test


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"a": 1}', "neither a finding"),
        (json.dumps(CASE.but(op="nope").plain()), "op 'nope' is not known"),
    ],
)
def test_a_file_that_is_no_finding_is_an_error_in_one_sentence(replayed, commit, text, said):
    commit()
    Path("corpus/regressions/spoiled.json").write_text(text)
    done = replayed("--continue-on-collection-errors")
    done.assert_outcomes(errors=1, failed=1)
    assert said in done.stdout.str()
    assert "spoiled.json" in done.stdout.str()
    assert "Traceback" not in done.stdout.str()


def test_a_kernel_that_is_gone_is_an_error_and_not_a_pass(replayed, commit):
    commit()
    Path("mine.py").unlink()
    done = replayed()
    done.assert_outcomes(errors=1)
    assert "mine.py does not exist" in done.stdout.str()
    assert done.ret != 0


def test_a_kernel_that_does_not_load_is_one_sentence(replayed, commit):
    commit()
    kernel("import no_such_module\n" + WRONG)
    done = replayed()
    done.assert_outcomes(failed=1)
    assert "no_such_module" in done.stdout.str()
    assert "check.py" not in done.stdout.str()


def test_no_sandbox_is_left_behind(own_zygotes, replayed, commit):
    def children():
        return {p.name for p in Path("/proc").glob("[0-9]*") if is_child(p)}

    def is_child(process):
        try:
            return process.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        except OSError:
            return False

    commit()
    before = children()
    replayed().assert_outcomes(failed=1)
    assert children() <= before
