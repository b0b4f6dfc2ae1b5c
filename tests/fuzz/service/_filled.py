"""A server's database with all that pages can show: projects, findings of every standing, jobs of every state."""

import json
import random
import time

from _serving import asked, found
from pydantic import TypeAdapter
from sqlalchemy import update

from kernel_assay.corpus.storage.sql.rows import finding_row
from kernel_assay.corpus.storage.sql.service_tables import artifact, event, job, life
from kernel_assay.corpus.storage.sql.tables import findings as records
from kernel_assay.fuzz.service.protocol import (
    Artifact,
    Heartbeat,
    JobKind,
    JobRequest,
    JobState,
    Outcome,
    Progress,
    Project,
    Settings,
    Sources,
    Target,
)
from kernel_assay.fuzz.service.queue import jobs, leases, upkeep
from kernel_assay.fuzz.service.queue.database import plain
from kernel_assay.fuzz.service.queue.rows import record_of, text_of
from kernel_assay.fuzz.timing.history import Point, Series

DAY = 86_400.0
STATES = ("new", "open", "fixed", "reopened", "open", "wontfix", "fixed")
LONG = "a_kernel_with_a_very_long_name_that_no_line_of_a_telephone_can_hold_without_a_break_somewhere_in_it"
COMMIT = "4f2a9c1d07e3b5a6c8d9e0f1a2b3c4d5e6f70819"
KINDS = 20
"""Findings of the committed ones whose records are used; the rest are these again, under other ids."""


def fill(database, findings=60, ended=40, timed=24, now=None):
    """Fill it; ids of a finding and of jobs by name."""
    now = now or time.time()
    with database.writing() as connection:
        _projects(connection, now)
        first = _findings(connection, findings, now)
        named = _jobs(connection, ended, timed, now)
    return {"finding": first, **named}


def _projects(connection, now):
    said = Project(
        repository="https://git.example.org/vision/kernels.git",
        target=Target(ops=("softmax",), subjects=("kernels/softmax.py:softmax", f"kernels/{LONG}.cu")),
        owners=("ann@example.org", "bob@example.org"),
        settings=Settings(seconds=600),
    )
    for name in ("vision", "llm", "an-empty-one"):
        upkeep.put_project(connection, name, said, "ann", now - 60 * DAY)
    pushed = update(upkeep.project).where(upkeep.project.c.name == "vision")
    connection.execute(pushed.values(head=COMMIT, fuzzed=now - 7000))


def _findings(connection, many, now):
    drawn, known = random.Random(1), [found(number) for number in range(min(many, KINDS))]
    rows = [(one, finding_row(one)) for one in known]
    lives, events, kept = [], [], []
    for number in range(many):
        one, columns = rows[number % len(rows)]
        name = one.id if number < len(rows) else f"{number:016x}"
        state, born = STATES[number % len(STATES)], now - drawn.random() * 70 * DAY
        project = ("vision", "llm", "")[number % 3]
        since = born + drawn.random() * (now - born)
        subject = one.subject.key if number % 11 else f"{one.signature.op}/{LONG}"
        kept.append({"project": project, "id": name, **columns})
        lives.append(
            {
                "project": project,
                "finding": name,
                "op": one.signature.op,
                "subject": subject,
                "kind": one.verdict.kind.value,
                "dtype": one.case.dtype,
                "title": one.verdict.message,
                "state": state,
                "since": since,
                "created": born,
                "seen": since,
                "times": 1 + number % 5,
                "job": f"{number % 97:016x}",
                "seen_commit": COMMIT if project else "",
                "reason": "known, and the caller never does that" if state == "wontfix" else "",
            }
        )
        about = {"noun": "finding", "about": name, "project": project, "who": "kassay"}
        events.append({"at": born, "what": "new", "words": f"met by job {number % 97:016x}", **about})
        if state == "reopened":
            between = born + (since - born) / 2
            events.append({"at": between, "what": "fixed", "words": "the stored case passes", **about})
        if state != "new":
            events.append({"at": since, "what": state, "words": f"at {COMMIT[:12]}", **about})
    for table, values in ((records, kept), (life, lives), (event, sorted(events, key=lambda e: e["at"]))):
        connection.execute(table.insert(), values)
    return known[0].id


