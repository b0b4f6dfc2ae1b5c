"""Who is slow once is not late, who hangs is; and nobody is late because of what others do to clocks and processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.boundary.processes import kill_group, processes, status_of
from kernel_assay.kernels.boundary.protocol import IDLE
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox import patience
from kernel_assay.kernels.sandbox.compiler_caches import compiler_caches
from kernel_assay.kernels.sandbox.patience import BUILD_SECONDS, FIRST_SECONDS, Clock, Stopwatch, is_building

pytestmark = pytest.mark.usefixtures("own_zygotes")
PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
TIMEOUT = 0.4
RIGHT = "    w = x.astype(np.float64)\n    return (w / (1.0 + np.exp(-w))).astype(x.dtype)\n"
HEAD = 'import os\nimport sys\nimport time\nimport numpy as np\nOP = "silu"\nCALLS = []\n\n\ndef run(x):\n'


def silu(*shape, seed=1):
    recipe = TensorRecipe(shape=shape, dtype="float32", fill=Fill(distribution="normal", seed=seed))
    return Case(op="silu", tensors={"x": recipe})


CASES = [silu(3, 5, seed=s) for s in range(1, 5)]


@pytest.fixture
def subject(tmp_path):
    def write(name, body, head=HEAD):
        path = tmp_path / f"{name}.py"
        path.write_text(f"{head}{body}{RIGHT}")
        return user_subject(str(path), ())

    return write


def kinds(examiner, subject, cases=CASES):
    """Of a subject, beside a peer that must pass."""
    both = tuple(dict.fromkeys((subject.key, PEER.key)))
    checked = examiner.check([CheckRequest(c, both) for c in cases])
    assert {c.verdicts[PEER.key].kind for c in checked} == {Kind.PASS}
    return [c.verdicts[subject.key].kind for c in checked]


def test_a_first_call_may_take_longer(subject):
    slow = subject("slow", f"    CALLS or time.sleep({1.5 * TIMEOUT})\n    CALLS.append(1)\n")
    with Examiner([slow, PEER], timeout=TIMEOUT) as examiner:
        assert kinds(examiner, slow) == [Kind.PASS] * len(CASES)
        assert examiner.sandbox.deaths == 0


def test_who_takes_too_long_every_time_is_late_though_a_first_call_may_take_longer(subject):
    slow = subject("slow", f"    time.sleep({0.7 * TIMEOUT})\n")  # twice in an execution
    with Examiner([slow, PEER], timeout=TIMEOUT) as examiner:
        assert kinds(examiner, slow, CASES[:2]) == [Kind.TIMEOUT] * 2


def test_several_that_are_slow_at_first_in_one_case_are_all_answered(subject):
    body = f"    CALLS or time.sleep({1.5 * TIMEOUT})\n    CALLS.append(1)\n"
    slow = [subject(f"slow{n}", body) for n in range(3)]
    late = subject("late", f"    time.sleep({0.7 * TIMEOUT})\n")
    with Examiner([*slow, late], timeout=TIMEOUT) as examiner:
        checked = examiner.check([CheckRequest(CASES[0], tuple(s.key for s in (slow[0], late, *slow[1:])))])[0]
    assert {s.name: checked.verdicts[s.key].kind for s in slow} == {s.name: Kind.PASS for s in slow}
    assert checked.verdicts[late.key].kind is Kind.TIMEOUT


def test_who_hangs_is_late_and_costs_more_than_the_limit_once_only(subject):
    hangs = subject("hangs", "    time.sleep(60)\n")
    with Examiner([hangs, PEER], timeout=TIMEOUT) as examiner:
        took = []
        for case in CASES[:2]:
            begin = time.monotonic()
            checked = examiner.check([CheckRequest(case, (hangs.key,))])[0]
            took.append(time.monotonic() - begin)
            assert checked.verdicts[hangs.key].kind is Kind.TIMEOUT
            assert f'hangs.py", line {HEAD.count(chr(10)) + 1} in run' in checked.executions[hangs.key].detail
    assert took[0] >= 3 * TIMEOUT
    assert took[1] < took[0] - TIMEOUT


def test_a_late_run_of_who_was_slow_at_first_is_no_reason_to_deny_it_the_next_first_call(subject):
    body = f"    CALLS or time.sleep({1.5 * TIMEOUT})\n    CALLS.append(1)\n    x.shape[0] == 7 and time.sleep(60)\n"
    slow = subject("slow", body)
    with Examiner([slow, PEER], timeout=TIMEOUT) as examiner:
        cases = [CASES[0], silu(7, 2), *CASES[1:]]
        assert kinds(examiner, slow, cases) == [Kind.PASS, Kind.TIMEOUT, *[Kind.PASS] * len(CASES[1:])]


def test_a_call_that_compiles_may_take_much_longer_whichever_it_is(subject, tmp_path):
    compiler = tmp_path / "torch" / "_inductor" / "compile_fx.py"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(f"import time\n\ndef compiled():\n    time.sleep({4 * TIMEOUT})\n")
    body = (
        f"    sys.path[:0] = [{str(compiler.parent)!r}]\n    import compile_fx\n"
        "    if x.shape not in CALLS:\n        compile_fx.compiled()\n        CALLS.append(x.shape)\n"
    )
    compiles = subject("compiles", body)
    with Examiner([compiles, PEER], timeout=TIMEOUT) as examiner:
        assert kinds(examiner, compiles, [silu(2, 3), silu(2, 3, seed=2), silu(3, 2)]) == [Kind.PASS] * 3
        assert examiner.sandbox.deaths == 0


def test_a_function_that_torch_compiles_is_right_however_long_that_takes(tmp_path):
    """Without a code generator, whose compiler takes a minute; the way through torch is the same."""
    pytest.importorskip("torch")
    path = tmp_path / "compiled.py"
    path.write_text(
        'import torch\nOP = "silu"\nBACKEND = "torch"\n\n\n'
        '@torch.compile(backend="eager")\ndef run(x):\n    return x * torch.sigmoid(x)\n'
    )
    compiled = user_subject(str(path), ())
    with Examiner([compiled], timeout=0.2) as examiner:
        verdict = examiner.check([CheckRequest(CASES[0], (compiled.key,))])[0].verdicts[compiled.key]
        assert (verdict.kind, examiner.sandbox.deaths) == (Kind.PASS, 0)


def test_where_a_process_is_tells_whether_it_builds_something():
    places = {
        "/lib/torch/_dynamo/convert_frame.py": True,
        "/lib/torch/_dynamo/eval_frame.py": False,
        "/lib/torch/_inductor/output_code.py": False,
        "/lib/torch/_inductor/utils.py": False,
        "/lib/torch/_inductor/codegen/cpp.py": True,
        "/lib/triton/compiler/compiler.py": True,
        "/lib/triton/runtime/jit.py": False,
        "/lib/python3.12/subprocess.py": True,
        "<frozen importlib._bootstrap>": True,
        "/home/me/kernel.py": False,
    }
    assert {p: is_building(f'Current thread:\n  File "{p}", line 1 in run\n') for p in places} == places


def test_what_is_granted_ends(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(patience, "_monotonic", lambda: now[0])

    def lasted(stack, *, first):
        """Seconds that a run may take which does one thing only."""
        watch, limit = Stopwatch(), 10.0
        watch.spent((0, 0, 1))
        while watch.spent((0, 0, 1)) < limit + watch.granted or watch.grant(limit, stack, first=first):
            now[0] += 0.1
        return watch.spent((0, 0, 1))

    assert lasted("", first=False) == pytest.approx(10.0, abs=0.2)
    assert lasted("", first=True) == pytest.approx(10.0 + FIRST_SECONDS, abs=0.2)
    compiling = 'File "/lib/triton/compiler/compiler.py", line 3 in compile'
    assert lasted(compiling, first=False) == pytest.approx(10.0 + BUILD_SECONDS, abs=0.2)


def test_a_clock_stands_still_while_nobody_looks(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(patience, "_monotonic", lambda: now[0])
    clock = Clock()
    begin = clock()
    for _ in range(10):
        now[0] += 0.05
        clock()
    assert clock() - begin == pytest.approx(0.5)
    now[0] += 3600.0
    assert clock() - begin < 0.7


def test_nothing_in_progress_takes_no_time():
    watch = Stopwatch()
    assert watch.spent((IDLE, IDLE, 5)) == 0.0


@pytest.mark.parametrize("clock", ["monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time"])
def test_a_clock_that_a_subject_puts_in_the_place_of_another_harms_nobody(subject, clock):
    patches = subject("patches", "", HEAD.replace("\n\n\n", f"\ntime.{clock} = lambda: 0\n\n\n"))
    with Examiner([patches, PEER], timeout=TIMEOUT) as examiner:
        assert kinds(examiner, patches) == [Kind.CHEATED] * len(CASES)
        assert kinds(examiner, PEER) == [Kind.PASS] * len(CASES)


def test_a_lie_in_the_journal_about_the_time_makes_nobody_late(subject):
    lies = subject(
        "lies",
        "    import gc\n    for worker in (o for o in gc.get_objects() if type(o).__name__ == 'Worker'):\n"
        "        sys.modules[type(worker).__module__]._monotonic_ns = lambda: 0\n",
    )
    with Examiner([lies, PEER], timeout=TIMEOUT) as examiner:
        assert kinds(examiner, lies) == [Kind.CHEATED] * len(CASES)
        assert kinds(examiner, PEER) == [Kind.PASS] * len(CASES)


def test_a_stop_of_all_processes_makes_nobody_late(subject):
    """As a debugger stops them, or the lid of a laptop: the supervisor does not run meanwhile."""
    slow = subject("slow", f"    time.sleep({0.3 * TIMEOUT})\n")
    with Examiner([slow, PEER], timeout=TIMEOUT) as examiner:
        examiner.check([CheckRequest(CASES[0], (slow.key,))])
        stopped = []
        box = next(one for one in examiner.sandbox._members.values() if slow.key in one._subjects)

        def stop():
            if len(stopped) < 3:
                pid = box.pool.pid_of(box._active)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(3 * TIMEOUT)
                os.kill(pid, signal.SIGCONT)
                stopped.append(pid)

        box.beside = stop
        assert kinds(examiner, slow) == [Kind.PASS] * len(CASES)
    assert stopped


@pytest.mark.parametrize(
    ("number", "then"), [(signal.SIGKILL, ""), (signal.SIGKILL, "; time.sleep(1)"), (signal.SIGSTOP, "")]
)
def test_who_ends_or_stops_the_mother_of_all_workers_harms_nobody_else(subject, number, then, monkeypatch):
    monkeypatch.setattr("kernel_assay.kernels.sandbox.worker_pool._EXIT_SECONDS", 0.3)
    kills = subject("kills", f"    os.kill(os.getppid(), {int(number)}){then}\n")
    with Examiner([kills, PEER], timeout=3.0, closed=False) as examiner:
        checked = examiner.check([CheckRequest(c, (PEER.key, kills.key)) for c in CASES[:2]])
        again = examiner.check([CheckRequest(CASES[0], (PEER.key,))])
    assert {c.verdicts[PEER.key].kind for c in (*checked, *again)} == {Kind.PASS}
    if then:  # else its worker may have run all before it hears of it
        said = {c.verdicts[kills.key].message for c in checked}
        assert said == {"it crashed: it ended or stopped the process that starts all others"}


def test_zygotes_that_end_without_a_word_are_replaced_until_it_must_be_our_own_affair():
    with Examiner([PEER], timeout=3.0) as examiner:
        pool = examiner.sandbox.pool
        for _ in range(3):
            pool._begin_anew()
        assert pool.pid_of(pool.spawn()), "and a word makes good for all before it"
        assert kinds(examiner, PEER, [CASES[0]]) == [Kind.PASS]
        assert pool.pid_of(pool.spawn())
        for _ in range(3):
            pool._begin_anew()
        with pytest.raises(InternalError, match="before it had forked"):
            pool._begin_anew()


def test_a_branch_that_loses_its_zygote_gets_another(subject):
    kills = subject("kills", "    if x.shape[0] == 3:\n        os.kill(os.getppid(), 9)\n        time.sleep(1)\n")
    with Examiner([kills, PEER], timeout=3.0, closed=False) as examiner:
        with examiner.twin(examiner.sandbox.pool.branch({}), Place("cpu")) as twin:
            assert kinds(twin, kills, [silu(2, 2), CASES[0], silu(2, 5)]) == [Kind.PASS, Kind.CRASHED, Kind.PASS]
        assert kinds(examiner, kills, [silu(2, 2)]) == [Kind.PASS]


def test_what_a_subject_leaves_behind_by_two_forks_does_not_outlive_its_worker(subject, tmp_path):
    note = tmp_path / "pids"
    body = (
        "    for _ in range(20):\n        if not os.fork():\n            os.setsid()\n"
        "            if not os.fork():\n"
        f"                open({str(note)!r}, 'a').write(f'{{os.getpid()}}\\n')\n                time.sleep(60)\n"
        "            os._exit(0)\n        os.wait()\n"
    )
    forks = subject("forks", body)
    with Examiner([forks, PEER], closed=False) as examiner:
        assert kinds(examiner, forks, CASES[:1]) == [Kind.PASS]
        deadline = time.monotonic() + 5
        while len(note.read_text().split()) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
    pids = set(map(int, note.read_text().split()))
    assert len(pids) >= 40
    assert not pids & {p for p in processes() if not status_of(p).ended}


def test_what_compilers_make_is_kept_where_no_worker_ends_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    caches = compiler_caches()
    assert Path(caches["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(tmp_path / "kernel-assay")
    assert "TRITON_CACHE_DIR" not in caches, "what a user has set stays"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiler_caches() == {}


def test_nobody_is_ended_in_place_of_a_worker_whose_pid_was_never_known():
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        kill_group(0)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
