"""The duel: what a tool's answer counts for, what criteria say, and the page that is made of a result."""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from test_nightly import module_of

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TOOLS = {"kassay search": ["a"], "pytest": ["b"]}


@pytest.fixture
def duel(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS / "bench"), str(SCRIPTS / "duel_tools"), *sys.path])
    return module_of(SCRIPTS / "duel", monkeypatch)


def answer(tool, kernel, kind, found, seconds=1.0):
    about = {"key": f"{tool} {kernel}", "tool": tool, "kernel": kernel, "op": kernel.partition("/")[0], "kind": kind}
    return {**about, "seed": 1, "found": found, "late": False, "seconds": seconds, "wall": 9.0, "said": "", "error": ""}


PLAIN = [
    answer("kassay search", "a/bug_one", "seeded", True, 0.2),
    answer("pytest", "a/bug_one", "seeded", False),
    answer("kassay search", "a/bug_two", "seeded", True, 2.0),
    answer("pytest", "a/bug_two", "seeded", True),
    answer("kassay search", "a/bug_three", "seeded", False),
    answer("pytest", "a/bug_three", "seeded", False),
    answer("kassay search", "a/x: found by nobody", "mutant", False),
    answer("pytest", "a/x: found by nobody", "mutant", False),
    answer("kassay search", "a/right", "right", False),
    answer("pytest", "a/right", "right", True),
    answer("kassay search", "a/x: found by who accuses", "mutant", False),
    answer("pytest", "a/x: found by who accuses", "mutant", True),
]


@pytest.fixture
def answers(duel):
    return [duel.Answer.model_validate(one) for one in PLAIN]


def test_what_only_an_accuser_finds_does_not_count_and_a_seeded_bug_does(duel, answers):
    assert duel.summary(answers, TOOLS) == {
        "wrong": 3,
        "right": 1,
        "accused": {"kassay search": [], "pytest": ["a/right"]},
        "sets": {"kassay search": ["a/bug_one"], "kassay search, pytest": ["a/bug_two"], "nobody": ["a/bug_three"]},
        "found": {"kassay search": 2, "pytest": 1},
        "late": {"kassay search": 0, "pytest": 0},
        "only": {"kassay search": ["a/bug_one"], "pytest": []},
        "left_out": ["a/x: found by who accuses"],
    }


def test_two_tools_that_differ_are_believed_and_one_under_two_names_is_not(duel):
    found = [answer(tool, f"a/{kind}", kind, True) for kind in ("right", "mutant") for tool in TOOLS]
    every = [duel.Answer.model_validate(one) for one in found]
    assert duel.summary(every, TOOLS)["wrong"] == 1
    assert duel.summary(every, {tool: ["a"] for tool in TOOLS})["left_out"] == ["a/mutant"]


def result(duel):
    one = {"missed": ["a/bug_one"], "accused": [], "wrong": 3, "right": 1}
    environment = {"python": "3", "processor": "p", "machine": "m", "packages": {"numpy": "2"}}
    return {
        "environment": environment, "machine": "2 processors", "seconds": 4.0, "seed": 1, "took": 9.0,
        "left": {"kernels": ["a/late"], "criteria": ["b"]},
        "summary": duel.summary([duel.Answer.model_validate(one) for one in PLAIN], TOOLS),
        "criteria": {"this <judge>": {"theirs": one, "ours": one}},
        "answers": PLAIN,
    }  # fmt: skip


def test_the_page_has_the_tables_and_the_pictures(duel):
    page = duel.page(result(duel))
    assert "3 wrong kernels, 1 right ones, 2 tools, 4 seconds each" in page
    assert "pytest accuses what is right: a/right" in page
    assert "this &lt;judge&gt;" in page
    assert page.count("<svg") == 2
    assert "Bugs found over time. kassay search: 2 in the end; pytest: 1 in the end." in page
    assert page.count("\N{BLACK CIRCLE}") == 4, "one that is explained, and three of who found what"
    assert page == duel.page(result(duel))


