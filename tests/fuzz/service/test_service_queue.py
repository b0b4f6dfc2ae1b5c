"""The queue: each task is done once, whoever dies, and nobody waits for ever."""

import re
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from _serving import asked, found
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete, func, select, update

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.sql.service_tables import job, life, metadata_tables, task
from kernel_assay.corpus.storage.sql.service_tables import project as project_table
from kernel_assay.corpus.storage.sql.tables import findings as records
from kernel_assay.fuzz.service.client import searched_at
from kernel_assay.fuzz.service.problems import ConflictError
from kernel_assay.fuzz.service.protocol import (
    LEASE_SECONDS,
    LOSSES,
    OVER,
    RANGE,
    SENT,
    Checkout,
    Heartbeat,
    JobKind,
    JobRequest,
    Outcome,
    Progress,
    Project,
    Settings,
    Sources,
    Target,
)
from kernel_assay.fuzz.service.queue import jobs, leases, upkeep
from kernel_assay.fuzz.service.queue import life as lives
from kernel_assay.fuzz.service.queue.database import ServerDatabase
from kernel_assay.fuzz.service.queue.rows import SYSTEM, happened

OVER_NOW = {state.value for state in OVER}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request, tmp_path_factory):
    file = f"sqlite:///{tmp_path_factory.mktemp('queue')}/service.db"
    database = ServerDatabase(
        file if request.param == "sqlite" else request.getfixturevalue("server").format("postgres")
    )
    yield database
    database.close()


@pytest.fixture
def database(shared):
    empty(shared)
    return shared


def empty(database):
    with database.writing(lazy=True) as connection:
        for table in (*metadata_tables(), records):
            connection.execute(delete(table))


def submit(database, owner="o", **request):
    with database.writing(lazy=True) as connection:
        return jobs.submit(connection, JobRequest(**{"kind": JobKind.JUDGE, **request}), owner)[0]


def lease(database, worker="w1", now=None, **more):
    with database.writing(lazy=True) as connection:
        return leases.lease(connection, asked(worker, **more), now or time.time())


def end(database, lease, state="done", now=None, **more):
    outcome = Outcome(epoch=lease.epoch, state=state, **more)
    with database.writing(lazy=True) as connection:
        leases.end(connection, lease.task, outcome, now or time.time())


def told(database, name):
    with database.reading() as connection:
        return jobs.get(connection, name)


def expire(database, now):
    with database.writing(lazy=True) as connection:
        leases.expire(connection, now)


