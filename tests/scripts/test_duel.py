"""The duel: what a tool's answer counts for, what criteria say, and the page that is made of a result."""

import argparse
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from test_nightly import module_of

from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe

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


def test_a_mutant_counts_if_the_duel_has_seen_it_fail_and_a_seeded_bug_does(duel, answers):
    seen = {"a/x: found by who accuses": "survives", "a/x: of no name": "cannot run"}
    assert duel.summary(answers, TOOLS, seen) == {
        "wrong": 3,
        "right": {"kassay search": 1, "pytest": 1},
        "accused": {"kassay search": [], "pytest": ["a/right"]},
        "claims_right": {"kassay search": 0, "pytest": 0},
        "claims_accused": {"kassay search": [], "pytest": []},
        "sets": [
            {"tools": ["kassay search"], "kernels": ["a/bug_one"]},
            {"tools": [], "kernels": ["a/bug_three"]},
            {"tools": ["kassay search", "pytest"], "kernels": ["a/bug_two"]},
        ],
        "found": {"kassay search": 2, "pytest": 1},
        "late": {"kassay search": 0, "pytest": 0},
        "errors": {"kassay search": 0, "pytest": 0},
        "only": {"kassay search": ["a/bug_one"], "pytest": []},
        "stillborn": ["a/x: of no name"],
        "left_out": ["a/x: found by who accuses"],
    }


def test_two_liars_do_not_confirm_each_other_and_what_is_right_within_claims_is_apart(duel):
    found = [answer(tool, "a/mutant", "mutant", True) for tool in TOOLS]
    claimed = {**answer("pytest", "a/half", "right", True), "claims": "it declares its arithmetic"}
    every = [duel.Answer.model_validate(one) for one in [*found, claimed]]
    summed = duel.summary(every, TOOLS, {})
    assert (summed["wrong"], summed["left_out"]) == (0, ["a/mutant"])
    assert (summed["accused"]["pytest"], summed["claims_accused"]["pytest"]) == ([], ["a/half"])
    assert duel.summary(every, TOOLS, {"a/mutant": "detected"})["found"] == {"kassay search": 1, "pytest": 1}


def test_who_only_fails_accuses_nobody_and_is_asked_about_nobody(duel, capsys):
    failed = {**answer("pytest", "a/right", "right", False), "error": "no such op"}
    told = {**result(duel), "answers": [failed]}
    told["summary"] = duel.summary([duel.Answer.model_validate(failed)], {"pytest": []}, {})
    duel.tell(told)
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split() == ["pytest", *["0", "of", "0", "0", "of", "0", "0", "of", "0", "0", "0", "1"]]


@pytest.mark.parametrize(("key", "why"), [
    ("row_sum/numpy_half", "it declares its arithmetic"),
    ("row_max/torch_amax", "its op has several right answers"),
    ("row_sum/numpy_float32", ""),
])  # fmt: skip
def test_what_only_this_project_knows_to_be_right_is_told(duel, key, why):
    (subject,) = [s for s in duel.subjects_of([key.partition("/")[0]]) if s.key == key]
    assert duel.claims_of(subject) == why


MUTANT = """BACKEND = "numpy"
DTYPES = ("float32",)

def run(x):
    return {}
"""


@pytest.mark.parametrize(("result", "fate"), [
    ("x / (1 + abs(x))", "detected"),
    ("x * sigmoid(x)", "cannot run"),
    ("(x / (1 + __import__('numpy').exp(-x.astype('float64')))).astype('float32')", "survives"),
])  # fmt: skip
def test_the_duel_looks_into_a_mutant_itself(duel, tmp_path, result, fate):
    (tmp_path / "k.py").write_text(MUTANT.format(result))
    case = Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 1), dtype="float32", fill=Fill(distribution="ones"))})
    kernel = duel.Kernel("silu/k", "silu", str(tmp_path / "k.py"), "mutant")
    outside = [
        case.but(attrs={"z": 1}),
        case.but(tensors={}),
        case.but(tensors={"x": TensorRecipe(shape=(1,), dtype="int32")}),
    ]
    tokens = ["no case", *(one.token for one in outside), case.token]
    assert sys.modules["_drawn_kernels"].fate_of(kernel, tokens, 0.0, 1) == fate


def test_a_tool_in_python_hands_over_what_it_has_tried(duel, tmp_path):
    (tmp_path / "k.py").write_text(MUTANT.format("x"))
    module = sys.modules["_problem"]
    problem = module.Problem(str(tmp_path / "k.py"), "silu")
    form = next(problem.forms(module.always(2)))
    inputs = {name: array + 1 for name, array in problem.draw(form, 0).items()}
    list(problem.compared(form, inputs))
    case = sys.modules["_drawn_kernels"].case_of_token(problem.token)
    assert materialize(case.tensors["x"]).tobytes() == inputs["x"].tobytes()


def test_outputs_are_poisoned_and_what_a_contract_leaves_open_is_right(duel):
    module = sys.modules["_problem"]
    assert np.isnan(module.poisoned((2, 3), np.dtype(np.float32))).all()
    contract = criteria_contract("row_max")
    case = module.case_of(contract, next(module.forms_of(contract, (), module.always(2))), 0)
    inputs = {"x": np.array([[np.nan, 1], [2, 1]], np.float32)}
    reference = module.Reference(contract, case, inputs)
    due = np.array([1, 2], np.float32)
    for got, wanted in (([np.nan, 1], [np.nan, 2]), ([1, 2], [1, 2]), ([3, 2], [1, 2])):
        assert np.array_equal(module.settled(reference, "out", np.float32(got), due), wanted, equal_nan=True)


