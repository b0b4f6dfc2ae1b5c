"""No failure is excused: not for being rare, for needing a history, for an old bug's record, or for trouble of ours."""

import pytest
from _silu import right

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.replay.replay import Item, Outcome, replay
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.fuzz.triage.lifecycle import promote
from kernel_assay.fuzz.triage.triage import investigate
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import add_contract, forget_contracts

ONCE = """
from pathlib import Path
WAS = Path({mark!r})
CALLS = []
def run(out, x):
    CALLS.append(1)
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    if len(CALLS) > 30 and x.size > 2 and not WAS.exists():
        WAS.write_text("")
        {what}
"""
HEAD = 'import numpy as np\nOP = "silu"\nDTYPES = ("float32",)\n'
KEPT = (
    HEAD
    + """
KEPT = {{}}
def run(out, x):
    key = {key}
    if key not in KEPT:
        w = x.astype(np.float64)
        with np.errstate(all="ignore"):
            KEPT[key] = w / (1.0 + np.exp(-w))
    out[...] = KEPT[key].astype(x.dtype)
"""
)
COUNTS = (
    HEAD
    + """
CALLS = []
def run(out, x):
    CALLS.append(1)
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    if len(CALLS) {rule} 7 and x.size:
        out[:1, :1] = 77
"""
)
ACROSS = (
    HEAD.replace('DTYPES = ("float32",)\n', "")
    + """
FIRST = {}
def run(out, x):
    form = FIRST.setdefault(x.shape, x.dtype)
    w = x.astype(form).astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = (w / (1.0 + np.exp(-w))).astype(form).astype(x.dtype)
"""
)
SUMS = """import numpy as np
OP = "row_sum"
DTYPES = ("float32",)
SUM = np.zeros(1 << 17)
def run(out, x):
    with np.errstate(all="ignore"):
        SUM[: x.shape[0]] += x.astype(np.float64).sum(axis=1)
        out[...] = SUM[: x.shape[0]]
"""
WORKSPACES = (
    HEAD
    + """
ROOM, MADE = {}, {}
def run(out, x):
    form = MADE.setdefault(x.dtype, lambda w: w / (1.0 + np.exp(-w)))  # as a compiled function is kept
    room = ROOM.setdefault(x.shape, np.empty(x.shape))
    room[...] = x
    with np.errstate(all="ignore"):
        out[...] = form(room).astype(x.dtype)
"""
)


RIGHT = right("float32")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, notes):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.SEQUENCE_SECONDS", 1.5)
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.ANOTHER_SEQUENCE", 0.1)
    monkeypatch.setattr("kernel_assay.fuzz.triage.triage.CRASH_PROBE_SECONDS", 0.5)
    yield tmp_path
    forget_contracts()


def kernel(here, text, name="mine.py"):
    (here / name).write_text(text)


def search(fuzz, *words, cases=96):
    return fuzz("run", "--subject", "mine.py", "--peer", "none", "--cases", cases, "--seed", 1, "--quiet", *words)


def findings():
    with Store("corpus") as store:
        return store.findings()


# rare failures


def test_two_runs_that_differ_once_are_a_proof(fuzz, here):
    kernel(here, HEAD + ONCE.format(mark=str(here / "notes" / "mark"), what="out[:1, :1] = 77"))
    code, out, _ = search(fuzz)
    (found,) = findings()
    assert (code, found.verdict.kind, found.probability) == (1, Kind.NONDETERMINISTIC, 0.0)
    assert len(set(found.verdict.digests)) == 2
    assert "77.0" in found.verdict.message.partition("]: ")[2]
    assert "warning: silu/mine: nondeterministic, seen 1 time, did not show again when it was run again (0 of " in out
    assert "does not count" not in out
    assert fuzz("replay")[0] == 0, "that it does not show today says nothing"
    assert findings()[0].state is State.FLAKY


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--strict",), 1)])
def test_another_failure_that_does_not_show_again_is_told_and_counts_if_asked(fuzz, here, words, code):
    kernel(here, HEAD + ONCE.format(mark=str(here / "notes" / "mark"), what='raise RuntimeError("once")'))
    ended, out, _ = search(fuzz, *words)
    assert ended == code
    assert "warning: silu/mine: raised, seen 1 time, did not show again" in out
    assert ("it does not count, but with --strict" in out) is (code == 0)
    assert fuzz("shrink", findings()[0].id)[0] == 0