class QueueMachine(RuleBasedStateMachine):
    """Anything may happen in any order; what must hold is in the invariants."""

    database: ServerDatabase
    held = Bundle("held")
    names = Bundle("names")

    def __init__(self):
        super().__init__()
        empty(self.database)
        self.now = time.time()
        self.done = Counter()

    @rule(
        target=names,
        cases=st.none() | st.integers(1, 3 * RANGE),
        project=st.sampled_from([None, "a", "b"]),
        urgent=st.integers(0, 2),
    )
    def submit(self, cases, project, urgent):
        kind = JobKind.JUDGE if cases is None else JobKind.FUZZ
        return submit(self.database, kind=kind, project=project, priority=urgent, settings=Settings(cases=cases))

    @rule(target=held, worker=st.sampled_from(["w1", "w2", "w3"]))
    def lease(self, worker):
        return lease(self.database, worker, self.now)

    @rule(one=held)
    def beat(self, one):
        if one is None:
            return
        try:
            with self.database.writing(lazy=True) as connection:
                leases.heartbeat(connection, one.task, Heartbeat(epoch=one.epoch, progress=Progress(cases=1)), self.now)
        except ConflictError:
            assert self.lost(one)

    @rule(one=consumes(held), state=st.sampled_from(["done", "done", "failed", "queued", "cancelled"]))
    def end(self, one, state):
        self.finish(one, state)

    @rule(one=held)
    def end_and_keep(self, one):
        """Its worker sends the outcome twice, or long after it has lost the lease."""
        self.finish(one, "done")

    def finish(self, one, state):
        if one is None:
            return
        lost = self.lost(one)
        try:
            end(self.database, one, state, self.now, progress=Progress(cases=one.cases or 1))
        except ConflictError:
            assert lost
            return
        self.done[one.task] += state == "done" and not lost

    def lost(self, one):
        with self.database.reading() as connection:
            row = connection.execute(select(task).where(task.c.id == one.task)).mappings().one()
        return row["epoch"] != one.epoch or row["state"] not in {"leased", "running"}

    @rule(name=names)
    def cancel(self, name):
        with self.database.writing(lazy=True) as connection:
            jobs.cancel(connection, name, "somebody")

    @rule(seconds=st.sampled_from([1.0, LEASE_SECONDS / 2, LEASE_SECONDS + 1]))
    def wait(self, seconds):
        self.now += seconds
        expire(self.database, self.now)

    @invariant()
    def nothing_is_done_twice(self):
        assert all(times == 1 for times in (+self.done).values())

    @invariant()
    def jobs_agree_with_their_tasks(self):
        with self.database.reading() as connection:
            rows = connection.execute(select(job)).mappings().all()
            states = {}
            for name, state, until in connection.execute(select(task.c.job, task.c.state, task.c.until)):
                states.setdefault(name, []).append(state)
                assert (until is not None) == (state in {"leased", "running"})
                assert until is None or until >= self.now
        for row in rows:
            open_now = [state for state in states[row["id"]] if state not in OVER_NOW]
            assert row["open_tasks"] == len(open_now), dict(row)
            held = any(state in {"leased", "running"} for state in open_now)
            if row["state"] in {"leased", "running"}:
                assert held
            elif row["state"] == "queued":
                assert "queued" in open_now
            elif row["state"] != "cancelled":
                assert "queued" not in open_now

    def teardown(self):
        """Given workers that stay, all ends, and searches have run each of their cases once."""
        self.now += LEASE_SECONDS + 1
        expire(self.database, self.now)
        while one := lease(self.database, "last", self.now):
            end(self.database, one, "done", self.now, progress=Progress(cases=one.cases or 1))
        with self.database.reading() as connection:
            rows = connection.execute(select(job)).mappings().all()
            told = {one.id: one for one in jobs.told(connection, [dict(row) for row in rows])}
        for row in rows:
            assert row["state"] in OVER_NOW
            if row["state"] == "done" and row["kind"] == "fuzz":
                assert told[row["id"]].progress.cases == told[row["id"]].settings.cases