def test_kernels_are_handed_over_whole_and_say_nothing_of_themselves(duel, tmp_path):
    args = argparse.Namespace(ops=["silu"], seed=1, seeded=100, right=100, mutants=2)
    drawn = duel.chosen(args, tmp_path)
    assert {k.kind for k in drawn} == {"seeded", "right", "mutant"}
    assert all(re.fullmatch(r"kernels/silu/k\w{12}\.(cu|py)", str(Path(k.path).relative_to(tmp_path))) for k in drawn)
    telling = re.compile(r"^\W*(bug:|planted|shows|summary)", re.IGNORECASE | re.MULTILINE)
    assert [k.name for k in drawn if telling.search(Path(k.path).read_text())] == []


def result(duel):
    one = {"missed": ["a/bug_one"], "accused": [], "claims_accused": [], "wrong": 3, "right": 1, "claims": 0}
    environment = {"python": "3", "processor": "p", "machine": "m", "packages": {"numpy": "2"}}
    return {
        "environment": environment, "machine": "2 processors", "seconds": 4.0, "seed": 1, "took": 9.0, "trials": 1,
        "jobs": 1, "version": "1", "revision": "", "allowance": 20.0, "partly": PLAIN[1:2],
        "tools": {"pytest": {"command": ["python", "b"], "files": []}},
        "left": {"kernels": ["a/late"], "criteria": ["b"]},
        "summary": duel.summary([duel.Answer.model_validate(one) for one in PLAIN], TOOLS, {}),
        "criteria": {"this <judge>": {"theirs": one, "ours": one}},
        "answers": PLAIN,
    }  # fmt: skip


def test_the_page_has_the_tables_and_the_pictures(duel):
    page = duel.page(result(duel))
    assert "<dt>pytest</dt><dd>python b</dd>" in page
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
    assert duel.summary([], TOOLS, {})["wrong"] == 0
    assert duel.criteria(kernels, argparse.Namespace(ops=["silu"], cases=1, seed=1), until=0.0)[1] == ["a"]
    duel.tell(result(duel))
    out = capsys.readouterr().out
    assert "No time for 1 kernels: a/late\n" in out
    assert "Only some were asked about a/bug_one, so it does not count: pytest not found\n" in out
    assert "Criteria were not asked about b: no time" in duel.page(result(duel), [*duel.remarks(result(duel))])


def test_the_last_line_tells_what_we_found(duel, capsys):
    duel.tell(result(duel))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "duel: kassay search found 2 of 3, accused 0 of 1; 9 s (goal all, 0, quick < 600)"
    assert [line.split() for line in lines if line.startswith("  pytest")] == [
        ["pytest", "1", "of", "3", "1", "of", "1", "0", "of", "0", "0", "0", "0"]
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
    (BEGIN + GOOD + "; import sys; sys.stdout.flush(); time.sleep(60)", "wrong", ""),
    (BEGIN + GOOD + "; import sys; sys.stdout.flush(); os.abort()", "wrong", ""),
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


def test_what_is_beyond_the_allowance_is_charged_to_all(duel, kernel, monkeypatch):
    monkeypatch.setattr(sys.modules["_answers"], "ALLOWANCE", 0.0)
    program = f"import time; time.sleep(0.5); {BEGIN} {GOOD}"
    got = duel.asked_of("mine", [sys.executable, "-S", "-c", program], kernel, 0.3, 1)
    assert (got.found, got.late) == (False, True)
    assert got.seconds > got.start > 0.5


def test_a_command_that_does_not_exist_is_an_error_and_what_is_kept_depends_on_all_that_was_asked(
    duel, kernel, tmp_path
):
    assert duel.asked_of("mine", ["no_such_command"], kernel, 1.0, 1).error.startswith("no_such_command cannot be ")
    tool = str(tmp_path / "tool")
    ways = [(["a"], 1.0, 1), (["b"], 1.0, 1), (["a"], 2.0, 1), (["a"], 1.0, 2), ([tool], 1.0, 1)]
    keys = [duel.key_of(command, kernel, seconds, seed) for command, seconds, seed in ways]
    for text in ("1", "2"):
        Path(tool).write_text(text)
        os.utime(tool, (int(text), int(text)))
        keys.append(duel.key_of([tool], kernel, 1.0, 1))
    (tmp_path / "x.py").write_text("2")
    assert len({*keys, duel.key_of(["a"], kernel, 1.0, 1)}) == 8


def test_seconds_that_are_whole_are_whole_on_the_command_line(duel, kernel, tmp_path):
    for seconds, word in ((4.0, "4"), (0.5, "0.5")):
        program = 'import sys; print(\'{"found": false, "seconds": 0, "said": "%s"}\' % sys.argv[6])'
        assert duel.asked_of("mine", [sys.executable, "-S", "-c", program], kernel, seconds, 1).said == word


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


def test_nothing_to_ask_about_is_one_sentence(duel, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["duel", "silu", "--seeded", "0", "--right", "0", "--mutants", "0"])
    with pytest.raises(SystemExit, match="2"):
        duel.main()
    assert "there is no kernel to ask about" in capsys.readouterr().err


def test_a_budget_of_nothing_is_told(duel, capsys):
    none = {**result(duel), "criteria": {"this judge": {}}, "summary": duel.summary([], TOOLS, {}), "answers": []}
    duel.tell(none)
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
