"""Kernels in another interpreter: with numpy alone, and with two versions of a library side by side."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _command import refused
from pydantic_core import from_json, to_json

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.process.child import HOME
from kernel_assay.corpus.process.interpreter import COMPILED, STAND_INS, Interpreter, interpreter, path_of
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.testing import hold
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of, load_contracts

OPS = sorted(load_contracts())
PAGE = Path(__file__).resolve().parents[2] / "docs" / "another-interpreter.md"
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
SILU = """import {}numpy as np

def silu(x):
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out = (w / (1 + np.exp(-w))).astype(x.dtype)
    {}
    return out
"""
WRONG, CRASH = "out[:, 3:4] = 5", "x.shape[1] == 3 and os.abort()"
KERNEL = """import mylib

OP, DTYPES = "silu", ("float32",)


def run(x):
    return mylib.silu(x)
""".replace('OP, DTYPES = "silu", ("float32",)', 'OP = "silu"\nDTYPES = ("float32",)')


@pytest.fixture
def environment(tmp_path):
    """Make a virtual environment with numpy, and maybe a version of `mylib`; its folder."""

    def made(name, library="", packages=("numpy", "numpy.libs")):
        folder = tmp_path / name
        site = folder / SITE
        site.mkdir(parents=True)
        (folder / "bin").mkdir()
        program = Path(sys.executable).resolve()
        (folder / "bin" / "python").symlink_to(program)
        (folder / "pyvenv.cfg").write_text(f"home = {program.parent}\ninclude-system-site-packages = false\n")
        ours = Path(np.__file__).parents[1]
        for package in packages:
            if (ours / package).exists():
                (site / package).symlink_to(ours / package)
        if library:
            (site / "mylib.py").write_text(library)
        return folder

    return made


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def ones(columns):
    x = TensorRecipe(shape=(1, columns), dtype="float32", fill=Fill(distribution="ones"))
    return Case(op="silu", tensors={"x": x})


def test_numpy_is_enough_and_nothing_else_of_ours_is_there(environment, mine, sandboxes):
    place = environment("plain", SILU.format("", ""))
    mine.write_text(
        KERNEL + "\n\nimport importlib.util\nimport sys\n\n\ndef there(x):\n"
        f"    assert sys.prefix == {str(place)!r}, sys.prefix\n"
        "    assert importlib.util.find_spec('hypothesis') is None\n"
        "    assert importlib.util.find_spec('torch') is None\n"
        "    return run(x)\n"
    )
    for kernel in (f"{mine}:run@{place}", f"{mine}:there@{place}/bin/python"):
        assert hold(ones(5), kernel).kind is Kind.PASS


def test_a_kernel_has_the_pydantic_that_is_installed_for_it(environment, mine):
    """Whichever it is: the worker stands on none."""
    place = environment("venv-a", SILU.format("pydantic, ", "assert pydantic.VERSION == '1.10'"))
    (place / SITE / "pydantic").mkdir()
    (place / SITE / "pydantic" / "__init__.py").write_text("VERSION = '1.10'\n")
    assert hold(ones(5), f"{mine}@{place}").kind is Kind.PASS


def test_two_versions_of_a_library_stand_side_by_side(environment, mine, fuzz, tmp_path):
    a, b = environment("venv-a", SILU.format("", WRONG)), environment("venv-b", SILU.format("", ""))
    _, command, shown = re.findall(r"```(?:sh|text)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[:3]
    code, out, _ = fuzz(*command.split()[1:], "--quiet")
    assert (code, "silu/mine@venv-b: " in out) == (1, False), out
    assert all(line.removesuffix("...").rstrip() in out for line in shown.splitlines()), "as the page shows it"
    finding = Store(tmp_path / "corpus").findings()[0]
    assert finding.subject.python == str(a / "bin" / "python")
    _, out, _ = fuzz("show", finding.id)
    assert f"  python    {a}/bin/python\n" in out
    assert f"what is installed for {a}/bin/python" in out
    code, out, _ = fuzz("replay", finding.id)
    assert (code, "1 replayed: 1 fails" in out) == (1, True)
    code, out, _ = fuzz("replay", finding.id, "--subject", "mine.py", "--python", b)
    assert (code, "does not fail any more" in out) == (0, True)
    a.rename(tmp_path / "gone")
    refused(fuzz("replay", finding.id), "silu/mine@venv-a", f"the interpreter {a}/bin/python does not exist")


def test_a_crash_in_one_interpreter_is_none_in_the_other(environment, mine):
    for name, does in (("venv-a", CRASH), ("venv-b", "pass")):
        environment(name, SILU.format("os, ", does))
    subjects = [user_subject(f"{mine}@{name}", ("silu",)) for name in ("venv-a", "venv-b")]
    keys = tuple(s.key for s in subjects)
    with Examiner(subjects) as examiner:
        checked = examiner.check([CheckRequest(ones(n), keys, ()) for n in (2, 3, 4)])
        kinds = [[one.verdicts[key].kind for key in keys] for one in checked]
        assert examiner.sandbox.deaths >= 1
        examiner.sandbox.renew(*keys)
        again = examiner.check([CheckRequest(ones(2), keys[1:], ())])
        assert [v.kind for v in again[0].verdicts.values()] == [Kind.PASS]
        twin = examiner.twin()
        try:
            assert twin.check([CheckRequest(ones(3), keys, ())])[0].verdicts[keys[0]].kind is Kind.CRASHED
        finally:
            twin.sandbox.close()
    assert kinds == [[Kind.PASS, Kind.PASS], [Kind.CRASHED, Kind.PASS], [Kind.PASS, Kind.PASS]]


def test_doctor_says_what_an_interpreter_has_and_lacks(environment, fuzz):
    code, out, _ = fuzz("doctor", "--python", environment("plain"))
    assert (code, f"lent to it: {', '.join(COMPILED)}\n" in out) == (0, True)
    rows = " ".join(out.split())
    assert "numpy ready" in rows
    assert "lacks torch: run" in rows
    code, out, _ = fuzz("doctor", "--python", environment("bare", packages=()))
    assert (code, "lacks numpy: run" in " ".join(out.split())) == (1, True)


def test_what_an_interpreter_lacks_is_said_before_anything_runs(environment, mine, fuzz):
    bare, plain = environment("bare", packages=()), environment("plain")
    answer = fuzz("run", "--subject", "mine.py", "--python", bare, "--cases", "1")
    refused(answer, f"silu/mine@bare cannot run: {bare}/bin/python is Python", "lacks numpy", "pip install numpy")
    mine.write_text(KERNEL.replace("import mylib", "import torch\nimport mylib"))
    refused(fuzz("run", "--subject", f"mine.py@{plain}", "--cases", "1"), "lacks torch")
    refused(fuzz("run", "--subject", "mine.py@nowhere", "--cases", "1"), "nowhere does not exist")


def test_compiled_packages_are_lent_to_the_same_version_only(environment):
    same = interpreter(path_of(str(environment("plain"))))
    assert set(same.lent) == set(COMPILED)
    assert same.goes_without == {}
    other = Interpreter(same.path, "cpython-399", (3, 99, 0), same.has)
    assert (other.lent, other.lacks(), other.refusal()) == ({}, [], "")
    assert set(other.goes_without) == {"ml_dtypes", "llvmlite"}
    assert "is Python 3.99.0 and lacks torch" in other.refusal(["torch"])
    whole = Interpreter(same.path, "cpython-399", (3, 99, 0), same.has | set(COMPILED))
    assert (whole.lent, whole.goes_without, whole.refusal()) == ({}, {}, "")
    assert "needs 3.11 or newer" in Interpreter(same.path, "cpython-38", (3, 8, 0), same.has).refusal()


@pytest.fixture
def other_version(monkeypatch):
    """Interpreters that nothing compiled of ours can be lent to."""
    monkeypatch.setattr(Interpreter, "is_like_ours", property(lambda _: False))


@pytest.mark.usefixtures("other_version")
def test_numpy_is_enough_in_another_version_of_python(environment, mine, fuzz):
    words = ("--peer", "none", "--cases", 96, "--seed", 3, "--quiet")
    place = environment("plain", SILU.format("", ""))
    mine.write_text(
        KERNEL.replace('DTYPES = ("float32",)\n', "") + "\nNUMERICS = {'intermediates': {'all': 'input'}}\n"
    )
    code, out, err = fuzz("run", "--subject", f"mine.py@{place}", *words)
    assert (code, err) == (0, "")
    assert "bfloat16 needs ml_dtypes, which its interpreter has not" in out
    code, out, _ = fuzz("doctor", "--python", place)
    assert (code, "without ml_dtypes: cases of bfloat16 and float8 are declined" in out) == (0, True)
    (place / SITE / "mylib.py").write_text(SILU.format("", WRONG))
    code, out, _ = fuzz("run", "--subject", f"mine.py@{place}", *words)
    assert (code, "is 5, must be" in out) == (1, True)
    (place / SITE / "mylib.py").write_text(SILU.format("os, ", CRASH))
    assert "crashed" in fuzz("run", "--subject", f"mine.py@{place}", *words)[1]


RECORDS = """
import sys
sys.path[:0] = [{stand_ins!r}, {home!r}]
import pydantic_core, pydantic
assert pydantic.__file__.startswith({stand_ins!r})
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.execution import Execution
kinds = dict(Case=Case, Subject=Subject, Execution=Execution)
for line in sys.stdin:
    kind, said = pydantic_core.from_json(line)
    made = kinds[kind].model_validate(said)
    print(pydantic_core.to_json([made, made.id, made.but().canonical(), getattr(made, "label", "")]).decode())