def test_each_task_is_done_once(shared):
    if shared.file is None:
        pytest.skip("the same statements, and twenty times as long")
    QueueMachine.database = shared
    few = settings(
        max_examples=15, stateful_step_count=30, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(QueueMachine, settings=few)


def test_a_search_is_handed_out_in_ranges_that_several_workers_hold_at_once(database):
    name = submit(database, kind=JobKind.FUZZ, settings=Settings(cases=2 * RANGE + 8, seed=7))
    taken = [lease(database, f"w{n}") for n in range(4)]
    assert [one.cases for one in taken[:3]] == [RANGE, RANGE, 8]
    assert [one.index for one in taken[:3]] == [0, 1, 2]
    assert len({one.seed for one in taken[:3]}) == 3
    assert taken[3] is None
    assert told(database, name).state == "leased"
    for one in taken[:2]:
        end(database, one, progress=Progress(cases=one.cases))
        assert told(database, name).state == "running"
    end(database, taken[2], progress=Progress(cases=8))
    assert told(database, name).state == "done"
    assert told(database, name).progress.cases == 2 * RANGE + 8


def test_a_search_by_time_is_handed_out_in_slices(database):
    submit(database, kind=JobKind.FUZZ, settings=Settings(seconds=70))
    taken = [lease(database) for _ in range(4)]
    assert [one and one.request.settings.seconds for one in taken] == [30.0, 30.0, 10.0, None]
    assert [one.cases for one in taken[:3]] == [0, 0, 0]


def test_who_queues_many_holds_up_nobody(database):
    for _ in range(20):
        submit(database, project="big")
    for _ in range(3):
        lease(database)
    submit(database, project="small")
    assert "small" in {lease(database).request.project for _ in range(2)}


def test_priority_comes_first_and_cuda_needs_a_gpu(database):
    submit(database, priority=1)
    submit(database, priority=9, settings=Settings(device="cuda"))
    submit(database, priority=8, kind=JobKind.TIME)
    assert waiting(database) == {"cpu": 2, "cuda": 1}
    assert waiting(database, JobKind.TIME) == {"cpu": 1}
    assert lease(database, kinds=(JobKind.JUDGE,)).request.priority == 1
    assert lease(database).request.priority == 8
    assert lease(database) is None
    assert lease(database, devices=("H100",)).request.priority == 9
    submit(database)
    assert lease(database, devices=("H100",), gpu_only=True) is None


def waiting(database, *kinds):
    with database.reading() as connection:
        return leases.waiting_for(connection, kinds, time.time())


def test_a_path_is_a_repository_only_for_workers_that_were_told_so(database):
    for repository in ("/srv/r", "https://git.example/r"):
        checkout = Checkout(repository=repository, commit="c" * 40)
        submit(database, kind=JobKind.REPLAY, checkout=checkout)
    with database.reading() as connection:
        assert leases.waiting_for(connection, (), time.time()) == {"cpu": 2}
    assert lease(database, local=False).request.checkout.repository == "https://git.example/r"
    assert lease(database, local=False) is None
    assert lease(database, "other").request.checkout.repository == "/srv/r"


def test_a_deadline(database):
    soon = time.time() + 5
    name = submit(database, deadline=datetime.fromtimestamp(soon, UTC))
    assert lease(database, now=soon + 1) is None
    expire(database, soon + 1)
    assert told(database, name).state == "failed"
    assert "deadline" in told(database, name).reason


def test_three_losses_are_enough(database):
    name, now = submit(database), time.time()
    for loss in range(LOSSES):
        one = lease(database, f"w{loss}", now)
        now += LEASE_SECONDS + 1
        expire(database, now)
        with pytest.raises(ConflictError):
            end(database, one, now=now)
    job_now = told(database, name)
    assert (job_now.state, job_now.attempts) == ("lost", LOSSES)
    assert "w2 went away" in job_now.reason


def open_tasks(database, name):
    with database.reading() as connection:
        states = connection.scalars(select(task.c.state).where(task.c.job == name)).all()
        counted = connection.scalar(select(job.c.open_tasks).where(job.c.id == name))
    assert counted == sum(state not in OVER_NOW for state in states)
    return counted


def test_a_task_that_is_lost_beside_one_of_the_same_job_is_counted_once(database):
    name, now = submit(database, kind=JobKind.FUZZ, settings=Settings(cases=2 * RANGE)), time.time()
    for loss in range(LOSSES):
        held = [lease(database, f"w{n}", now) for n in range(1 + (loss == LOSSES - 1))]
        now += LEASE_SECONDS + 1
        expire(database, now)
    assert len(held) == 2
    assert told(database, name).state == "lost"
    assert open_tasks(database, name) == 0


def test_a_deadline_leaves_no_task_of_its_job_open(database):
    now = time.time()
    until = datetime.fromtimestamp(now + LEASE_SECONDS + 5, UTC)
    name = submit(database, kind=JobKind.FUZZ, settings=Settings(cases=2 * RANGE), deadline=until)
    lease(database, now=now)
    expire(database, now + LEASE_SECONDS + 1)
    expire(database, now + LEASE_SECONDS + 6)
    assert told(database, name).state == "failed"
    assert open_tasks(database, name) == 0
    assert lease(database, now=now + LEASE_SECONDS + 7) is None


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"verdict": "declined"}, {"verdict": "right"}),
        ({}, {"state": "failed"}),
        ({"state": "failed", "reason": "a"}, {"state": "failed", "reason": "b"}),
        ({"message": "m"}, {"message": "m", "log": "more"}),
    ],
)
def test_another_outcome_of_a_task_that_is_over_is_refused_and_the_same_one_changes_nothing(database, first, other):
    name = submit(database)
    one = lease(database)
    end(database, one, **first)
    ended = told(database, name)
    end(database, one, **first)
    with pytest.raises(ConflictError, match="has ended"):
        end(database, one, **other)
    end(database, one, **first)
    assert told(database, name) == ended


def test_the_same_key_is_the_same_job(database):
    first = submit(database, key="k")
    assert submit(database, key="k", priority=9) == first
    assert submit(database, owner="another", key="k") != first
    assert submit(database) != submit(database)


def test_a_timeout_that_no_worker_gives_is_refused_and_one_that_is_stored_is_read(database):
    with pytest.raises(UsageError, match="60 at most"):
        submit(database, settings=Settings(timeout=90))
    with database.writing(lazy=True) as connection:
        name, _ = jobs.submit(connection, JobRequest(kind=JobKind.FUZZ, settings=Settings(timeout=90)), SYSTEM)
        assert jobs.get(connection, name).settings.timeout == 90


