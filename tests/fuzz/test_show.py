"""What a person asks about: a finding or a case, a verdict, what there is, what runs here."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from _command import refused, snapshot
from _silu import finding_of, right

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.planning.goals import GOALS
from kernel_assay.kernels.backend_registry import loader_of, loaders
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import load_contracts
from kernel_assay.reports.explain import explain, topics

RIGHT = right("float16")
WRONG = RIGHT + "    out[:, 3:4] = 5\n"


def case(shape=(2, 5), dtype="float16", op="silu", **fields):
    x = TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="ones"))
    return Case(op=op, tensors={"x": x}, **fields)


CASE = case()
"""Elements [0, 3] and [1, 3] of ten are wrong."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a right and a wrong kernel, and a case for them."""
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(RIGHT)
    Path("wrong.py").write_text(WRONG)
    Path("case.json").write_text(json.dumps(CASE.plain()))


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A finding as a run would file it, of a kernel in another folder."""
    path = tmp_path_factory.mktemp("made") / "wrong.py"
    path.write_text(WRONG)
    return finding_of(path, CASE, look=True, gates=("fails only if cols >= 4",))


@pytest.fixture
def found(filed):
    """The same, stored, of the kernel in this folder."""
    with Store(Path("corpus")) as store:
        return store.save_finding(filed.but(subject=filed.subject.but(path=str(Path("wrong.py").resolve()))))


def cells(line):
    return re.split(r"\s{2,}", line.strip())


# show: a finding


def test_all_there_is_to_know_of_a_finding(fuzz, found):
    before = snapshot()
    code, out, err = fuzz("show", found.id[:8])
    assert (code, err) == (0, "")
    assert out.startswith(f"finding {found.id}: silu/wrong, mismatch (")
    for said in (
        found.verdict.message,
        "condition fails only if cols >= 4",
        CASE.label,
        "kassay explain mismatch",
        "found by r1:0",
        "(2 fail)",
        f"kassay replay {found.id}",
    ):
        assert said in out
    assert "...#.\n  ...#.\n" in out, "the map of what fails"
    assert snapshot() == before, "a look changes nothing"


def test_a_finding_is_shown_as_it_is_stored_and_not_run(fuzz, found, monkeypatch):
    monkeypatch.setattr("kernel_assay.fuzz.cli.show.Examiner", lambda *a, **k: pytest.fail("it was run"))
    Path("wrong.py").write_text("import os\nos.abort()\n")
    code, out, _ = fuzz("show", found.id)
    assert (code, found.verdict.message in out) == (0, True)


def test_the_program_at_the_end_is_the_one_that_is_written(fuzz, found):
    code, out, err = fuzz("show", found.id, "--reproducer", "again.py")
    assert (code, out, err) == (0, "python again.py\n", "")
    program = Path("again.py").read_text()
    shown = fuzz("show", found.id)[1].partition("\nreproducer\n")[2]
    assert textwrap.dedent(shown).strip() == program.strip()
    done = subprocess.run([sys.executable, "-I", "again.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, "[0, 3]" in done.stdout) == (1, True), done.stdout + done.stderr


def test_the_command_for_the_program_can_be_pasted(fuzz, found):
    _, out, _ = fuzz("show", found.id, "--reproducer", "see it.py")
    assert shlex.split(out) == ["python", "see it.py"]


def test_a_finding_as_json(fuzz, found):
    assert fuzz("show", found.id, "--json", "x.json")[:2] == (0, "")
    (told,) = json.loads(Path("x.json").read_text())
    assert (told["finding"], told["kind"], told["message"]) == (found.id, "mismatch", found.verdict.message)
    assert Case.model_validate(told["case"]).id == CASE.id
    code, out, _ = fuzz("show", found.id, "--json", "-")
    assert (code, json.loads(out)) == (0, [told])


def test_a_finding_by_its_file_and_a_committed_one(fuzz, found):
    with Store(Path("corpus")) as store:
        path = store.promote(found)
    shown = [fuzz("show", name)[1] for name in (path, found.id)]
    shutil.rmtree("corpus/local")
    shown.append(fuzz("show", found.id)[1])
    assert all(f"finding {found.id}: silu/wrong" in out and found.verdict.message in out for out in shown)


def test_another_kernel_on_the_case_of_a_finding(fuzz, found):
    before = snapshot()
    code, out, _ = fuzz("show", found.id, "--subject", "right.py")
    assert code == 0
    assert [cells(line)[:2] for line in out.splitlines() if "silu/" in line] == [["silu/right", "pass"]]
    assert "finding" not in out
    assert snapshot() == before


def test_a_finding_whose_kernel_is_gone_is_told_so(fuzz, found):
    Path("wrong.py").unlink()
    refused(fuzz("show", found.id), "wrong.py does not exist", "--subject")


# show: a case


def verdicts(out):
    """Subject -> verdict, of the table below a case."""
    rows = out.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    assert cells(rows[0]) == ["subject", "verdict", "rho"]
    return {cells(row)[0]: cells(row)[1] for row in rows[1:] if len(cells(row)) > 1}  # a message may go on below


def test_a_case_is_run_by_what_is_named(fuzz):
    code, out, err = fuzz("show", "case.json", "--subject", "right.py", "--subject", "wrong.py")
    assert (code, err) == (0, "")
    assert out.startswith(f"case {CASE.id}\n  {CASE.label}\n")
    assert verdicts(out) == {"silu/right": "pass", "silu/wrong": "mismatch"}
    assert out.count("\nfinding ") == 1
    assert "(2 fail)" in out
    assert "reproducer\n" in out
    assert not Path("corpus").exists(), "nothing is filed"


def test_a_case_that_passes_has_no_more_to_show(fuzz):
    code, out, _ = fuzz("show", CASE.token, "--subject", "right.py")
    assert (code, verdicts(out)) == (0, {"silu/right": "pass"})
    assert "reproducer" not in out


def test_a_case_is_run_by_the_house_if_nothing_is_named(fuzz, monkeypatch):
    monkeypatch.setattr(type(loader_of("torch")), "unavailable", lambda _: "it takes seconds to load")
    code, out, _ = fuzz("show", "case.json")
    clean = {s.key for s in subjects_of("silu") if not s.planted and not loader_of(s.backend).unavailable()}
    assert (code, verdicts(out)) == (0, dict.fromkeys(clean, "pass"))


def test_the_reproducer_of_a_case(fuzz):
    code, out, _ = fuzz("show", "case.json", "--subject", "wrong.py", "--reproducer", "again.py")
    assert (code, out.splitlines()[-1]) == (0, "python again.py")
    done = subprocess.run([sys.executable, "-I", "again.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, "[0, 3]" in done.stdout) == (1, True), done.stdout + done.stderr


def test_a_case_that_passes_has_no_reproducer(fuzz):
    code, _, err = fuzz("show", "case.json", "--subject", "right.py", "--reproducer", "again.py")
    assert (code, err.count("\n"), Path("again.py").exists()) == (2, 1, False)
    assert "the case passes" in err


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise NotImplementedError('not today')", "unsupported"),
        ("import os; os.abort()", "crashed"),
        ("import time; time.sleep(60)", "timeout"),
    ],
)
def test_whatever_a_kernel_does_is_shown(fuzz, body, kind):
    Path("mine.py").write_text(f"OP = 'silu'\n\ndef run(out, x):\n    {body}\n")
    code, out, err = fuzz("show", "case.json", "--subject", "mine.py", "--timeout", "0.3")
    assert (code, err) == (0, "")
    assert verdicts(out) == {"silu/mine": kind}
    assert (f"silu/mine, {kind}" in out) is (kind != "unsupported")


@pytest.mark.parametrize("kernel", ["right.py", "wrong.py"])
def test_the_json_of_a_case_stands_alone_on_standard_output(fuzz, kernel):
    code, out, _ = fuzz("show", "case.json", "--subject", kernel, "--json", "-")
    assert (code, len(json.loads(out))) == (0, int(kernel == "wrong.py"))


def test_the_commands_below_a_case_work(fuzz):
    _, out, _ = fuzz("show", "case.json", "--subject", "wrong.py")
    lines = re.findall(r"^  (?:show|replay|shrink)\s+(kassay .*)$", out, re.MULTILINE)
    assert lines
    for line in lines:
        assert fuzz(*shlex.split(line)[1:])[0] in {0, 1}


def test_a_case_that_no_kernel_takes_is_told_so(fuzz):
    _, out, err = fuzz("show", case(dtype="float32").token, "--subject", "right.py")
    assert "float32" in out + err


# show: what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), ("'nothing'",)),
        (("no.json",), ("no.json does not exist",)),
        (("empty.json",), ("empty.json is not JSON",)),
        (("list.json",), ("list.json holds no JSON object",)),
        (("other.json",), ("other.json is neither a finding", "nor a case")),
        (("future.json",), ("future.json",)),
        (("case:abc",), ("'case:abc' is no case", "cut off")),
        (("r1:5",), ("'r1'",)),
        (("empty",), ("no .json file under empty",)),
        (("case.json", "--subject", "nobody.py"), ("nobody.py does not exist",)),
        (("case.json", "--timeout", "0"), ("--timeout",)),
        (("nope.json",), ("op 'nope' is not known", "silu")),
        ((), ("FINDING",)),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(fuzz, words, said):
    Path("empty").mkdir()
    Path("empty.json").write_text("")
    Path("list.json").write_text("[]")
    Path("other.json").write_text('{"a": 1}')
    Path("nope.json").write_text(json.dumps(CASE.but(op="nope").plain()))
    Path("future.json").write_text(json.dumps({**CASE.plain(), "schema_version": 99}))
    refused(fuzz("show", *words), *said)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("show", case(shape=(3,))),
        ("replay", case(shape=(3,))),
        ("show", CASE.but(tensors={})),
        ("show", CASE.but(attrs={"axis": 1})),
        ("replay", case(dtype="int32")),
    ],
    ids=["rank", "rank, replayed", "no tensor", "strange attribute", "strange dtype"],
)
def test_a_case_that_is_none_of_its_op_is_refused(fuzz, command, wrong):
    Path("strange.json").write_text(json.dumps(wrong.plain()))
    Path("mine.py").write_text(RIGHT.replace('DTYPES = ("float16",)\n', ""))
    refused(fuzz(command, "strange.json", "--subject", "mine.py"), "strange.json")


def test_a_json_file_that_cannot_be_written_is_refused(fuzz, found):
    refused(fuzz("show", found.id, "--json", "no/such/x.json"), "no/such/x.json cannot be written")


def test_a_reproducer_that_cannot_be_written_is_refused(fuzz, found):
    refused(fuzz("show", found.id, "--reproducer", "case.json/x.py"), "case.json")


# explain


@pytest.mark.parametrize("topic", topics())
def test_every_topic_is_explained(fuzz, topic):
    assert fuzz("explain", topic) == (0, explain(topic).rstrip() + "\n", "")


@pytest.mark.parametrize(
    ("topic", "said"), [("mismach", "did you mean mismatch?"), ("42", "there are pass, mismatch"), ("", "''")]
)
def test_an_unknown_topic_is_refused(fuzz, topic, said):
    refused(fuzz("explain", topic), said)


def test_explain_wants_a_topic(fuzz):
    refused(fuzz("explain"), "VERDICT|RULE")


# list


def rows(fuzz, *words):
    code, out, err = fuzz("list", *words, "--json", "-")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_what_there_is_is_all_there(fuzz):
    assert [r["op"] for r in rows(fuzz)] == [r["op"] for r in rows(fuzz, "ops")] == list(load_contracts())
    assert [r["subject"] for r in rows(fuzz, "subjects")] == [s.key for op in load_contracts() for s in subjects_of(op)]
    assert [r["backend"] for r in rows(fuzz, "backends")] == list(loaders())
    assert [r["goal"] for r in rows(fuzz, "goals")] == list(GOALS)
    assert [r["verdict"] for r in rows(fuzz, "verdicts")] == [k.value for k in Kind]
    assert {r["what"] for r in rows(fuzz, "distributions")} == {"distribution", "layout", "special", "place"}
    assert rows(fuzz, "findings") == []


@pytest.mark.parametrize("what", ["ops", "subjects", "backends", "distributions", "goals", "verdicts"])
def test_the_table_says_what_the_json_says(fuzz, what, monkeypatch):
    monkeypatch.setattr("kernel_assay.reports.plain.terminal.WIDTH", 500)
    head, *lines = fuzz("list", what)[1].splitlines()
    told = rows(fuzz, what)
    assert cells(head) == list(told[0])
    assert len(lines) == len(told)
    for line, row in zip(lines, told, strict=True):
        assert cells(line) == [c for value in row.values() for c in cells(value) if c]


def test_every_word_must_occur_in_some_column(fuzz):
    some = rows(fuzz, "subjects", "softmax/")
    assert [r["subject"] for r in some] == [s.key for s in subjects_of("softmax")]
    both = rows(fuzz, "subjects", "softmax/", "seeded")
    assert [r["subject"] for r in both] == [s.key for s in subjects_of("softmax") if s.planted]
    assert rows(fuzz, "subjects", "softmax/", "no such word") == []


def test_a_column_must_say_just_this(fuzz):
    numpy = rows(fuzz, "subjects", "backend=numpy")
    assert {r["backend"] for r in numpy} == {"numpy"}
    assert len(numpy) == sum(s.backend == "numpy" for op in load_contracts() for s in subjects_of(op))
    assert rows(fuzz, "subjects", "backend=num") == []
    assert [r["op"] for r in rows(fuzz, "ops", "op=silu")] == ["silu"]
    words = ("backend=numpy", "state=runs here", "silu/")
    assert [r["subject"] for r in rows(fuzz, "subjects", *words)] == [
        s.key for s in subjects_of("silu") if s.backend == "numpy" and not s.planted
    ]
    assert {r["about"] for r in rows(fuzz, "verdicts", "about=the question")} == {"the question"}


def test_findings_are_found_by_their_columns_and_by_their_cases(fuzz, found):
    (row,) = rows(fuzz, "findings")
    assert row == {
        "finding": found.id,
        "subject": "silu/wrong",
        "verdict": "mismatch",
        "state": "new",
        "count": "1",
        "dtype": "float16",
        "bug": found.id,
        "smallest case": CASE.label,
    }
    for words in (
        ["verdict=mismatch"],
        [f"finding={found.id}"],
        ["x=2x5"],
        ["wrong", "dtype=float16"],
        [f"smallest case={CASE.label}"],
    ):
        assert rows(fuzz, "findings", *words) == [row], words
    for words in (["verdict=nonfinite"], ["dtype=float"], ["2x6"], ["wrong", "count=2"]):
        assert rows(fuzz, "findings", *words) == [], words


def test_a_list_with_nothing_in_it_is_a_head(fuzz):
    code, out, err = fuzz("list", "subjects", "no such word")
    assert (code, cells(out), err) == (0, ["subject", "backend", "state", "claims", "summary"], "")


def test_listing_makes_no_corpus(fuzz):
    assert fuzz("list", "findings")[0] == 0
    assert not Path("corpus").exists()


def test_committed_findings_are_listed(fuzz, found):
    with Store(Path("corpus")) as store:
        store.promote(found)
    shutil.rmtree("corpus/local")
    assert [r["finding"] for r in rows(fuzz, "findings")] == [found.id]


CONTRACT = """from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CONTRACT = Contract(
    name="twice", summary="twice x", dims={"n": Dim(0, 64)}, inputs={"x": Input(("n",))},
    outputs={"out": Output(("n",), like="x")}, variants=({"x": "float16"},), reference=lambda x: {"out": x * 2.0},
)
"""


def test_an_op_of_ones_own_is_listed_where_it_is_named(fuzz):
    from kernel_assay.oracles.catalog import forget_contracts

    Path("twice.py").write_text(CONTRACT)
    try:
        (row,) = rows(fuzz, "ops", "op=twice", "--contract", "twice.py")
    finally:
        forget_contracts()
    assert row == {
        "op": "twice",
        "call": "(x)",
        "subjects": "0",
        "seeded": "0",
        "dtypes": "float16",
        "summary": "twice x",
    }
    assert rows(fuzz, "ops", "op=twice") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("silu",), ("'silu'", "subjects")),
        (("subjects", "bakend=numpy"), ("'bakend'", "backend")),
        (("findings", "x=2x6"), ("'x'", "smallest case")),
        (("findings", "--corpus", "spoiled"), ("spoiled", "not JSON")),
        (("ops", "--json", "no/x.json"), ("no/x.json cannot be written",)),
        (("ops", "--contract", "gone.py"), ("gone.py does not exist",)),
    ],
)
def test_what_cannot_be_listed_is_refused(fuzz, words, said):
    Path("spoiled/local/findings/silu").mkdir(parents=True)
    Path("spoiled/local/findings/silu/x.json").write_text("{")
    refused(fuzz("list", *words), *said)


# doctor


def test_the_doctor_says_of_every_backend_whether_it_runs_here(fuzz):
    code, out, err = fuzz("doctor")
    assert (code, err) == (0, "")
    below = out.partition("\n  backend")[2].partition("\n\n")[0]
    states = {cells(line)[0]: cells(line)[1] for line in below.splitlines()[1:]}
    assert set(states) == set(loaders())
    for name, state in states.items():
        why = loader_of(name).unavailable()
        assert state == f"not available here, because {why}" if why else state.startswith("runs here"), name
    assert not Path("corpus").exists()


def test_the_doctor_says_why_a_backend_cannot_run(fuzz, monkeypatch):
    monkeypatch.setattr(type(loader_of("numpy")), "unavailable", lambda _: "it is raining")
    assert re.search(r"numpy +not available here, because it is raining", fuzz("doctor")[1])
    assert "not available here, because it is raining" in fuzz("list", "backends", "backend=numpy")[1]


def test_the_doctor_says_versions(fuzz):
    import numpy as np

    out = fuzz("doctor")[1]
    assert out.startswith("python {}.{}.{} on ".format(*sys.version_info))
    assert re.search(rf"^ +numpy +{re.escape(np.__version__)}$", out, re.MULTILINE)


def test_the_doctor_fails_where_nothing_can_run(fuzz, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    code, out, _ = fuzz("doctor")
    assert (code, "the sandbox needs Linux" in out) == (1, True)


def test_the_doctor_takes_no_words(fuzz):
    refused(fuzz("doctor", "please"), "please")