"""


def test_records_are_the_same_without_pydantic():
    """Whatever a worker reads, and says: recipes of all ops, subjects, what came of a run."""
    stream = (
        propose([Target(contract_of(op), contract_of(op).dtypes)], 1, i, Elites()) for op in OPS for i in range(6)
    )
    records = [("Case", one.case) for one in stream]
    records += [("Subject", subject) for op in OPS for subject in subjects_of(op)]
    report = OutputReport(name="out", shape=(2, 3), dtype="float32", differing_bits=(1, 2))
    records += [("Execution", Execution(status="faulted", subject="a/b", fault="race", outputs=(report, report)))]
    records += [("Case", records[0][1].but(attrs={"scale": float("inf"), "eps": 1e-5, "n": 3, "on": True, "s": "inf"}))]
    program = RECORDS.format(stand_ins=str(STAND_INS), home=str(HOME))
    given = "\n".join(to_json(one).decode() for one in records)
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [from_json(line) for line in done.stdout.splitlines()]
    assert len(told) == len(records)
    for (_, record), (plain, name, canonical, label) in zip(records, told, strict=True):
        assert type(record).model_validate(plain).canonical() == record.canonical() == canonical
        assert (name, label) == (record.id, getattr(record, "label", ""))


@pytest.mark.parametrize("does", ["exit 3", "exit 0", "echo 3", "echo '[1, 2]'", "echo '[1, 2, 3]'"])
def test_what_is_no_interpreter_is_refused(tmp_path, does):
    program = tmp_path / "other"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    with pytest.raises(UsageError) as refusal:
        interpreter(str(program))
    assert str(refusal.value) == f"{program} is no interpreter of Python: it does not answer as one does"


def test_a_program_that_does_not_answer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assay.corpus.process.interpreter._SECONDS", 0.2)
    program = tmp_path / "sleeps"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"sleeps does not say within 0\.2 s which Python it is"):
        interpreter(str(program))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--subject", "mine.py", "--python", ""), "--python is empty"),
        (("--python", "venv"), "--python is the interpreter of a --subject, but none is named"),
        (("--subject", "mine.py@"), "mine.py@ names no interpreter behind the @"),
    ],
)
def test_an_interpreter_for_nobody_or_without_a_name_is_refused(mine, fuzz, words, said):
    code, _, err = fuzz("run", "silu", *words)
    assert (code, said in err) == (2, True), err


def test_a_file_may_have_an_at_in_its_name(tmp_path, environment):
    (tmp_path / "a@b.py").write_text(KERNEL)
    plain = user_subject(str(tmp_path / "a@b.py"), ("silu",))
    assert (plain.name, plain.python, "python" in plain.plain()) == ("a@b", "", False)
