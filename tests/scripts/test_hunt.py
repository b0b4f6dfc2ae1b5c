"""The hunt: findings are told apart by what a person has looked at, and programs show what the page says."""

import ast
import contextlib
import importlib
import io
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from test_nightly import module_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
PROGRAMS = sorted((SCRIPTS / "found").glob("[!_]*.py"))
PAGE = (ROOT / "docs" / "found.md").read_text("utf-8")
HERE = {"torch", "numpy", "kernel_assay"}
"""What programs may need to be run in this test."""
WRONG = 'BACKEND = "numpy"\nDTYPES = ("float32",)\n\n\ndef row_max(x):\n    return x[:, 0].copy()\n'
ENTRY = '[[numpy_first]]\nlibrary = "numpy"\nops = ["row_max"]\nkinds = {kinds}\nis = "{what}"\n'


@pytest.fixture
def hunt(monkeypatch, tmp_path):
    """The script, whose subjects are one kernel that is wrong."""
    monkeypatch.chdir(tmp_path)
    made = module_of(SCRIPTS / "hunt", monkeypatch)
    (tmp_path / "numpy_calls.py").write_text(WRONG)
    (tmp_path / "known.toml").write_text("")
    monkeypatch.setattr(made, "CALLS", tmp_path)
    monkeypatch.setattr(made, "KNOWN", tmp_path / "known.toml")
    return made


def searched(hunt, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["hunt", "numpy", "--cases", "32", "--seed", "1"])
    code = hunt.main()
    return code, capsys.readouterr().out.splitlines()


def test_what_nobody_has_looked_at_is_news_and_what_is_known_is_not(hunt, monkeypatch, capsys, tmp_path):
    code, out = searched(hunt, monkeypatch, capsys)
    assert code == 1
    news = [line for line in out if line.startswith("  new: ")]
    assert news
    assert out[-1] == f"hunt: 1 libraries, 1 ops, {len(news)} defects (0 known), 0 unpromised"
    kinds = str(sorted({line.split()[1] for line in news}))
    for what, end in (("defect", "1 defects (1 known), 0"), ("unpromised", "0 defects (0 known), 1")):
        (tmp_path / "known.toml").write_text(ENTRY.format(kinds=kinds, what=what))
        tally = hunt.Tally(hunt.known())
        with hunt.api.Store(tmp_path / "out" / "hunt") as store:
            for finding in store.findings("row_max"):
                assert tally._told(hunt.Task("numpy", "2", "row_max"), finding).startswith(f"{what} (numpy_first): ")
                assert tally._told(hunt.Task("other", "2", "row_max"), finding).startswith("new: ")
        assert f"{end} unpromised" in tally.line().replace(f"{int(end[0]) + tally.new} defects", f"{end[0]} defects")


def test_a_library_that_is_not_there_is_said_and_one_without_a_file_is_refused(hunt, capsys, tmp_path):
    (tmp_path / "no_such_library_calls.py").write_text(WRONG)
    assert list(hunt.tasks(["no_such_library"], "", "cpu")) == []
    assert "no_such_library is not installed here" in capsys.readouterr().err
    with pytest.raises(hunt.UsageError, match="pandas has no file"):
        list(hunt.tasks(["pandas"], "", "cpu"))
    with pytest.raises(hunt.UsageError, match="is no interpreter"):
        list(hunt.tasks(["no_such_library"], str(tmp_path / "nowhere"), "cpu"))


def test_a_gpu_is_asked_of_libraries_that_have_one_only(monkeypatch):
    hunt = module_of(SCRIPTS / "hunt", monkeypatch)
    there = list(hunt.tasks([], "", "cuda"))
    assert {one.library for one in there} <= hunt.ON_GPU
    assert {one.settings().device for one in there} == {"cuda"}
    assert not {one.library for one in hunt.tasks([], "", "cpu")} & {*hunt.ON_GPU_ONLY}
    for name, device in (("scipy", "cuda"), ("cudnn", "cpu")):
        with pytest.raises(hunt.UsageError, match=f"{name} does not run on --device {device}"):
            next(hunt.tasks([name], "", device))


def test_each_function_of_a_subject_that_is_searched_is_an_op_and_each_reference_is_used(monkeypatch):
    made = module_of(SCRIPTS / "hunt", monkeypatch)
    ours = set(made.functions(ast.parse(made.REFERENCES.read_text("utf-8"))))
    calls = {f: set(made.functions(ast.parse(f.read_text("utf-8")))) for f in made.CALLS.glob("*_calls.py")}
    ops = ours | made.builtin_ops()
    assert [f.name for f, names in calls.items() if not names & ops] == []
    assert ours - set.union(*calls.values()) == set()


def imports(path):
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    names = [n.names[0].name if isinstance(n, ast.Import) else n.module for n in nodes if hasattr(n, "names")]
    return {name.partition(".")[0] for name in names if name}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_shows_what_it_says_or_that_it_is_not_in_this_version(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    for name in imports(path) - {"math", "os", "pathlib", "_seen"}:
        if name not in HERE:
            pytest.skip(f"needs {name}, which is not part of the project's environment")
        importlib.import_module(name)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as end:
        runpy.run_path(str(path))
    unseen = r"not (in this version|on this processor, which has no \w+): .+\n"
    assert re.fullmatch({0: r"seen: .+\n", 3: unseen}[end.value.code], said.getvalue())


def test_a_processor_that_lacks_something_is_no_version(monkeypatch, capsys):
    monkeypatch.syspath_prepend(SCRIPTS / "found")
    tell = runpy.run_path(str(SCRIPTS / "found" / "_seen.py"))["tell"]
    for seen, lacks in ((True, "AMX"), (False, "AMX"), (False, "")):
        with pytest.raises(SystemExit, match="0" if seen else "3"):
            tell(seen, "1 NaN", lacks)
    assert capsys.readouterr().out == (
        "seen: 1 NaN\nnot on this processor, which has no AMX: 1 NaN\nnot in this version: 1 NaN\n"
    )


def test_a_program_without_its_library_says_so_in_one_sentence(monkeypatch, capsys):
    monkeypatch.syspath_prepend(SCRIPTS / "found")
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SCRIPTS / "found" / "jax_cbrt.py"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("this program needs a library that is not here: ")
    assert said.err.count("\n") == 1


def test_the_page_has_each_program_and_each_defect_that_the_hunt_knows():
    assert [path.stem for path in PROGRAMS if f"`{path.stem}`" not in PAGE] == []
    known = tomllib.loads((SCRIPTS / "hunt_kernels" / "known.toml").read_text("utf-8"))
    defects = {name for name, lines in known.items() if lines[0]["is"] == "defect"}
    assert defects <= {path.stem for path in PROGRAMS}
    assert {line["is"] for lines in known.values() for line in lines} == {"defect", "unpromised"}