BESIDE = {
    "a function of numpy's": """
EXP = np.exp
np.exp = lambda x, *a, **k: EXP(x, *a, **k) * 1.01
def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + EXP(-w))).astype(x.dtype)
""",
    "a name of numpy's, which is gone": """
EXP = np.exp
del np.exp
def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + EXP(-w))).astype(x.dtype)
""",
    "a peer's message": """
import json, os, struct
SAID = json.dumps({"n": 0, "subject": "silu/other", "status": "raised", "message": "ValueError: x"}).encode()
def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    own = json.dumps({"n": 0, "subject": "silu/mine", "status": "ok", "outputs": [
        {"name": "out", "shape": x.shape, "dtype": "float32"}]}).encode()
    tag = b"\\xaaKA\\x01"
    frames = [struct.pack("<4sQI", tag, len(own) + out.nbytes, len(own)) + own + out.tobytes(),
              struct.pack("<4sQI", tag, len(SAID), len(SAID)) + SAID]
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), b"".join(frames) if os.readlink("/proc/self/fd/" + name).startswith("sock") else b"")
        except OSError:
            pass
""",
}


HONEST = """
def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
"""


@pytest.mark.parametrize("what", BESIDE)
def test_who_fails_only_beside_a_kernel_that_changes_the_process_is_not_accused(fuzz, here, what):
    kernel(here, HEAD + BESIDE[what])
    kernel(here, HEAD + HONEST, "other.py")
    code, out, _ = fuzz("run", "--subject", "mine.py", "--subject", "other.py", "--cases", 24, "--seed", 1, "--quiet")
    with Store("corpus") as store:
        found = store.findings()
    assert not [f for f in found if f.subject.name != "mine" and f.shows_again]
    kinds = {"a function of numpy's": {Kind.CHEATED}, "a peer's message": {Kind.CRASHED}}.get(what, set())
    assert (code, {f.verdict.kind for f in found if f.subject.name == "mine"}) == (bool(kinds), kinds)
    if what != "a peer's message":
        assert "silu/other: " in out
        assert "silu/numpy_float32: " not in out, "what is built in runs elsewhere"
        assert "it fails beside silu/mine, which changes the process that both run in" in out


# what is kept between two calls

STATEFUL = {
    "by shape": KEPT.format(key="x.shape"),
    "from the seventh call": COUNTS.format(rule=">="),
    "in the seventh call": COUNTS.format(rule="=="),
    "ends its process from the fourth call on": COUNTS.format(rule="==")
    + "    if len(CALLS) > 3:\n        __import__('os')._exit(0)\n",
    "ends its process in the seventh call": COUNTS.format(rule="==") + "        __import__('os')._exit(3)\n",
    "across dtypes": ACROSS,
}


@pytest.mark.parametrize("text", STATEFUL.values(), ids=STATEFUL.keys())
def test_what_one_call_leaves_to_the_next_is_found_shrunk_and_run_again(fuzz, here, monkeypatch, text):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.SEQUENCE_SECONDS", 3.0)
    kernel(here, text)
    assert search(fuzz, cases=48)[0] == 1
    kept = [f for f in findings() if f.verdict.kind is Kind.STATEFUL]
    first = min(kept, key=lambda f: (len(f.before), f.case.elements))
    assert 1 <= len(first.before) <= 3
    assert fuzz("replay", first.id)[0] == 1
    path = here / "again.py"
    assert fuzz("show", first.id, "--reproducer", path)[0] == 0
    assert path.read_text().count("must run before") == len(first.before)
    with Store("corpus") as store:
        (result,) = replay([Item("it", first.case, first.subject, first)], store, timeout=5.0, memory_mb=512)
        assert (result.outcome, result.verdict.kind) == (Outcome.FAILS, Kind.STATEFUL)
        committed = promote(store, first)
    kernel(here, RIGHT)
    assert fuzz("replay", first.id)[0] == 0
    assert next(f for f in findings() if f.id == first.id).state is State.FIXED
    kernel(here, text)
    assert fuzz("replay", committed)[0] == 1


def test_a_hang_that_needs_other_calls_is_run_again_with_them(fuzz, here):
    kernel(here, COUNTS.format(rule="==") + "        __import__('time').sleep(1e6)\n")
    assert search(fuzz, "--timeout", 0.4, cases=32)[0] == 1
    first = min((f for f in findings() if f.verdict.kind is Kind.STATEFUL), key=lambda f: len(f.before))
    assert 1 <= len(first.before) <= 3
    assert "no result within 0.4 s" in first.verdict.message
    assert fuzz("replay", first.id, "--timeout", 0.4)[0] == 1


def test_a_sum_that_nobody_clears_is_found(fuzz, here):
    kernel(here, SUMS)
    assert search(fuzz, cases=32)[0] == 1
    assert {f.verdict.kind for f in findings()} <= {Kind.NONDETERMINISTIC, Kind.STATEFUL}


def test_who_keeps_workspaces_and_compiled_functions_is_not_accused(fuzz, here):
    kernel(here, WORKSPACES)
    assert search(fuzz, cases=160)[0] == 0
    assert findings() == []


# an old bug's record

