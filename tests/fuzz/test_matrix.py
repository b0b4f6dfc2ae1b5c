"""`kassay matrix`: which cells a definition has, what becomes of each, and what is said of it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from _command import refused
from _silu import RIGHT, WRONG

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.matrix_journal import MatrixJournal
from kernel_assay.corpus.storage.matrix_record import CellResult, Standing
from kernel_assay.fuzz import api
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import propose
from kernel_assay.fuzz.matrix.cells import Cells
from kernel_assay.fuzz.matrix.run import CellRunner
from kernel_assay.fuzz.matrix.spec import load, schema
from kernel_assay.fuzz.planning.plan import targets, with_layouts
from kernel_assay.kernels.boundary import devices
from kernel_assay.oracles.catalog import contract_of

ROOT = Path(__file__).resolve().parents[2]
TODAY = datetime.now(UTC).date()
LATER, BEFORE = TODAY + timedelta(days=30), TODAY - timedelta(days=30)
BASE = {"ops": ["silu"], "subjects": ["mine.py"], "dtypes": ["float32"], "cases": 6}
TWO = {"shapes": ["wide", "thin"], "shape_sets": {"wide": [{"rows": 2, "cols": 5}], "thin": [{"rows": 4, "cols": 2}]}}
"""WRONG fails where there are four columns."""
ISSUE = "https://example.org/7"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, no_references):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(RIGHT)


def write(**keys):
    path = Path("m.yaml")
    path.write_text(yaml.safe_dump({**BASE, **keys}, default_flow_style=None))
    return path


def cells(**keys):
    return Cells(load(write(**keys)))


def names(**keys):
    return [one.cell.name for one in cells(**keys).plan()]


@pytest.fixture
def matrix(fuzz):
    """Run a definition; the exit code, what became of the cells by their names, and what is said."""

    def call(*words, **keys):
        code, out, err = fuzz("matrix", write(**keys), "--json", "m.json", "--quiet", *words)
        found = json.loads(Path("m.json").read_text())["matrix"]["results"] if Path("m.json").exists() else []
        return (
            code,
            {f"{r['cell']['shapes']}/{r['cell']['dtype']}": CellResult.model_validate(r) for r in found},
            out + err,
        )

    return call


def standings(found):
    return {name: one.standing.value for name, one in found.items()}


# which cells there are


def test_a_cell_is_a_combination_that_can_be():
    plain = names(dtypes=["float32", "float16"], layouts=["any", "transposed"])
    assert plain == [
        f"silu/{dtype}/any/{layout}/cpu/mine.py" for dtype in ("float32", "float16") for layout in ("any", "transposed")
    ]
    Path("mine.py").write_text(RIGHT.replace("OP =", 'DTYPES = ("float16",)\nOP ='))
    assert names(dtypes=["float16"]) == ["silu/float16/any/any/cpu/mine.py"]
    assert names(subjects=["mine.py", "builtin:numpy"], dtypes=["float32", "float16"])[1:] == [
        "silu/float32/any/any/cpu/numpy",
        "silu/float16/any/any/cpu/numpy",
    ]


def test_each_op_takes_its_own_shapes_of_a_set():
    found = cells(
        ops=["silu", "gemm"],
        subjects=["builtin:numpy"],
        shapes=["few"],
        shape_sets={"few": [{"rows": 2, "cols": 3}, {"m": 1, "n": 2, "k": 3}]},
    )
    assert {one.cell.op: found.shapes(one.cell) for one in found.plan()} == {
        "silu": ({"rows": 2, "cols": 3},),
        "gemm": ({"m": 1, "n": 2, "k": 3},),
    }


def test_sets_that_ship_have_a_case_a_shape():
    found = cells(shapes=["small", "llama"])
    runner = CellRunner(found, Store(Path("corpus")))
    settings = [runner.settings(one) for one in found.plan()]
    assert [one.cases for one in settings] == [6, 7]
    assert {"rows": 1, "cols": 128256} in settings[1].shapes


def test_builtin_is_a_cell_for_each_backend_that_runs_here(monkeypatch):
    backends = {one.cell.backend for one in cells(subjects=["builtin"]).plan()}
    assert "numpy" in backends
    assert "cupy" not in backends or devices.device_count()


def test_filters_are_patterns_of_axes():
    every = names(dtypes=["float32", "float16", "bfloat16"], **TWO)
    assert len(every) == 6
    assert names(
        dtypes=["float32", "float16", "bfloat16"], exclude=[{"dtype": "*float16", "shapes": "th*"}], **TWO
    ) == [name for name in every if not ("float16" in name and "thin" in name)]
    kept = names(dtypes=["float32", "float16"], include=[{"dtype": ["float16", "nope"]}, {"shapes": "wide"}], **TWO)
    assert [name.split("/")[1:3] for name in kept] == [["float32", "wide"], ["float16", "wide"], ["float16", "thin"]]


def test_files_lie_beside_the_matrix(tmp_path, monkeypatch):
    write()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    found = Cells(load(tmp_path / "m.yaml"))
    assert [one.cell.name for one in found.plan()] == ["silu/float32/any/any/cpu/mine.py"]
    assert found.own["mine.py"][0] == str(tmp_path / "mine.py")


def test_an_op_of_ones_own_and_a_kernel_that_does_not_say_its_op():
    Path("ref.py").write_text('def twice(x: "float64[n]"):\n    return x * 2\n')
    Path("two.py").write_text("import numpy\n\ndef fast(x):\n    return x * 2\n")
    found = names(
        ops=["silu"], references=["ref.py:twice"], subjects=["mine.py", {"file": "two.py:fast", "op": "twice"}]
    )
    assert found == ["silu/float32/any/any/cpu/mine.py", "twice/float32/any/any/cpu/two.py:fast"]


# what is wrong with a definition


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ops: [silu]\ncase: 3\n", "m.yaml, line 2, case: there is no such key"),
        ("ops: [silu]\nops: [softmax]\n", "m.yaml, line 2: 'ops' stands twice"),
        ("ops: [sulu]\n", "m.yaml, line 1, ops[0]: op 'sulu' is not known"),
        ("ops: silu\n", "m.yaml, line 1, ops: 'silu' is not right"),
        ("ops: [silu\n", "is not YAML"),
        ("ops: &a [*a]\n", "is not YAML"),
        ("- silu\n", "is no matrix"),
        ("", "is no matrix"),
        ("subjects: [mine.py]\n", "a matrix needs an op"),
        ("ops: [silu]\ncases: 0\n", "line 2, cases: 0 is not right"),
        ("ops: [silu]\nbudget: long\n", "line 2, budget: 'long' is no length of time"),
        ("ops: [silu]\ndtypes: [float23]\n", "line 2, dtypes[0]: 'float23' is not known; the known ones are float64"),
        ("ops: [silu]\ndtypes: [float32, int8]\n", "line 2, dtypes[1]: no cell has 'int8'"),
        ("ops: [silu]\nlayouts: [sideways]\n", "line 2, layouts[0]: 'sideways' is not known"),
        ("ops: [silu]\nshapes: [tiny]\n", "line 2, shapes[0]: 'tiny' is not known"),
        ("ops: [silu]\nshapes: [t]\nshape_sets:\n  t: [{m: 1}]\n", "line 4, shape_sets.t: no shape has all dims"),
        ("ops: [silu]\nshape_sets:\n  t: [{rows: 1, cols: 1}]\n", "line 3, shape_sets.t: nothing names this set"),
        ("ops: [qgemm]\nshapes: [t]\nshape_sets:\n  t: [{m: -1}]\n", "line 4, shape_sets.t[0].m: -1 is not right"),
        ("ops: [silu]\ndevices: [gpu]\n", "line 2, devices[0]: 'gpu' is not right"),
        ("ops: [silu]\nsubjects: [nope.py]\n", "line 2, subjects[0]: nope.py does not exist"),
        ("ops: [silu]\nsubjects: ['builtin:nope']\n", "line 2, subjects[0]: backend 'nope' is not known"),
        ("ops: [silu]\nsubjects: [{file: mine.py}]\n", "line 2, subjects[0].op: it is missing"),
        ("ops: [softmax]\nsubjects: [mine.py]\n", "line 2, subjects[0]: mine.py is a kernel of silu"),
        ("ops: [silu]\nskip:\n  - {dtype: float32}\n", "line 3, skip[0].reason: it is missing"),
        ("ops: [silu]\nskip:\n  - {dtype: int4, reason: later}\n", "line 3, skip[0]: it fits no cell"),
        ("ops: [silu]\nexclude:\n  - {op: gemm}\n", "line 3, exclude[0]: it fits no cell"),
        ("ops: [silu]\nexclude: [{op: '*'}]\n", "no cell is left"),
        ("ops: [silu]\nxfail: [{op: silu, issue: todo, until: 2030-01-01}]\n", "xfail[0].issue: 'todo' is no issue"),
        ("ops: [silu]\nxfail: [{op: silu, issue: '#1'}]\n", "xfail[0].until: it is missing"),
        ("ops: [silu]\nxfail: [{op: silu, issue: '#1', until: soon}]\n", "xfail[0].until: 'soon' is not right"),
        ("ops: [silu]\nxfail: [{op: gemm, issue: '#1', until: 2099-01-01}]\n", "xfail[0]: it fits no cell"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(fuzz, text, said):
    Path("m.yaml").write_text(text)
    for words in ([], ["--check"]):
        refused(fuzz("matrix", "m.yaml", *words), said)
    assert not Path("corpus/local/matrices").exists()


def test_a_file_that_is_not_there(fuzz):
    refused(fuzz("matrix", "none.yaml"), "none.yaml cannot be read")
    Path("m.yaml").write_bytes(b"\xff\xfe")
    refused(fuzz("matrix", "m.yaml"), "no UTF-8 text")


def test_words_of_the_command_line_that_are_wrong(fuzz):
    write()
    refused(fuzz("matrix", "m.yaml", "--only", "colour=red"), "--only colour=red names no axis")
    refused(fuzz("matrix", "m.yaml", "--only", "op=gemm"), "no cell of m.yaml is one of --only op=gemm")
    refused(fuzz("matrix", "m.yaml", "--resume"), "no run of m.yaml as it is now was interrupted")
    refused(fuzz("matrix", "m.yaml", "--html", "no/page.html"), "no/page.html cannot be written")


def test_check_runs_nothing(fuzz):
    write(**TWO)
    assert fuzz("matrix", "m.yaml", "--check")[:2] == (0, "m.yaml: 2 cells of silu\n")
    assert not Path("corpus").exists()
    write(xfail=[{"op": "silu", "issue": "#1", "until": BEFORE}])
    code, _, err = fuzz("matrix", "m.yaml", "--check")
    assert (code, err.count("\n")) == (1, 1)
    assert re.match(rf"expired: m.yaml, line \d+, xfail\[0\]: it was expected until {BEFORE} \(#1\)", err)


# runs of given extents and layouts


def test_cases_have_the_given_extents_and_layouts_only(tmp_path):
    shapes = ({"rows": 3, "cols": 1025}, {"rows": 7, "cols": 5}, {"m": 1, "n": 1, "k": 1})
    settings = api.RunSettings(
        ops=("softmax",), backends=("numpy",), cases=8, seed=1, shapes=shapes, layouts=("transposed", "row_gaps")
    )
    with Store(tmp_path) as store:
        campaign = api.run(settings, store=store).campaign
    assert {k: n for k, n in campaign.reach["softmax/numpy_float32"].items() if k != "elements"} == {
        "rows": 7,
        "cols": 1025,
    }
    made = [propose(targets(campaign), 1, number, Elites()).case for number in range(96)]
    assert {case.tensors["x"].shape for case in made} == {(3, 1025), (7, 5)}
    assert {t.layout for case in made for t in case.tensors.values()} == {"transposed", "row_gaps"}
    assert len({case.tensors["x"].dtype for case in made}) == 4
    assert {one.layouts for one in campaign.space.values()} == {("row_gaps", "transposed")}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"shapes": ({"m": 1},)}, "no shape is one of softmax, whose dims are rows, cols"),
        ({"layouts": ("sideways",)}, "layout 'sideways' is not known"),
        ({"shapes": ({"rows": 1, "cols": 1},), "engine": "given"}, "given shapes need the engine 'conjecture'"),
    ],
)
def test_extents_and_layouts_that_an_op_cannot_have(tmp_path, more, said):
    with Store(tmp_path) as store, pytest.raises(UsageError, match=re.escape(said)):
        api.run(api.RunSettings(**{"ops": ("softmax",), "cases": 1, **more}), store=store)


def test_a_layout_that_no_kernel_takes():
    with pytest.raises(UsageError, match="no input of silu is tried in the layout transposed"):
        with_layouts(contract_of("silu"), ("transposed",), {"x": ("contiguous",)})


# what becomes of cells


def test_what_passes_and_what_fails(matrix):
    Path("mine.py").write_text(WRONG)
    code, found, said = matrix(**TWO)
    assert (code, standings(found)) == (1, {"wide/float32": "failed", "thin/float32": "passed"})
    failed = found["wide/float32"]
    assert re.fullmatch(r"mismatch: out\[0, 3\] is 5, must be .* \[[0-9a-f]{16}\]", failed.reason)
    assert failed.findings[0] in {f.id for f in Store(Path("corpus")).findings("silu")}
    assert (failed.cases, failed.kinds["mismatch"] > 0) == (6, True)
    assert f"failed: silu/float32/wide/any/cpu/mine.py\n   {failed.reason}\n" in said
    assert "m.yaml: 2 cells: 1 passed, 1 failed, in " in said


def test_what_is_expected_to_fail(matrix):
    Path("mine.py").write_text(WRONG)
    code, found, said = matrix(xfail=[{"shapes": "wide", "issue": ISSUE, "until": LATER}], **TWO)
    assert (code, standings(found)) == (0, {"wide/float32": "xfailed", "thin/float32": "passed"})
    assert (found["wide/float32"].issue, found["wide/float32"].until) == (ISSUE, LATER.isoformat())
    assert f"({ISSUE}, until {LATER})" in said
    assert "expected to fail, seen" in said, "so is its finding"


def test_today_is_the_last_day(matrix):
    Path("mine.py").write_text(WRONG)
    entry = {"shapes": "wide", "issue": "#7", "until": datetime.now(UTC).date()}
    assert matrix(xfail=[entry], **TWO)[0] == 0


def test_an_expectation_whose_time_is_over_fails_whatever_the_kernel_does(matrix):
    entry = {"shapes": "wide", "issue": "#7", "until": BEFORE}
    code, found, said = matrix(xfail=[entry], **TWO)
    assert (code, standings(found)["wide/float32"]) == (1, "xpassed")
    assert f"it was expected until {BEFORE} (#7)" in said
    Path("mine.py").write_text(WRONG)
    code, found, said = matrix(xfail=[entry], **TWO)
    assert (code, standings(found)["wide/float32"]) == (1, "failed")
    assert f"expected to fail until {BEFORE}, which is over: mismatch" in said
    assert matrix("--only", "shapes=thin", xfail=[entry], **TWO)[0] == 1, "also where its cell is left out"


def test_an_unexpected_pass_fails(matrix):
    code, found, said = matrix(xfail=[{"shapes": "wide", "issue": "KEY-7", "until": LATER}], **TWO)
    assert (code, standings(found)) == (1, {"wide/float32": "xpassed", "thin/float32": "passed"})
    assert "take the entry out of xfail" in said


def test_what_is_skipped_is_not_run(matrix):
    Path("mine.py").write_text("OP = 'silu'\nimport os\n\ndef run(x):\n    os.abort()\n")
    code, found, said = matrix(skip=[{"op": "s*", "reason": "it aborts on purpose"}], **TWO)
    assert (code, set(standings(found).values())) == (0, {"skipped"})
    assert "it aborts on purpose" in said
    assert not any(one.done for one in found.values())


def test_what_is_not_asked_for_does_not_count(matrix):
    Path("mine.py").write_text(WRONG)
    code, found, said = matrix("--only", "shapes=th*", **TWO)
    assert (code, standings(found)) == (0, {"wide/float32": "not run", "thin/float32": "passed"})
    assert "left out by --only" in said


@pytest.mark.parametrize(("missing", "code", "standing"), [("fail", 2, "not run"), ("skip", 0, "skipped")])
def test_a_device_that_is_not_here(matrix, monkeypatch, missing, code, standing):
    monkeypatch.setattr(devices, "device_count", lambda: 0)
    got, found, said = matrix(subjects=["builtin:cuda"], devices=["cuda"], missing=missing)
    assert (got, standings(found)) == (code, {"any/float32": standing})
    assert "there is no CUDA device" in said


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("import no_such_module\n" + RIGHT, "No module named 'no_such_module'"),
        (
            RIGHT + "    raise NotImplementedError('not today')\n",
            "nothing of silu/mine was tested in 6 cases: not today",
        ),
    ],
)
def test_a_kernel_that_nothing_can_be_told_of_is_no_pass(matrix, kernel, said):
    Path("mine.py").write_text(kernel)
    code, found, told = matrix()
    assert (code, standings(found)) == (2, {"any/float32": "not run"})
    assert said in told


def test_a_crash_is_a_failure_and_the_rest_goes_on(matrix):
    Path("mine.py").write_text(RIGHT.replace("np\n", "np, os\n", 1) + "    if x.shape[1] == 5:\n        os.abort()\n")
    code, found, _ = matrix(**TWO)
    assert (code, standings(found)) == (1, {"wide/float32": "failed", "thin/float32": "passed"})
    assert found["wide/float32"].reason.startswith("crashed: ")


def test_the_budget_ends_a_cell(matrix):
    Path("mine.py").write_text(RIGHT.replace("np\n", "np, time\n", 1) + "    time.sleep(1)\n")
    begin = time.monotonic()
    code, found, _ = matrix(budget="2s", cases=64)
    assert time.monotonic() - begin < 30
    assert code == 0
    assert 0 < found["any/float32"].judged < 64


def test_several_processes_find_the_same(matrix):
    Path("mine.py").write_text(WRONG)
    keys = {"dtypes": ["float32", "float16"], **TWO}
    code, alone, _ = matrix(**keys)
    together = matrix("--jobs", "3", **keys)
    assert (code, together[0]) == (1, 1)
    facts = [{name: (r.standing, r.seed, r.cases, r.kinds) for name, r in one.items()} for one in (alone, together[1])]
    assert facts[0] == facts[1]
    assert len({seed for _, seed, _, _ in facts[0].values()}) == 4, "each cell has cases of its own"


# what is kept


def test_a_run_that_was_killed_goes_on(matrix, fuzz):
    slow = RIGHT.replace("np\n", "np, time\n", 1) + "    time.sleep(0.5 if x.shape[1] == 5 else 0)\n"
    Path("mine.py").write_text(slow)
    keys = {"shapes": ["thin", "wide"], "shape_sets": TWO["shape_sets"]}
    write(**keys)
    command = [sys.executable, "-m", "kernel_assay.fuzz", "matrix", "m.yaml"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    first = child.stderr.readline()
    child.kill()
    child.wait()
    child.stderr.close()
    assert first.startswith("1 of 2  passed   silu/float32/thin/any/cpu/mine.py")
    (name,) = MatrixJournal(Store(Path("corpus"))).names()
    before = {r.cell.shapes: r for r in MatrixJournal(Store(Path("corpus"))).read(name).results}
    assert (before["thin"].standing, before["wide"].standing) == (Standing.PASSED, Standing.NOT_RUN)
    code, found, _ = matrix("--resume", **keys)
    assert (code, set(standings(found).values())) == (0, {"passed"})
    assert found["thin/float32"] == before["thin"], "it was not run again"
    assert MatrixJournal(Store(Path("corpus"))).names() == [name]
    refused(fuzz("matrix", "m.yaml", "--resume"), "was interrupted")


def test_what_has_changed_is_run_again(matrix):
    code, found, _ = matrix(**TWO)
    journal = next(Path("corpus/local/matrices").iterdir())
    journal.write_text("\n".join(journal.read_text().splitlines()[:2]) + '\n{"torn')
    Path("mine.py").write_text(RIGHT + "    pass\n")
    code, again, _ = matrix("--resume", **TWO)
    assert code == 0
    assert again["wide/float32"].run != found["wide/float32"].run


def test_ctrl_c_ends_it_and_keeps_what_there_is(fuzz):
    slow = RIGHT.replace("np\n", "np, time\n", 1) + "    time.sleep(0.5 if x.shape[1] == 5 else 0)\n"
    Path("mine.py").write_text(slow)
    write(shapes=["thin", "wide"], shape_sets=TWO["shape_sets"], cases=32)
    command = [sys.executable, "-m", "kernel_assay.fuzz", "matrix", "m.yaml"]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    child.stderr.readline()
    child.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - begin < 15
    assert child.returncode == 130, err
    assert "2 cells: 1 passed, 1 not run" in out
    assert "--resume goes on where this was stopped" in err
    assert "Traceback" not in err


def test_its_reports(matrix, fuzz):
    Path("mine.py").write_text(WRONG)
    keys = {"skip": [{"dtype": "float16", "reason": "later <b>"}], "dtypes": ["float32", "float16"]}
    code, found, _ = matrix("--html", "m.html", "--junit", "m.xml", **keys, **TWO)
    suite = ET.parse("m.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (
        "matrix",
        "4",
        "1",
        "2",
    )
    failure = next(t for t in suite if t.find("failure") is not None)
    assert failure.get("name") == "silu/float32/wide/any/cpu/mine.py"
    assert f"kassay show {found['wide/float32'].findings[0]}" in failure.find("failure").text
    page = Path("m.html").read_text()
    assert "4 cells: 1 passed, 1 failed, 2 skipped" in page
    assert "later &lt;b&gt;" in page
    assert f'href="#finding-{found["wide/float32"].findings[0]}"' in page
    assert f'id="finding-{found["wide/float32"].findings[0]}"' in page
    code, out, _ = fuzz("report", "--html", "again.html", "--markdown", "-")
    assert code == 0
    assert Path("again.html").read_text() == page, "the latest matrix is what is reported of"
    assert "| failed | `silu/float32/wide/any/cpu/mine.py` | mismatch: " in out
    (name,) = MatrixJournal(Store(Path("corpus"))).names()
    assert fuzz("report", name)[1].startswith(f"matrix {name}  seed 0\n")
    assert fuzz("report", found["thin/float32"].run)[1].startswith(f"run {found['thin/float32'].run}"), "a cell's own"


def test_the_shipped_schema_is_the_one_of_the_definition(fuzz):
    """After a change: kassay matrix --schema > reports/matrix.schema.json."""
    assert fuzz("matrix", "--schema")[:2] == (0, schema())
    assert (ROOT / "reports" / "matrix.schema.json").read_text("utf-8") == schema()
    said = json.loads(schema())
    assert said["additionalProperties"] is False
    assert said["$defs"]["Skip"]["required"] == ["reason"]
    assert all(
        "description" in one for name, one in said["properties"].items() if name not in {"devices", "skip", "xfail"}
    )
