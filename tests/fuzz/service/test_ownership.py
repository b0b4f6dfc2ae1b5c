"""A worker reports of its own job, reads the sources of its own tasks, and is given again what it has not heard of."""

import time

import pytest
from _serving import ENVIRONMENT, Serving, asked, found

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.copying import backup
from kernel_assay.corpus.storage.place import DatabaseUrl
from kernel_assay.fuzz.service.protocol import SENT, JobKind, JobRequest, Outcome, Target
from kernel_assay.fuzz.service.queue.database import ServerDatabase
from kernel_assay.fuzz.service.queue.ownership import check_own

ASK = {"worker": "w1", "environment": ENVIRONMENT.plain(), "local": True}
SOURCES = {"files": {"a.py": "x = 1"}}


@pytest.fixture
def serving(tmp_path):
    with Serving(tmp_path) as made:
        yield made


def sent(path, op="silu", **more):
    """A finding of a kernel that was sent; found() gives one of a built-in one."""
    known = found()
    subject = known.subject.but(op=op, name="a", path=path, **more)
    case, original = known.case.but(op=op), known.original.but(op=op)
    return known.but(subject=subject, case=case, original=original, signature=known.signature.but(op=op, subject="a"))


def own(met, **request):
    check_own(JobRequest(kind=JobKind.FUZZ, **request), Outcome(epoch=1, state="done", findings=(met,)))


CHECKOUT = {"repository": "https://git.example/x", "commit": "a" * 40}
MINE = Target(ops=("silu",), subjects=("a.py:run",))


@pytest.mark.parametrize(
    ("finding", "request_"),
    [
        (sent(f"{SENT}/a.py"), {"target": MINE}),
        (sent(f"{SENT}/b.py"), {"target": MINE, "checkout": CHECKOUT}),
        (sent("/kassay/adapters/problems/x/a.py", "anything"), {"target": Target(folder=".")}),
        (sent(f"{SENT}/a.py", "gate"), {"target": Target(subjects=("a.py",), references=("r.py",))}),
        (found(), {}),
    ],
)
def test_findings_of_the_jobs_own_kernels_are_taken(finding, request_):
    own(finding, **request_)


@pytest.mark.parametrize(
    ("finding", "request_"),
    [
        (sent(f"{SENT}/b.py"), {"target": MINE}),
        (sent(f"{SENT}/a.py", "softmax"), {"target": MINE}),
        (sent("/kassay/adapters/problems/x/a.py"), {"target": MINE}),
        (sent(f"{SENT}/../../etc/a.py"), {"target": MINE, "checkout": CHECKOUT}),
        (sent("/home/a.py"), {}),
        (sent(f"{SENT}/a.py").but(signature=found().signature), {"target": MINE}),
        (sent(f"{SENT}/a.py").but(case=found().case.but(op="softmax")), {"target": MINE}),
        (sent(f"{SENT}/a.py", python="/tmp/python"), {"target": MINE}),
        (sent(f"{SENT}/a.py").but(contract="/tmp/contract.py"), {"target": MINE}),
        (sent(f"{SENT}/a.py").but(contract=f"{SENT}/a.py"), {"target": MINE}),
        (sent(f"{SENT}/a.py").but(verdict=found().verdict.but(kind="pass")), {"target": MINE}),
        (found(1), {"finding": found()}),
        (found(1), {"target": Target(ops=("silu",), subjects=("a.py",))}),
    ],
)
def test_findings_of_others_are_refused(finding, request_):
    assert found().subject.key != found(1).subject.key
    with pytest.raises(UsageError, match="none of this job's"):
        own(finding, **request_)


@pytest.mark.parametrize("said", ["RIGHT", "right ", "wrongish", "\x1b[2J", "right"])
def test_a_verdict_is_one_that_there_is_and_right_has_no_findings(said):
    outcome = Outcome(epoch=1, state="done", verdict=said, findings=(sent(f"{SENT}/a.py"),))
    with pytest.raises(UsageError, match="is none: "):
        check_own(JobRequest(kind=JobKind.FUZZ, target=MINE), outcome)


def test_an_outcome_about_somebody_elses_finding_changes_nothing(serving):
    user, worker = serving.client("submit", "read"), serving.client("work")
    job = user.post("/v1/jobs", json={"kind": "judge", "target": {"ops": ["silu"], "subjects": ["a.py"]}}).json()
    lease = worker.post("/v1/leases", json=ASK).json()
    said = {"epoch": lease["epoch"], "state": "done", "findings": [sent("/etc/a.py").plain()]}
    answer = worker.post(f"/v1/tasks/{lease['task']}/outcome", json=said)
    assert answer.status_code == 422
    assert "none of this job's" in answer.json()["detail"]
    assert user.get("/v1/findings").json()["items"] == []
    assert user.get(f"/v1/jobs/{job['id']}").json()["state"] == "leased"


def test_sources_are_read_by_who_has_the_task_and_with_its_token_only(serving):
    user, worker, other = serving.client("submit"), serving.client("work"), serving.client("work")
    user.post("/v1/jobs", json={"kind": "judge", "sources": SOURCES})
    lease = worker.post("/v1/leases", json=ASK).json()
    path = f"/v1/tasks/{lease['task']}"
    assert worker.get(f"{path}/sources?epoch={lease['epoch']}").json() == SOURCES
    assert worker.get(f"{path}/sources?epoch={lease['epoch'] + 1}").status_code == 409
    for answer in (
        other.get(f"{path}/sources?epoch={lease['epoch']}"),
        other.post(f"{path}/heartbeat", json={"epoch": lease["epoch"]}),
        other.post(f"{path}/outcome", json={"epoch": lease["epoch"], "state": "done"}),
    ):
        assert answer.status_code == 409
        assert "another token" in answer.json()["detail"]
    assert "another name" in other.post("/v1/leases", json=ASK).json()["detail"]
    assert other.post("/v1/leases", json={**ASK, "worker": "w2"}).status_code == 204
    worker.post(f"{path}/outcome", json={"epoch": lease["epoch"], "state": "done"})
    assert worker.get(f"{path}/sources?epoch={lease['epoch']}").status_code == 409


def test_a_question_that_is_asked_again_is_answered_by_the_same_lease(serving):
    user, worker = serving.client("submit", "read"), serving.client("work")
    job = user.post("/v1/jobs", json={"kind": "judge"}).json()
    question = asked(question="abc").plain()
    first = worker.post("/v1/leases", json=question).json()
    time.sleep(0.01)
    again = worker.post("/v1/leases", json=question).json()
    assert (again["task"], again["epoch"], again["index"]) == (first["task"], first["epoch"], first["index"])
    assert again["until"] > first["until"]
    assert user.get(f"/v1/jobs/{job['id']}").json()["attempts"] == 0
    assert worker.post("/v1/leases", json={**question, "question": "other"}).status_code == 204
    assert worker.post("/v1/leases", json={**question, "question": ""}).status_code == 204
    worker.post(f"/v1/tasks/{first['task']}/heartbeat", json={"epoch": first["epoch"]})
    assert worker.post("/v1/leases", json=question).status_code == 204, "it has heard of it"


def test_files_of_a_server_and_its_backups_are_nothing_for_others(tmp_path):
    (file := tmp_path / "service.db").touch(0o644)
    url = f"sqlite:///{file}"
    database = ServerDatabase(url)
    with database.writing():
        assert {path.name[-4:] for path in database.files if path.exists()} == {"e.db", "-wal", "-shm"}
        assert {path.stat().st_mode & 0o777 for path in database.files} == {0o600}
    database.close()
    backup(DatabaseUrl(url), tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