def test_settings_that_exclude_one_another(database):
    with pytest.raises(UsageError, match="exclude one another"):
        submit(database, kind=JobKind.FUZZ, settings=Settings(seconds=3, cases=3))


def test_a_finding_is_one_whoever_meets_it_and_is_shrunk_once(database):
    met = found()
    for number in range(3):
        name = submit(database, kind=JobKind.FUZZ, settings=Settings(cases=9), priority=9, project="p")
        one = lease(database, kinds=(JobKind.FUZZ,))
        end(database, one, findings=(met.but(state="new"),), verdict="wrong", message=f"m{number}")
        assert told(database, name).findings == (met.id,)
    with database.reading() as connection:
        rows, _ = lives.listed(connection)
        shrinks = connection.scalar(select(func.count()).select_from(job).where(job.c.kind == "shrink"))
        record = lives.record(connection, met.id)
    assert [(row["state"], row["times"]) for row in rows] == [("open", 3)]
    assert shrinks == 1
    assert record.count == 3 * met.count


def test_only_a_replay_makes_a_finding_fixed_and_one_makes_it_come_back(database):
    met, commit = found().but(state="minimized"), "a" * 40
    submit(database, kind=JobKind.FUZZ, settings=Settings(cases=9), project="p")
    end(database, lease(database), findings=(met,))
    for verdict, commit, state in (
        ("fails", "a" * 40, "open"),
        ("fixed", "b" * 40, "fixed"),
        ("flaky", "c" * 40, "reopened"),
    ):
        checkout = Checkout(repository="/r", commit=commit)
        submit(database, kind=JobKind.VERIFY, finding=met, checkout=checkout, project="p")
        end(database, lease(database), verdict=verdict)
        with database.reading() as connection:
            assert lives.row_of(connection, met.id)["state"] == state
    with database.reading() as connection:
        assert lives.row_of(connection, met.id)["fixed_commit"] == "b" * 40
        assert lives.record(connection, met.id).state == "regression"


def test_a_bisection_names_the_commit(database):
    met = found().but(state="minimized")
    submit(database, project="p")
    end(database, lease(database), findings=(met,))
    checkout = Checkout(repository="/r", commit="c" * 40)
    for verdict, column in (("fails", "brought_by"), ("fixed", "fixed_commit")):
        submit(database, kind=JobKind.BISECT, finding=met, checkout=checkout, project="p")
        end(database, lease(database), verdict=verdict, commit="b" * 40)
        with database.reading() as connection:
            assert lives.row_of(connection, met.id)[column] == "b" * 40


def test_a_bisection_of_what_came_back_begins_where_it_was_fixed(database):
    met, fixed = found().but(state="minimized"), "b" * 40
    submit(database, project="p")
    end(database, lease(database), findings=(met,))
    asked = JobRequest(
        kind=JobKind.BISECT, finding=met, project="p", checkout=Checkout(repository="/r", commit="c" * 40)
    )
    with database.writing(lazy=True) as connection:
        assert lives.since_fixed(connection, asked).good is None
        connection.execute(update(life).values(state="reopened", fixed_commit=fixed))
        assert lives.since_fixed(connection, asked).good == fixed
        assert lives.since_fixed(connection, asked.but(good="d" * 40)).good == "d" * 40


def test_a_search_that_began_before_the_fix_does_not_reopen(database):
    met = found().but(state="minimized")
    submit(database, kind=JobKind.FUZZ, settings=Settings(cases=600), project="p")
    end(database, lease(database), findings=(met,))
    submit(
        database,
        kind=JobKind.VERIFY,
        finding=met,
        checkout=Checkout(repository="/r", commit="b" * 40),
        project="p",
        priority=9,
    )
    late = [lease(database), lease(database)]
    fix = next(one for one in late if one.request.kind is JobKind.VERIFY)
    end(database, fix, verdict="fixed")
    end(database, next(one for one in late if one is not fix), findings=(met,))
    with database.reading() as connection:
        assert lives.row_of(connection, met.id)["state"] == "fixed"


