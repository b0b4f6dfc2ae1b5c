"""Whatever a subject does: it gets its own verdict, its neighbours get theirs, and nothing is left behind."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.fuzz.checking.check import Examiner, interface_of
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.boundary.protocol import IDLE, JOURNAL, STACK_AT, Task
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox import sandbox as module
from kernel_assay.kernels.sandbox.batch import PendingBatch
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.kernels.sandbox.worker_pool import Handle
from kernel_assay.kernels.worker.worker import Worker
from kernel_assay.oracles.catalog import contract_of

pytestmark = pytest.mark.usefixtures("own_zygotes")
FAULTS = {p.stem: user_subject(str(p), ()) for p in sorted((Path(__file__).parents[1] / "faults").glob("*.py"))}
PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
TIMEOUT = 0.7
WORDS = {
    "aborts": "killed by SIGABRT",
    "changes_input": "'x'",
    "closes_files": "it closed the channel to its supervisor",
    "eats_memory": "ran out of memory",
    "every_second": "two runs on the same input differ in 15 elements",
    "exits": "the process exited with 0",
    "hangs": "no result within 0.7 s",
    "hangs_deaf": "no result within 0.7 s",
    "leaves_one": "out[2, 4] was never written (1 of 15 elements were not)",
    "leaves_python": "SystemExit",
    "not_contiguous": "not contiguous",
    "other_dtype": "float64, wanted float32",
    "other_shape": "(15,), wanted (3, 5)",
    "raises": "ValueError: cannot do (3, 5)",
    "returns_cached": "out of a second call lies in the memory of the first call's result",
    "returns_input": "the memory of its input 'x'",
    "segfault": "killed by SIGSEGV",
    "writes_before": "it wrote 4 bytes outside the elements of 'out'",
    "writes_past": "outside the elements of 'out', at byte 6",
}


def silu(*shape, seed=1, **fields):
    fill = Fill(distribution="normal", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill, **fields)})


CASES = [silu(3, 5, seed=s) for s in range(6)]
MIXED = [silu(2, 4), silu(1, 7), silu(3, 5), silu(2, 2), silu(4, 1)]
"""One has three rows."""


def box_of(*subjects, **settings):
    faces = {"silu": interface_of(contract_of("silu"))}
    return Sandbox(subjects, faces, **{"timeout": 5.0, **settings})


def task(case, *subjects):
    return Task(case, contract_of("silu").output_specs(case), tuple(s.key for s in subjects))


@pytest.fixture(scope="module")
def examiner():
    with Examiner([PEER, *FAULTS.values()], timeout=TIMEOUT, memory_mb=256) as made:
        yield made


@pytest.fixture
def subject(tmp_path):
    def write(name, body, head=""):
        path = tmp_path / f"{name}.py"
        path.write_text(
            f'import os\nimport time\nimport numpy as np\n{head}\nOP = "silu"\n\n\ndef run(out, x):\n{body}\n'
        )
        return user_subject(str(path), ())

    return write


RIGHT = "    w = x.astype(np.float64)\n    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)"


def test_every_fault_has_its_words():
    assert set(WORDS) | {"floods_stdout"} <= set(FAULTS)
    assert {n for n, s in FAULTS.items() if not s.planted} == {"floods_stdout"}


@pytest.mark.parametrize("name", sorted(set(WORDS) & set(FAULTS)))
def test_a_fault_earns_its_verdict_in_its_own_words_and_the_rest_of_the_batch_is_answered(examiner, name):
    fault = FAULTS[name]
    asked = [CheckRequest(c, (PEER.key, fault.key, PEER.key)[: 2 if i == 2 else 1]) for i, c in enumerate(CASES)]
    checked = examiner.check(asked)
    assert [c.case.id for c in checked] == [c.id for c in CASES]
    assert all(c.verdicts[PEER.key].kind is Kind.PASS for c in checked)
    verdict = checked[2].verdicts[fault.key]
    assert verdict.kind == fault.planted, verdict
    assert WORDS[name] in verdict.message
    assert verdict.signature.subject == name
    assert "\n" not in verdict.message


def test_a_subject_that_writes_128_megabytes_to_its_output_is_right(examiner):
    flood = FAULTS["floods_stdout"]
    checked = examiner.check([CheckRequest(c, (flood.key, PEER.key)) for c in CASES[:2]])
    assert [v.kind for c in checked for v in c.verdicts.values()] == [Kind.PASS] * 4


@pytest.mark.parametrize("name", ["hangs", "hangs_deaf"])
def test_a_timeout_costs_the_timeout_and_little_more(examiner, name):
    examiner.check([CheckRequest(CASES[0], (FAULTS[name].key,))])  # a first call may take longer (test_patience.py)
    begin = time.monotonic()
    examiner.check([CheckRequest(CASES[0], (FAULTS[name].key,)), CheckRequest(CASES[1], (PEER.key,))])
    assert TIMEOUT <= time.monotonic() - begin < TIMEOUT + 0.3


def test_the_journal_names_the_killer_among_its_neighbours(examiner):
    order = ["raises", "segfault", "every_second"]
    asked = [
        CheckRequest(c, (PEER.key, *(FAULTS[n].key for n in order), FAULTS["changes_input"].key)) for c in CASES[:3]
    ]
    deaths = examiner.sandbox.deaths
    for checked in examiner.check(asked):
        kinds = {k.partition("/")[2]: v.kind for k, v in checked.verdicts.items()}
        assert kinds == {
            "numpy_float32": Kind.PASS,
            "raises": Kind.RAISED,
            "segfault": Kind.CRASHED,
            "every_second": Kind.NONDETERMINISTIC,
            "changes_input": Kind.INPUT_MUTATED,
        }
    assert examiner.sandbox.deaths - deaths == 4, "one crash is seen twice, and nobody else dies"


def test_who_runs_when_another_subjects_leftover_kills_the_worker_is_not_blamed(subject):
    late = subject("late", f"    threading.Timer(0.1, os.abort).start()\n{RIGHT}", "import threading")
    slow = subject("slow", f"    time.sleep(0.2)\n{RIGHT}")
    with Examiner([late, slow, PEER]) as examiner:
        checked = examiner.check([CheckRequest(c, (late.key, slow.key, PEER.key)) for c in CASES[:2]])
        assert examiner.sandbox.deaths
    assert all(c.verdicts[s.key].kind is Kind.PASS for c in checked for s in (slow, PEER))
    accused = [c.verdicts[late.key] for c in checked if c.verdicts[late.key].kind is not Kind.PASS]
    assert accused, "whose leftover it was is found by running the two together"
    assert all("it left the process so that the next died: killed by SIGABRT" in v.message for v in accused)


def test_whose_silent_damage_kills_a_later_run_of_another_is_found_among_all_before(subject):
    harm = "    import builtins\n    if x.shape[0] == 3:\n        builtins.broken = True\n"
    silent, other = subject("silent", f"{harm}{RIGHT}"), subject("other", RIGHT)
    frail = subject("frail", f"    import builtins\n    if hasattr(builtins, 'broken'):\n        os.abort()\n{RIGHT}")
    with Examiner([silent, other, frail]) as examiner:
        checked = examiner.check([CheckRequest(c, (silent.key, other.key, frail.key)) for c in MIXED])
    kinds = {s.name: [c.verdicts[s.key].kind for c in checked] for s in (silent, other, frail)}
    assert set(kinds["other"]) == set(kinds["frail"]) == {Kind.PASS}
    assert [k is Kind.CRASHED for k in kinds["silent"]] == [c.tensors["x"].shape[0] == 3 for c in MIXED]


def test_a_death_like_one_that_was_seen_alone_is_believed(subject):
    """Each costs a worker, on a GPU a third of a second: a kernel that always crashes would stop the search."""
    bad = subject("bad", "    os.abort()")
    with Examiner([bad, PEER]) as examiner:
        checked = examiner.check([CheckRequest(c, (bad.key, PEER.key)) for c in CASES])
        assert examiner.sandbox.deaths == len(CASES) + 1, "only one of them is run again"
    assert {c.verdicts[bad.key].kind for c in checked} == {Kind.CRASHED}
    assert {c.verdicts[PEER.key].kind for c in checked} == {Kind.PASS}


def test_a_death_unlike_one_that_was_seen_alone_is_tried_alone_too(subject, notes):
    once = notes / "once"
    body = (
        f"    if x.shape[0] == 3:\n        os.abort()\n    if not os.path.exists({str(once)!r}):\n"
        f"        open({str(once)!r}, 'w').close()\n        os.kill(os.getpid(), 11)\n"
    )
    bad = subject("bad", body + RIGHT)
    with Examiner([bad]) as examiner:
        checked = examiner.check([CheckRequest(c, (bad.key,)) for c in MIXED])
        assert examiner.sandbox.deaths == 3, "the one that had a case of its own was run again"
    said = [c.verdicts[bad.key].message for c in checked]
    assert said[2] == "it crashed: killed by SIGABRT"
    assert [one for one in said[:2] + said[3:] if one] == ["it crashed: killed by SIGSEGV"]


@pytest.mark.parametrize(("name", "kind", "deaths"), [("segfault", Kind.CRASHED, 3), ("hangs", Kind.TIMEOUT, 2)])
def test_who_dies_again_and_again_is_let_be_until_the_next_batch(examiner, name, kind, deaths):
    fault, box = FAULTS[name], examiner.sandbox
    asked, before = [CheckRequest(c, (fault.key, PEER.key)) for c in CASES], box.deaths
    checked = examiner.land(examiner.launch(asked, most_deaths=2))
    assert box.deaths - before == deaths
    verdicts = [c.verdicts[fault.key] for c in checked]
    assert [v.kind for v in verdicts] == [kind, kind, *[Kind.UNSUPPORTED] * (len(CASES) - 2)]
    assert "not run: it has ended its process, or had to be killed, in 2 other cases" in verdicts[-1].message
    assert {c.verdicts[PEER.key].kind for c in checked} == {Kind.PASS}


def test_who_was_killed_by_another_again_and_again_runs_when_that_is_known(subject):
    silent = subject("silent", f"    import builtins\n    builtins.broken = True\n{RIGHT}")
    frail = subject("frail", f"    import builtins\n    if hasattr(builtins, 'broken'):\n        os.abort()\n{RIGHT}")
    with Examiner([silent, frail]) as examiner:
        asked = [CheckRequest(c, (silent.key, frail.key)) for c in MIXED]
        checked = examiner.land(examiner.launch(asked, most_deaths=1))
    assert {c.verdicts[frail.key].kind for c in checked} == {Kind.PASS}
    assert Kind.CRASHED in {c.verdicts[silent.key].kind for c in checked}


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "__import__('signal').raise_signal(11)"])
def test_a_death_that_nobody_can_repeat_is_told(subject, notes, end):
    once = notes / "once"
    body = f"    if not os.path.exists({str(once)!r}):\n        open({str(once)!r}, 'w').close()\n        {end}\n"
    rare = subject("rare", body + RIGHT)
    with Examiner([PEER, rare]) as examiner:
        checked = examiner.check([CheckRequest(c, (PEER.key, rare.key)) for c in CASES])
        assert examiner.sandbox.deaths == 1
    assert {c.verdicts[PEER.key].kind for c in checked} == {Kind.PASS}
    assert sorted(c.verdicts[rare.key].kind for c in checked) == [Kind.CRASHED, *[Kind.PASS] * (len(CASES) - 1)]


def test_what_the_gpu_said_last_is_the_verdict_of_a_worker_it_is_lost_to(subject):
    words = "CUDA_ERROR_ASSERT: device-side assert triggered"
    lost = subject("lost", f"    os.write(2, b'noise\\n{words}\\n')\n    os._exit(87)")
    with Examiner([lost]) as examiner:
        verdict = examiner.check([CheckRequest(CASES[0], (lost.key,))])[0].verdicts[lost.key]
    assert verdict.kind is Kind.CRASHED
    assert verdict.message == f"it crashed: {words}"
    assert verdict.signature.error_pattern == "CUDA_ERROR_ASSERT"


def test_a_worker_that_says_the_gpu_is_lost_to_it_is_not_waited_for(subject):
    """It takes long to end, but the next result is there before; its last words are kept all the same."""
    body = (
        "    if x.shape[0] == 3:\n        os.write(1, b'assertion failed\\n')\n"
        "        gpu.os._exit = lambda code: (time.sleep(0.2), leave(code))\n"
        "        gpu.give_up('CUDA_ERROR_ASSERT: device-side assert')\n"
    )
    lost = subject(
        "lost", body + RIGHT, "from kernel_assay.kernels.backends.cuda_support import driver as gpu\nleave = os._exit"
    )
    with Examiner([lost]) as examiner:
        examiner.check([CheckRequest(MIXED[0], (lost.key,))])
        time.sleep(0.5)
        box, arrived, begin = examiner.sandbox, [], time.monotonic()
        box.pool.on_gpu = True  # else nobody is believed who says that
        receive = box._receive
        box._receive = lambda pending: (receive(pending), arrived.append(time.monotonic() - begin))
        found = examiner.check([CheckRequest(c, (lost.key,)) for c in MIXED])
    kinds = [c.verdicts[lost.key].kind for c in found]
    assert [k is Kind.CRASHED for k in kinds] == [c.tensors["x"].shape[0] == 3 for c in MIXED]
    assert len(arrived) == len(MIXED) - 1
    assert arrived[-1] < 0.2, "only the confirmation waits for the end"
    crashed = next(c for c in found if c.verdicts[lost.key].kind is Kind.CRASHED)
    assert "assertion failed" in crashed.executions[lost.key].detail


def test_a_rounding_mode_that_is_left_behind_changes_nothing_for_others(subject):
    rounds = subject("rounds", f"    import ctypes\n    ctypes.CDLL(None).fesetround(0x400)\n{RIGHT}")
    with Examiner([rounds, PEER]) as examiner:
        found = examiner.check([CheckRequest(c, (rounds.key, PEER.key)) for c in CASES])
    assert [c.verdicts[PEER.key].kind for c in found] == [Kind.PASS] * len(CASES)


def test_nothing_is_put_on_a_worker(subject):
    hides = subject(
        "hides",
        "    import gc\n    for o in gc.get_objects():\n        if type(o).__name__ == 'Worker':\n"
        f"            o._send = lambda *_: None\n{RIGHT}",
    )
    with Examiner([hides, PEER]) as examiner:
        found = examiner.check([CheckRequest(c, (hides.key, PEER.key)) for c in CASES])
    assert [c.verdicts[PEER.key].kind for c in found] == [Kind.PASS] * len(CASES)
    assert {c.verdicts[hides.key].kind for c in found} == {Kind.RAISED}


def test_who_starts_just_when_the_time_of_another_is_up_is_not_blamed(subject, monkeypatch):
    """The supervisor is held up (a loaded machine) between its decision to kill and the kill."""
    slow = subject("slow", f"    if x.shape[0] == 3:\n        time.sleep(0.3)\n{RIGHT}")
    steady = subject("steady", f"    time.sleep(0.2)\n{RIGHT}")
    with Examiner([slow, steady], timeout=0.5) as examiner:
        pool = examiner.sandbox.pool
        kill = pool.kill
        monkeypatch.setattr(pool, "kill", lambda handle: (time.sleep(0.2), kill(handle))[1])
        checked = examiner.check([CheckRequest(CASES[0], (slow.key, steady.key))])[0]
    assert checked.verdicts[steady.key].kind is Kind.PASS


def test_memory_is_limited_as_asked(subject):
    large = subject("large", f"    room = np.ones(200 << 17)\n{RIGHT}")  # 200 MB
    for memory, status in ((100, Status.OUT_OF_MEMORY), (400, Status.OK)):
        with box_of(large, memory_mb=memory) as box:
            assert box.run([task(CASES[0], large)])[0][large.key].execution.status is status


def test_what_a_subject_does_not_do_is_unsupported(subject):
    shy = subject("shy", '    raise NotImplementedError("only even rows")')
    with Examiner([shy]) as examiner:
        verdict = examiner.check([CheckRequest(CASES[0], (shy.key,))])[0].verdicts[shy.key]
    assert (verdict.kind, verdict.message, verdict.signature) == (Kind.UNSUPPORTED, "only even rows", None)


def test_last_words_and_the_line_of_a_crash_are_kept(subject):
    talks = subject(
        "talks", '    os.write(1, b"said to stdout\\n")\n    os.write(2, b"said to stderr\\n")\n    os.abort()'
    )
    with box_of(talks) as box:
        detail = box.run([task(CASES[0], talks)])[0][talks.key].execution.detail
    assert "said to stdout" in detail
    assert "said to stderr" in detail
    assert f'File "{talks.path}", line 11 in run' in detail


def test_what_a_subject_printed_before_it_crashed_is_kept(subject, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    prints = subject("prints", '    print("printed, not flushed")\n    os.abort()')
    with box_of(prints) as box:
        detail = box.run([task(CASES[0], prints)])[0][prints.key].execution.detail
    assert "printed, not flushed" in detail


def test_the_traceback_of_what_a_subject_raises_is_kept(examiner):
    execution = examiner.check([CheckRequest(CASES[0], (FAULTS["raises"].key,))])[0].executions[FAULTS["raises"].key]
    assert "raises.py" in execution.detail
    assert "cannot do" in execution.detail


def test_trouble_of_our_own_is_an_internal_error():
    unknown = silu(2, 2).but(
        tensors={"x": TensorRecipe(shape=(2, 2), dtype="float32", fill=Fill(distribution="no_such"))}
    )
    with box_of(PEER) as box, pytest.raises(InternalError, match="no_such"):
        box.run([task(unknown, PEER)])


def test_workers_are_replaced_after_enough_tasks(monkeypatch):
    monkeypatch.setattr(module, "RECYCLE", 3)
    with box_of(PEER) as box:
        used = set()
        for _ in range(6):
            outcomes = box.run([task(c, PEER) for c in CASES[:4]])
            assert all(o[PEER.key].execution.status is Status.OK for o in outcomes)
            used.add(id(box._active))
        assert len(used) > 2
        assert box.deaths == 0


def test_deaths_cost_no_file_descriptors(examiner):
    def crash():
        examiner.check([CheckRequest(c, (FAULTS["exits"].key,)) for c in CASES])

    crash()
    before = len(list(Path("/proc/self/fd").iterdir()))
    crash()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2, "a supervisor that leaks runs out of descriptors"


def test_a_sandbox_leaves_no_file_descriptors():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with box_of(PEER) as box:
        box.run([task(CASES[0], PEER)])
    del box
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_outcomes_are_the_first_runs_outputs():
    with box_of(PEER) as box:
        outcome = box.run([task(silu(2, 3, seed=5), PEER)])[0][PEER.key]
    assert outcome.outputs["out"].shape == (2, 3)
    assert outcome.outputs["out"].dtype == np.float32
    assert outcome.execution.nanoseconds > 0


def test_a_batch_is_under_way_until_its_last_execution_is_back_whatever_the_order():
    tasks = [Task(silu(n), {}, ("a", "b")) for n in (1, 2)]
    pending = PendingBatch(tasks, sent=list(enumerate(tasks)))
    for key in ((1, "b"), (0, "a"), (0, "b"), (1, "a")):
        assert pending.under_way is bool(pending.unfinished()) is True
        pending.outcomes[key] = None
    assert pending.under_way is bool(pending.unfinished()) is False
    assert pending.done


def test_a_journal_is_never_read_while_half_of_a_number_is_written():
    """A time that is off by a byte would end a kernel that has only begun."""
    journal = os.memfd_create("journal")
    os.ftruncate(journal, STACK_AT)
    os.pwrite(journal, JOURNAL.pack(IDLE, IDLE, time.monotonic_ns()), 0)
    handle, begin, beginner = Handle(None, journal), time.monotonic_ns(), os.getpid()
    if not (child := os.fork()):
        worker = Worker(None, journal)
        while os.getppid() == beginner:
            for number in range(1000):
                worker._note(number, number % 3)
                worker._note(IDLE, IDLE)
    seen, deadline = [], time.monotonic() + 60
    try:
        while len({task for task, _, _ in seen}) <= 100 and time.monotonic() < deadline:  # both have to get their turn
            seen += [handle.running() for _ in range(100_000)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(journal)
    assert len({task for task, _, _ in seen}) > 100
    off = [since - begin for _, _, since in seen if not -1e9 < since - begin < 1e11]
    assert not off
    back = [(earlier, later) for earlier, later in pairwise(seen) if later[2] < earlier[2] - 10_000]  # clocks differ
    assert not back
    assert all(task in {IDLE, *range(1000)} and position in {IDLE, 0, 1, 2} for task, position, _ in seen)
    strange = [(task, position) for task, position, _ in seen if task != IDLE and position not in {IDLE, task % 3}]
    assert not strange
