"""kill -9 at any moment: nothing acknowledged is lost, nothing torn is read.

Run as a script, this file is the pool: for each line on stdin it forks a writer, says its pid, waits for its death.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from test_store import campaign, case, finding

from kernel_assay.corpus.storage.file_store import Store

KILLS, MOST_KILLS = 24, 600
"""At least so many; more until one has fallen into a write, of which no moment is sure."""
BULK = tuple(f"gate {i}" for i in range(3000))
"""Makes a finding some 60 KB long, so that kills fall into the middle of writing it."""


def write_forever(root: Path) -> None:
    """Journal, merge, checkpoint; after each step that returned, say so in a file of acknowledgements."""
    store = Store(root)
    store.prepare()
    acks = os.open(root / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    step = len(store.read_journal("r1", "pending"))
    while True:
        step += 1
        store.journal("r1", "pending", {"step": step, "bulk": "x" * 20_000})
        os.write(acks, b"journal %d\n" % step)
        store.save_finding(finding(case(2, 3), rule=f"rule{step % 3}", gates=BULK))
        os.write(acks, b"finding %d\n" % step)
        store.checkpoint(campaign(next_index=step, coverage=dict.fromkeys(BULK, step)))
        os.write(acks, b"checkpoint %d\n" % step)
        store.add_seed(case(step % 7 + 1, 2))


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def pool(root: Path) -> None:
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                write_forever(root)
            finally:
                os._exit(1)
        say(pid)
        say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def kill_one(nurse: subprocess.Popen, root: Path, moment: float) -> None:
    """Start a writer, wait until it works, kill it `moment` seconds later."""
    acks = root / "acks"
    before = acks.stat().st_size if acks.exists() else 0
    nurse.stdin.write("\n")
    nurse.stdin.flush()
    pid = int(nurse.stdout.readline())
    patience = time.monotonic() + 5
    while not (acks.exists() and acks.stat().st_size > before) and time.monotonic() < patience:
        time.sleep(0.001)
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    assert int(nurse.stdout.readline()) == -signal.SIGKILL, "the writer died by itself"


def acknowledged(root: Path) -> dict[str, list[int]]:
    steps = {"journal": [], "finding": [], "checkpoint": []}
    for line in (root / "acks").read_text().splitlines():
        kind, step = line.split()
        steps[kind].append(int(step))
    return steps


def check(root: Path) -> None:
    store, said = Store(root), acknowledged(root)
    journalled = [record["step"] for record in store.read_journal("r1", "pending")]
    assert journalled == list(range(1, len(journalled) + 1))
    assert len(journalled) >= max(said["journal"])
    found = store.findings()
    assert len(said["finding"]) <= sum(f.count for f in found) <= len(journalled)
    assert all(f.gates == BULK for f in found)
    if said["checkpoint"]:
        reached = store.load_run("r1").next_index
        assert max(said["checkpoint"]) <= reached <= len(journalled)
    assert len({c.id for c in store.seeds("softmax")}) == len(store.seeds("softmax"))
    for path in (root / "local" / "findings").rglob("*.json"):
        json.loads(path.read_text())


def test_a_killed_writer_loses_nothing_that_it_was_told_is_safe(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__, str(tmp_path)]
    moments = random.Random(20260101)
    kills = leftovers = 0
    with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as nurse:
        while kills < KILLS or (not leftovers and kills < MOST_KILLS):
            kills += 1
            kill_one(nurse, tmp_path, moments.uniform(0, 0.06))
            leftovers += len(list(tmp_path.rglob(".*.tmp")))
            check(tmp_path)
        nurse.stdin.close()
    assert len(acknowledged(tmp_path)["journal"]) >= KILLS
    assert leftovers, "no kill fell into a write, so this test proved nothing"
    Store(tmp_path).prepare()
    assert list(tmp_path.rglob(".*.tmp")) == []


if __name__ == "__main__":
    pool(Path(sys.argv[1]))