def own(name="a"):
    """A finding of a file that was sent."""
    met = found().but(state="minimized")
    subject = met.subject.but(path=f"{SENT}/{name}.py", name=name)
    return met.but(subject=subject, signature=met.signature.but(subject=name))


def sent(text, met=None, **more):
    target = Target(ops=(own().subject.op,), subjects=("a.py",))
    return {"target": target, "sources": Sources(files={"a.py": text}), "finding": met, **more}


def judged(database, text, owner):
    """The finding that is met in a text, which somebody sends."""
    name = submit(database, owner, **sent(text))
    end(database, lease(database), findings=(own(),), verdict="wrong")
    return told(database, name).findings[0]


def test_programs_of_one_name_that_two_people_sent_are_two_findings_and_each_is_fixed_by_its_own(database):
    alice, bob, again = (judged(database, *said) for said in (("x = 1", "alice"), ("x = 2", "bob"), ("x = 1", "eve")))
    assert alice == again != bob
    with database.reading() as connection:
        met = lives.record(connection, alice)
        assert {row["finding"]: row["times"] for row in lives.listed(connection)[0]} == {alice: 2, bob: 1}
    for owner, text, verdict, state in (
        ("bob", "x = 3", "passes", "open"),
        ("alice", "x = 3", "fixed", "fixed"),
        ("bob", "x = 4", "fails", "fixed"),
        ("bob", "x = 1", "fails", "reopened"),
    ):
        name = submit(database, owner, kind=JobKind.REPLAY, **sent(text, met))
        end(database, lease(database), verdict="fixed" if verdict == "passes" else verdict)
        assert told(database, name).verdict == verdict
        assert ("is about another kernel" in told(database, name).message) == (owner == "bob" and text != "x = 1")
        with database.reading() as connection:
            assert lives.row_of(connection, alice)["state"] == state


def test_a_finding_is_run_with_the_files_it_was_met_in_and_its_own_shrinking_is_no_second_job(database):
    submit(database, "alice", **sent("y = 1"))
    end(database, lease(database), findings=(own().but(state="new"),), verdict="wrong")
    shrink = lease(database, kinds=(JobKind.SHRINK,))
    assert shrink.request.finding.sent == shrink.sources
    end(database, shrink, findings=(own().but(state="minimized"),), verdict="fails")
    with database.reading() as connection:
        (row,) = lives.listed(connection)[0]
        met = lives.record(connection, row["finding"])
    assert (row["state"], row["times"], met.state) == ("new", 1, "minimized")
    submit(database, "bob", kind=JobKind.REPLAY, finding=met)
    replay = lease(database)
    assert (replay.sources, replay.request.target.subjects) == (shrink.sources, ("a.py",))


def _otherwise(met):
    """The same kernel's finding of another signature."""
    return met.but(signature=met.signature.but(kind=Kind.STATEFUL))


def test_what_is_shrunk_to_another_finding_gives_way_to_it_with_its_life(database):
    unshrunk = found().but(state="new", count=5)
    shrunk = _otherwise(unshrunk).but(state="minimized", count=0, aliases=unshrunk.keys)
    first = submit(database, project="p")
    end(database, lease(database), findings=(unshrunk,), verdict="wrong")
    with database.writing(lazy=True) as connection:
        lives.wontfix(connection, unshrunk.id, "p", "me", reason="known", until=None)
    shrink = lease(database, kinds=(JobKind.SHRINK,))
    end(database, shrink, findings=(shrunk,), verdict="fails")
    submit(database, project="p")
    end(database, lease(database), findings=(unshrunk,), verdict="wrong")  # that is the shrunk one, met again
    with database.reading() as connection:
        (row,) = lives.listed(connection)[0]
        assert {name: row[name] for name in ("finding", "state", "reason", "job", "times")} == {
            "finding": shrunk.id,
            "state": "wontfix",
            "reason": "known",
            "job": first,
            "times": 2,
        }
        assert lives.record(connection, unshrunk.id, "p").id == shrunk.id, "old links lead to it"
        assert lives.record(connection, shrunk.id).count == 10
        assert [one["what"] for one in happened(connection, about=shrunk.id)] == ["new", "wontfix", "shrunk"]
        assert lives.met(connection, [unshrunk.id, shrunk.id], "p") == [row]
        assert connection.scalar(select(func.count()).select_from(job).where(job.c.kind == "shrink")) == 1


