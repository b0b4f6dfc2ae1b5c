"""The duel: what a tool's answer counts for, what criteria say, and the page that is made of a result."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
from test_nightly import module_of

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TOOLS = {"kassay run": [], "pytest": []}


@pytest.fixture
def duel(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS / "bench"), str(SCRIPTS / "duel_tools"), *sys.path])
    return module_of(SCRIPTS / "duel", monkeypatch)


def answer(tool, kernel, kind, found, seconds=1.0):
    return {"tool": tool, "kernel": kernel, "kind": kind, "seed": 1, "found": found, "seconds": seconds, "said": ""}


ANSWERS = [
    answer("kassay run", "a/bug_one", "seeded", True, 0.2),
    answer("pytest", "a/bug_one", "seeded", False),
    answer("kassay run", "a/bug_two", "seeded", True, 2.0),
    answer("pytest", "a/bug_two", "seeded", True),
    answer("kassay run", "a/bug_three", "seeded", False),
    answer("pytest", "a/bug_three", "seeded", False),
    answer("kassay run", "a/x: found by nobody", "mutant", False),
    answer("pytest", "a/x: found by nobody", "mutant", False),
    answer("kassay run", "a/right", "right", False),
    answer("pytest", "a/right", "right", True),
]


def test_a_mutant_that_nobody_finds_does_not_count_and_a_seeded_bug_does(duel):
    assert duel.summary(ANSWERS, TOOLS) == {
        "wrong": 3,
        "right": 1,
        "accused": {"kassay run": [], "pytest": ["a/right"]},
        "sets": {"kassay run": ["a/bug_one"], "kassay run, pytest": ["a/bug_two"], "nobody": ["a/bug_three"]},
        "found": {"kassay run": 2, "pytest": 1},
        "only": {"kassay run": ["a/bug_one"], "pytest": []},
    }


def result(duel):
    one = {"missed": ["a/bug_one"], "accused": [], "wrong": 3, "right": 1}
    environment = {"python": "3", "processor": "p", "machine": "m", "packages": {"numpy": "2"}}
    return {
        "environment": environment, "machine": "2 processors", "seconds": 4.0, "seed": 1, "took": 9.0,
        "left": {"kernels": ["a/late"], "criteria": ["b"]},
        "summary": duel.summary(ANSWERS, TOOLS), "criteria": {"this <judge>": {"theirs": one, "ours": one}},
        "answers": ANSWERS,
    }  # fmt: skip


def test_the_page_has_the_tables_and_the_pictures(duel):
    page = duel.page(result(duel))
    assert "3 wrong kernels, 1 right ones, 2 tools, 4 seconds each" in page
    assert "pytest accuses what is right: a/right" in page
    assert "this &lt;judge&gt;" in page
    assert page.count("<svg") == 2
    assert "Bugs found over time. kassay run: 2 in the end; pytest: 1 in the end." in page
    assert page.count("\N{BLACK CIRCLE}") == 4, "one that is explained, and three of who found what"
    assert page == duel.page(result(duel))


def test_what_a_budget_leaves_is_told_and_counts_for_nobody(duel, tmp_path, capsys):
    kernels = [duel.Kernel(f"a/{n}", "a", "x.py", kind) for n, kind in enumerate(("seeded", "right"))]
    args = argparse.Namespace(out=tmp_path, seed=1, trials=1, jobs=1, seconds=1.0)
    assert duel.duel(kernels, {"mine": ["false"]}, args, [], until=0.0) == []
    assert duel.criteria(kernels, argparse.Namespace(ops=["silu"], cases=1, seed=1), until=0.0)[1] == ["a"]
    duel.tell(result(duel), TOOLS)
    assert "No time for 1 kernels, among them a/late\n" in capsys.readouterr().out
    assert "Criteria were not asked about b: no time" in duel.page(result(duel), [*duel.unasked(result(duel)["left"])])


def test_the_last_line_tells_what_we_found(duel, capsys):
    duel.tell(result(duel), TOOLS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "duel: kassay run found 2 of 3, accused 0 of 1; 9 s (goal all, 0, quick < 600)"
    assert [line.split() for line in lines if line.startswith("  pytest")] == [
        ["pytest", "1", "of", "3", "1", "of", "1", "0"]
    ]


@pytest.mark.parametrize(("program", "found", "said"), [
    ('print(\'{"found": true, "seconds": 0.5, "tests": 3, "said": "wrong"}\')', True, "wrong"),
    ("import os; os.kill(os.getpid(), 11)", True, "it dies of signal 11"),
    ("import time; print('{\"began\": true}', flush=True); time.sleep(60)", True, "it hangs"),
    ("import time; time.sleep(60)", False, ""),
    ("raise SystemExit('no such op')", False, ""),
])  # fmt: skip
def test_a_tool_is_a_command(duel, monkeypatch, program, found, said):
    monkeypatch.setattr(duel, "PATIENCE", 2.0)
    kernel = duel.Kernel("a/x", "a", "x.py", "seeded")
    got = duel.asked_of([sys.executable, "-c", program], kernel, 0.1 if "sleep" in program else 30.0, 1)
    assert (got["found"], got["said"]) == (found, said)
    error = "no such op" if "SystemExit" in program else "" if found else "it never began"
    assert got.get("error", "") == error


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