OLD, NEW = (
    "    if x.shape[1] >= 40:\n        out[..., -1:] = 5\n",
    "    if x.shape[1] == 7:\n        out[..., -1:] = 6\n",
)


def test_a_new_bug_is_not_taken_for_a_repaired_one(fuzz, here):
    """The whole life: found, repaired beside a new bug of the same signature, found anew, promoted, broken again."""
    kernel(here, RIGHT + OLD)
    assert search(fuzz, cases=160)[0] == 1
    old = {f.id: f for f in findings()}
    assert all("is 5" in f.verdict.message for f in old.values())
    kernel(here, RIGHT + NEW)
    code, out, _ = search(fuzz, cases=160)
    assert (code, "is 5" in out, "is 6" in out) == (1, False, True)
    found = {f.id: f for f in findings()}
    met = {i for i in old if found[i].state is State.FIXED}
    new = {i: f for i, f in found.items() if i not in old}
    assert met
    assert new
    assert State.REGRESSION not in {f.state for f in found.values()}
    assert {f.signature.key for f in new.values()} & {found[i].signature.key for i in met}, "what made them look alike"
    assert all("is 6" in f.verdict.message and f.case.tensors["x"].shape[1] == 7 for f in new.values())
    assert all(fuzz("replay", i)[0] == 0 for i in met)
    assert all(fuzz("replay", i)[0] == 1 for i in new)
    with Store("corpus") as store:
        committed = [promote(store, found[i]) for i in met]
    kernel(here, RIGHT + OLD)
    search(fuzz, cases=160)
    found = {f.id: f for f in findings()}
    assert {found[i].state for i in met} == {State.REGRESSION}
    assert {fuzz("replay", path)[0] for path in committed} == {1}


def test_a_finding_tells_what_fails_now(fuzz, here):
    kernel(here, RIGHT + OLD)
    search(fuzz, cases=160)
    kernel(here, RIGHT + OLD.replace("= 5", "= 9"))
    code, out, _ = search(fuzz, cases=160)
    assert (code, "is 5" in out, "is 9" in out) == (1, False, True)
    assert "is 9" in fuzz("show", findings()[0].id)[1]


# trouble of ours


def test_no_trouble_of_ours_loses_a_finding(fuzz, here, monkeypatch):
    def breaks(*_, **__):
        raise InternalError("the oracle has a hole")

    kernel(here, RIGHT + OLD)
    monkeypatch.setattr("kernel_assay.fuzz.triage.triage.learn_gates", breaks)
    code, out, err = search(fuzz, cases=160)
    assert code == 1
    assert "the oracle has a hole" in err
    assert all(f.verdict.failed for f in findings())
    assert all(any("the oracle has a hole" in event.what for event in f.history) for f in findings())
    assert "silu/mine: mismatch" in out


CONTRACT = """
import numpy as np
from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output
CALLS = []
def reference(x):
    CALLS.append(1)
    if x.shape[1] % 4 or x.shape[1] == 12 and {late}:
        raise ValueError("nobody asked for this")
    return {{"out": 2 * x}}
CONTRACT = Contract(
    name="twice", summary="twice x", dims={{"rows": Dim(1, 64), "cols": Dim(4, 64, multiple=4)}},
    inputs={{"x": Input(("rows", "cols"))}}, outputs={{"out": Output(("rows", "cols"), like="x")}},
    variants=({{"x": "float32"}},), reference=reference,
)
"""
TWICE = 'OP = "twice"\ndef run(out, x):\n    out[...] = 2 * x\n    if x.shape[1] > 20:\n        out[:, -1] = 5\n'


def test_a_reference_that_fails_ends_a_search_and_loses_nothing(fuzz, here):
    """It fails on a shape that the contract allows: the search cannot go on, and what it has found is told and kept."""
    kernel(here, TWICE)
    (here / "twice.py").write_text(CONTRACT.format(late="len(CALLS) > 60"))
    code, out, err = search(fuzz, "--contract", "twice.py", cases=9600)
    assert code == 2
    assert "nobody asked for this" in err
    assert "twice/mine: mismatch" in out
    assert findings()


def test_the_oracle_may_fail_on_a_candidate(here):
    kernel(here, TWICE)
    (here / "twice.py").write_text(CONTRACT.format(late="True"))
    add_contract(here / "twice.py")
    recipe = TensorRecipe(shape=(9, 48), dtype="float32", fill=Fill(distribution="normal"))
    case = Case(op="twice", tensors={"x": recipe})
    with Examiner([user_subject(str(here / "mine.py"), ("twice",))]) as examiner:
        verdict = examiner.check([CheckRequest(case, ("twice/mine",))])[0].verdicts["twice/mine"]
        found = investigate(examiner, Failure(case, examiner.subjects["twice/mine"], verdict), seconds=10.0)
    assert found.finding.case.tensors["x"].shape == (1, 24)
    assert "nobody asked for this" in found.trouble