def test_what_is_shrunk_to_a_known_finding_is_counted_there(database):
    unshrunk, known = _otherwise(found()).but(state="new", count=5), found().but(state="minimized", count=2)
    submit(database, project="p")
    end(database, lease(database), findings=(unshrunk, known), verdict="wrong")
    end(database, lease(database, kinds=(JobKind.SHRINK,)), findings=(known.but(count=0),), verdict="fails")
    with database.reading() as connection:
        (row,) = lives.listed(connection)[0]
        assert (row["finding"], row["times"]) == (known.id, 2)
        assert lives.row_of(connection, unshrunk.id) == row
        assert lives.record(connection, known.id).count == 7
        assert [one["what"] for one in happened(connection, about=known.id)] == ["new", "shrunk"], "and not new twice"


def test_projects_are_apart(database):
    met = found().but(state="minimized")
    for project in ("p", "q"):
        submit(database, project=project)
        end(database, lease(database), findings=(met,))
    with database.writing(lazy=True) as connection:
        lives.wontfix(connection, met.id, "p", "me", reason="known", until=time.time() - 1)
        assert {row["project"]: row["state"] for row in lives.listed(connection)[0]} == {"p": "wontfix", "q": "new"}
        assert lives.expire(connection, time.time()) == 1
        assert lives.row_of(connection, met.id, "p")["state"] == "reopened"


def test_a_commit_is_replayed_then_searched_and_once_only(database):
    met = found().but(state="minimized")
    submit(database, project="p")
    end(database, lease(database), findings=(met,))
    with database.writing(lazy=True) as connection:
        upkeep.put_project(connection, "p", Project(repository="/r", every_hours=1), "me", time.time())
        first = upkeep.push(connection, "p", "d" * 40, "me", time.time())
        assert upkeep.push(connection, "p", "d" * 40, "me", time.time())["waiting"] == first["queued"] == first["jobs"]
    assert [lease(database).request.kind for _ in range(2)] == [JobKind.VERIFY, JobKind.FUZZ]
    with database.writing(lazy=True) as connection:
        assert upkeep.begin_searches(connection, time.time() + 7200) == 0  # one still runs
        connection.execute(update(job).values(state="done"))
        assert upkeep.begin_searches(connection, time.time()) == 0
        assert upkeep.begin_searches(connection, time.time() + 7200) == 1


@pytest.mark.parametrize("state", ["failed", "lost", "cancelled"])
def test_a_commit_of_which_jobs_came_to_nothing_is_tried_again_and_what_is_done_is_not(database, state):
    met = found().but(state="minimized")
    submit(database, project="p")
    end(database, lease(database), findings=(met,))
    with database.writing(lazy=True) as connection:
        upkeep.put_project(connection, "p", Project(repository="/r"), "me", time.time())
        replay, search = upkeep.push(connection, "p", "d" * 40, "me", time.time())["queued"]
        connection.execute(update(job).where(job.c.id == replay).values(state="done"))
        connection.execute(update(job).where(job.c.id == search).values(state=state))
        (told,) = upkeep.projects(connection)
        assert (told.last.id, told.last.state) == (search, state)
        made = upkeep.push(connection, "p", "d" * 40, "me", time.time())
        (new,) = made["queued"]
        assert new != search
        assert (made["done"], made["waiting"]) == ([replay], [])
        assert upkeep.push(connection, "p", "d" * 40, "me", time.time())["waiting"] == [new]
        connection.execute(update(job).where(job.c.id == new).values(state="failed"))
        third = jobs.again(connection, new, "ann")  # as on the page
        assert upkeep.push(connection, "p", "d" * 40, "me", time.time())["waiting"] == [third]
        connection.execute(update(job).where(job.c.id == third).values(state="done"))
        assert upkeep.push(connection, "p", "d" * 40, "me", time.time())["done"] == [replay, third]