def test_what_a_budget_leaves_is_told_and_counts_for_nobody(duel, tmp_path, capsys):
    kernels = [duel.Kernel(f"a/{n}", "a", str(tmp_path / "x.py"), kind) for n, kind in enumerate(("seeded", "right"))]
    (tmp_path / "x.py").write_text("1")
    args = argparse.Namespace(out=tmp_path, seed=1, trials=1, jobs=1, seconds=1.0)
    assert duel.duel(kernels, {"mine": ["false"]}, args, {}, until=0.0) == []
    assert duel.summary([], TOOLS)["wrong"] == 0
    assert duel.criteria(kernels, argparse.Namespace(ops=["silu"], cases=1, seed=1), until=0.0)[1] == ["a"]
    duel.tell(result(duel), TOOLS)
    assert "No time for 1 kernels, among them a/late\n" in capsys.readouterr().out
    assert "Criteria were not asked about b: no time" in duel.page(result(duel), [*duel.remarks(result(duel))])


def test_the_last_line_tells_what_we_found(duel, capsys):
    duel.tell(result(duel), TOOLS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "duel: kassay search found 2 of 3, accused 0 of 1; 9 s (goal all, 0, quick < 600)"
    assert [line.split() for line in lines if line.startswith("  pytest")] == [
        ["pytest", "1", "of", "3", "1", "of", "1", "0", "0"]
    ]


BEGIN = "import os, time; print('{\"began\": true}', flush=True); "
GOOD = 'print(\'{"found": true, "seconds": 0.5, "tests": 3, "said": "wrong"}\')'


@pytest.fixture
def kernel(duel, tmp_path):
    (tmp_path / "x.py").write_text("1")
    return duel.Kernel("a/x", "a", str(tmp_path / "x.py"), "seeded")


@pytest.mark.parametrize(("program", "said", "error"), [
    (GOOD, "wrong", ""),
    (f"import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush(); {GOOD}", "wrong", ""),
    (BEGIN + "os.kill(os.getpid(), 11)", "it died of SIGSEGV", ""),
    (BEGIN + "time.sleep(0.6); os.abort()", "it died of SIGABRT", "late"),
    (BEGIN + "time.sleep(0.6); " + GOOD, "wrong", "late"),
    (BEGIN + "time.sleep(60)", "it was not back", "late"),
    ("import os; os.kill(os.getpid(), 11)", "", "it died of SIGSEGV before it began"),
    (BEGIN + "os.kill(os.getpid(), 9)", "", "it died of SIGKILL"),
    ("import time; time.sleep(60)", "", "it never began"),
    ("raise SystemExit('no such op')", "", "no such op"),
    ("print({})", "", "its last line is no answer: found: Field required"),
    ("print([1])", "", "its last line is no answer: Input should be an object"),
    ("print(3)", "", "its last line is no answer: Input should be an object"),
    ("print('{\"found\": \"no\", \"seconds\": \"soon\"}')", "",
     "its last line is no answer: found: Input should be a valid boolean"),
    ("import sys; sys.stdout.buffer.write(b'\\xff')", "", "its last line is no answer: Invalid JSON"),
    ("", "", "its last line is no answer: Invalid JSON"),
])  # fmt: skip
def test_a_tool_is_a_command(duel, kernel, monkeypatch, program, said, error):
    module = sys.modules["_answers"]
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    monkeypatch.setattr(module, "OVERTIME", 0.1 if "60" in program else 10.0)
    seconds = 0.3 if "sleep" in program else 30.0
    got = duel.asked_of("mine", [sys.executable, "-S", "-c", program], kernel, seconds, 1)
    assert (got.said, got.late) == (said, error == "late")
    assert got.found == (not error)
    assert got.error.startswith("" if error == "late" else error)
    assert bool(got.error) == (error not in {"", "late"})


def test_a_tool_is_charged_from_when_it_begins(duel, kernel):
    got = duel.asked_of(
        "mine", [sys.executable, "-c", f"import time; time.sleep(0.5); {BEGIN} os.abort()"], kernel, 5.0, 1
    )
    assert got.found
    assert got.seconds < got.wall - 0.4


def test_a_command_that_does_not_exist_is_an_error_and_what_is_kept_depends_on_all_that_was_asked(
    duel, kernel, tmp_path
):
    assert duel.asked_of("mine", ["no_such_command"], kernel, 1.0, 1).error.startswith("no_such_command cannot be ")
    ways = [(["a"], 1.0, 1), (["b"], 1.0, 1), (["a"], 2.0, 1), (["a"], 1.0, 2)]
    keys = [duel.key_of(command, kernel, seconds, seed) for command, seconds, seed in ways]
    (tmp_path / "x.py").write_text("2")
    assert len({*keys, duel.key_of(["a"], kernel, 1.0, 1)}) == 5


def test_an_error_and_what_is_no_answer_are_asked_again(duel):
    lines = [PLAIN[0], {**PLAIN[1], "error": "no"}, {}, [1], {**PLAIN[2], "found": "soon"}]
    assert list(duel.known(lines)) == [PLAIN[0]["key"]]


def test_ops_take_turns_and_mutants_have_names_of_their_own(duel, tmp_path):
    ops = ["silu", "rmsnorm", "gemv"]
    args = argparse.Namespace(ops=ops, seed=1, seeded=3, right=3, mutants=12)
    drawn = duel.chosen(args, tmp_path)
    for kind in ("seeded", "right"):
        assert sorted(k.op for k in drawn if k.kind == kind) == sorted(ops)
    assert len({k.name for k in drawn}) == len({k.path for k in drawn}) == 18


def test_nothing_to_ask_about_is_one_sentence(duel, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["duel", "silu", "--seeded", "0", "--right", "0", "--mutants", "0"])
    with pytest.raises(SystemExit, match="2"):
        duel.main()
    assert "there is no kernel to ask about" in capsys.readouterr().err


def test_a_budget_of_nothing_is_told(duel, capsys):
    none = {**result(duel), "criteria": {"this judge": {}}, "summary": duel.summary([], TOOLS), "answers": []}
    duel.tell(none, TOOLS)
    assert "No time for 1 kernels" in capsys.readouterr().out
    assert "0 wrong kernels" in duel.page(none)


def test_curves_end_at_the_seconds_and_have_the_marks_of_the_legend(duel):
    plot = sys.modules["_duel_page"].stairs({"mine": [(1.0, 1.0), (26.2, 2.0)]}, 0.0, [], "bugs", 4.0)
    assert f"{float(plot.right)}" in plot.traces[0].line
    assert max(float(m) for m in re.findall(r"[MH]([0-9.]+)", plot.traces[0].line)) == plot.right
    assert plot.traces[0].key.path in plot.traces[0].marks


@pytest.fixture
def criteria(duel):
    return sys.modules["_criteria"]


def seen(criteria, got, due, dtype="float32", peer=0.0):
    return criteria.Seen(np.array(got, np.float64), np.array(due, np.float64), dtype, "softmax", len(due), peer)


@pytest.mark.parametrize(("got", "due", "refusing"), [
    ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], set()),
    ([1.005, 2.0], [1.0, 2.0], {"torch.t", "KernelB", "gpucheck", "FlashAt", "test-ba"}),
    ([1.0, 2.0], [1.0, np.nan], "all"),
    ([0.0, 1.0], [1.0, 0.0], "all"),
])  # fmt: skip
def test_what_each_criterion_refuses(criteria, got, due, refusing):
    refused = {n for n, passes in criteria.CRITERIA.items() if not passes(seen(criteria, got, due))}
    wanted = {n for n in criteria.CRITERIA if refusing == "all" or any(n.startswith(w) for w in refusing)}
    assert refused == wanted


def test_errors_of_right_kernels_make_a_tolerance(criteria):
    table = criteria.Table()
    errors = [(0.01 * i, f"r{i}", True) for i in range(1, 11)] + [(0.14, "near", False), (0.2, "far", False)]
    table._errors["ours", "softmax", "float32"] = errors
    table.refused["ours"] = {key: set() for _, key, _ in errors}
    table.calibrate()
    assert {key for key, by in table.refused["ours"].items() if by} == {"far"}


def test_tests_of_people_are_round_and_fit_the_op(criteria):
    cases = criteria._theirs(criteria_contract("gemm"), 12)
    assert {t.shape for c in cases for t in c.tensors.values()} == {(64, 64), (128, 128)}
    assert {t.fill.distribution for c in cases for t in c.tensors.values()} == {"normal"}
    packed = criteria._theirs(criteria_contract("qgemv"), 4)
    assert {t.fill.distribution for c in packed for t in c.tensors.values()} == {"blocks"}


def criteria_contract(op):
    from kernel_assay.oracles.catalog import contract_of

    return contract_of(op)