def _jobs(connection, many, timed, now):
    named = {}
    for number in range(many):
        state = ("done", "done", "done", "cancelled")[number % 4]
        name = _job(connection, JobKind.FUZZ, project=("vision", "gone", None)[number % 3])
        _end(connection, name, state, now - number * 7 * 3600, verdict="wrong" if number % 5 == 0 else "right")
        named[state] = name
    for number in range(timed):
        named["timed"] = _timed(connection, number, timed, now)
    named["failed"] = _job(connection, JobKind.BISECT, project="gone", finding=found(0))
    reason = f"kernels/{LONG}.py does not load: ModuleNotFoundError: No module named 'flash_attn'"
    _end(connection, named["failed"], "failed", now - 500, reason=reason)
    named["lost"] = _job(connection, JobKind.FUZZ)
    _end(connection, named["lost"], "lost", now - 900, reason="the worker w9 went away; 3 leases of it have run out")
    for seconds in (9000, 400):
        gone = asked("w9" if seconds == 9000 else "gpu-box-3", devices=("NVIDIA H100 80GB HBM3",) * 2)
        leases.meet(connection, gone, "t", now - seconds)
    leases.meet(connection, asked("w1"), "t", now)
    named |= _running(connection, now)
    named["waiting"] = _job(connection, JobKind.JUDGE, project="llm")
    _job(connection, JobKind.TIME, project="vision")
    return named


def _job(connection, kind, **more):
    target = Target(ops=("softmax",), subjects=(f"kernels/{LONG}.py:softmax",))
    sources = Sources(files={"a.py": "def run(x): return x\n"}) if not more.get("finding") else None
    checkout = {"repository": "https://git.example.org/vision/kernels.git", "commit": COMMIT} if not sources else None
    more |= {"sources": sources, "checkout": checkout, "settings": Settings(cases=256_000)}
    return jobs.submit(connection, JobRequest(kind=kind, target=target, **more), "ann")[0]


def _end(connection, name, state, at, **more):
    times = {"created": at - 120, "started": at - 100, "ended": at}
    done = {"state": state, "open_tasks": 0, "worker": "w1", **times, **more}
    told = Progress(cases=12_800, judged=51_200, cells=412, seconds=98.5, line="51,200 outputs judged")
    connection.execute(update(job).where(job.c.id == name).values(progress=text_of(told), **done))
    connection.execute(update(leases.task).where(leases.task.c.job == name).values(state=JobState(state).value))


def _timed(connection, number, many, now):
    """A job of times; of two kernels one is 14 % slower in the last four."""
    name = _job(connection, JobKind.TIME, project="vision", finding=found(0))
    levels = {f"softmax/{LONG}": 1.14 if number >= many - 4 else 1.0, "softmax/steady": 0.6}
    noise = 1 + 0.003 * ((number * 7) % 5 - 2)
    made = [
        Series(key, case, "AMD EPYC 9354, 2 threads", (Point("", "", "", t, t * 0.97, t * 1.05),))
        for key, level in levels.items()
        for case, size in (
            ("softmax float32 x=64x256:normal scale=1.0", 2e-5),
            ("softmax float32 x=4096x4096:normal", 9e-3),
        )
        for t in [size * level * noise]
    ]
    request = record_of(jobs.row_of(connection, name)["request"], JobRequest)
    commit = f"{number * 0x9E3779B1 % 2**28:07x}" + "0" * 33
    at_commit = request.but(checkout=request.checkout.but(commit=commit), finding=None)
    text = plain(TypeAdapter(list[Series]).dump_json(made).decode())
    connection.execute(artifact.insert().values(job=name, name="history.json", body=text))
    _end(connection, name, "done", now - (many - number) * DAY, verdict="right", request=text_of(at_commit), finding="")
    return name


def _running(connection, now):
    name = _job(connection, JobKind.FUZZ, project="vision")
    named = {"running": name}
    for part in range(3):
        held = leases.lease(connection, asked("w1"), now - 300 + 100 * part)
        line = "40,960 outputs judged, 0 findings"
        told = Progress(cases=200 + part, judged=40_960, cells=380 + part, seconds=60.0, quiet=7.5, line=line)
        log = f"part {part}: softmax/{LONG} on float32\n" * 4
        leases.heartbeat(connection, held.task, Heartbeat(epoch=held.epoch, progress=told, log=log), now)
        named["task"], named["epoch"] = held.task, held.epoch
        if part < 2:
            cells = {
                f"softmax|float32|shape {n}|contiguous|normal|mine": 1 for n in range(300 * part, 350 + 200 * part)
            }
            done = Outcome(
                epoch=held.epoch,
                state="done",
                progress=told,
                verdict="right",
                record=json.dumps({"run": "r", "coverage": cells}),
                artifacts=(Artifact(name="report.txt", text="nothing found\n"),),
            )
            leases.end(connection, held.task, done, now - 200 + 100 * part)
    return named