def test_only_the_last_commit_makes_a_finding_fixed_or_reopens_it(database):
    met = found().but(state="minimized")
    submit(database, project="p")
    end(database, lease(database), findings=(met,))

    def verified(commit, verdict):
        about = {"checkout": Checkout(repository="/r", commit=commit), "finding": met}
        submit(database, kind=JobKind.VERIFY, project="p", **about)
        end(database, lease(database, kinds=(JobKind.VERIFY,)), verdict=verdict)
        with database.reading() as connection:
            return lives.row_of(connection, met.id, "p")["state"]

    with database.writing(lazy=True) as connection:
        upkeep.put_project(connection, "p", Project(repository="/r"), "me", time.time())
        connection.execute(update(project_table).values(head="b" * 40))
    assert verified("a" * 40, "fixed") == "new"
    assert verified("b" * 12, "fixed") == "fixed"
    assert verified("a" * 40, "fails") == "fixed"
    assert verified("b" * 40, "fails") == "reopened"
    with database.reading() as connection:
        said = [one["words"] for one in happened(connection, about=met.id) if one["what"] == "verified"]
    assert [re.sub(r", in job \w+", "", one) for one in said] == [
        f"the stored case {how} at {'a' * 12}; the last commit is {'b' * 12}" for how in ("passes", "fails")
    ]


def test_a_commit_that_is_the_last_again_says_again_what_it_said(database):
    met, good, bad = found().but(state="minimized"), "a" * 40, "b" * 40
    submit(database, project="p")
    end(database, lease(database), findings=(met,))
    with database.writing(lazy=True) as connection:
        project = Project(repository="/r", settings=Settings(cases=9))
        upkeep.put_project(connection, "p", project, "me", time.time())
    for commit, verdict in ((good, "fixed"), (bad, "fails")):
        with database.writing(lazy=True) as connection:
            upkeep.push(connection, "p", commit, "me", time.time())
        end(database, lease(database, kinds=(JobKind.VERIFY,)), verdict=verdict)
        end(database, lease(database, kinds=(JobKind.FUZZ,)), verdict="right")
    for commit, state in ((good[:9], "fixed"), (bad, "reopened"), (good, "fixed")):
        with database.writing(lazy=True) as connection:
            assert not upkeep.push(connection, "p", commit, "me", time.time())["queued"]
            assert lives.row_of(connection, met.id, "p")["state"] == state
            (told,) = upkeep.projects(connection)
            assert told.head.startswith(commit)
            assert searched_at(told) == told.head


def test_a_finding_of_several_projects_is_asked_for_by_their_name(database):
    met = found().but(state="minimized")
    for project in ("p", "q"):
        submit(database, project=project)
        end(database, lease(database), findings=(met,))
    with database.reading() as connection:
        with pytest.raises(UsageError, match=f"{met.id} is a finding of p and of q: name the project"):
            lives.in_project(connection, met.id, None)
        assert lives.in_project(connection, met.id, "q") == "q"
        assert lives.in_project(connection, "ab", None) is None


def test_lines_of_a_job_with_parts_say_which(database):
    name = submit(database, kind=JobKind.FUZZ, settings=Settings(cases=3 * RANGE))
    one, two = lease(database), lease(database)
    with database.writing(lazy=True) as connection:
        leases.heartbeat(connection, two.task, Heartbeat(epoch=two.epoch, log="96 judged\n128 judged\n"), time.time())
    end(database, one, log="96 judged\n")
    with database.reading() as connection:
        said = jobs.log_of(connection, name)[0].splitlines()
    assert said == ["part 2 of 3: 96 judged", "part 2 of 3: 128 judged", "part 1 of 3: 96 judged"]


def test_logs_are_cut_and_old_ones_forgotten(database):
    name = submit(database)
    one = lease(database)
    with database.writing(lazy=True) as connection:
        for _ in range(40):
            jobs.add_log(connection, name, "x" * 65_000 + "\0")
    with database.reading() as connection:
        text, _ = jobs.log_of(connection, name)
    assert len(text) < jobs.MOST_LOG + 200
    assert "is not kept" in text
    end(database, one, artifacts=({"name": "a.txt", "text": "\0\u2028"},))
    with database.writing(lazy=True) as connection:
        assert jobs.artifact_of(connection, name, "a.txt") == "\0\u2028"
        assert upkeep.forget(connection, time.time() + 1) == 1
        assert jobs.log_of(connection, name)[0] == ""
        assert connection.scalar(select(func.count()).select_from(life)) == 0


def test_sources_are_kept_once_and_sent_back(database):
    sources = Sources(files={"a.py": "print('\u00e9')"})
    submit(database, sources=sources)
    submit(database, sources=sources)
    one = lease(database)
    assert one.sources == sources.digest
    assert one.request.sources is None
    with database.reading() as connection:
        assert jobs.sources_of(connection, one.sources) == sources
