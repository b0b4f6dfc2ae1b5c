"""The server over HTTP: who may do what, what hostile input comes to, what people and workers are answered."""

import json
import threading
import time

import pytest
from _serving import ENVIRONMENT, Serving, found
from sqlalchemy.exc import OperationalError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Element, Exhibit
from kernel_assay.fuzz.service.guards import Rates
from kernel_assay.fuzz.service.notify import Notifier
from kernel_assay.fuzz.service.queue.jobs import known_ops
from kernel_assay.fuzz.service.settings import ServiceSettings
from kernel_assay.oracles.catalog import builtin_ops

ASK = {"worker": "w1", "environment": ENVIRONMENT.plain()}
JUDGE = {"kind": "judge", "sources": {"files": {"a.py": "def run(x): return x\n"}}, "target": {"folder": "."}}


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    with Serving(tmp_path_factory.mktemp("serving")) as server:
        yield server


@pytest.fixture(scope="module")
def everything(serving):
    return serving.client()


def problem_of(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    return said["detail"]


ENDPOINTS = [
    ("read", "GET", "/v1/jobs"),
    ("read", "GET", "/v1/findings"),
    ("read", "GET", "/v1/workers"),
    ("read", "GET", "/v1/projects"),
    ("read", "GET", "/v1/events"),
    ("read", "GET", "/metrics"),
    ("submit", "POST", "/v1/jobs"),
    ("submit", "POST", "/v1/judge"),
    ("submit", "PUT", "/v1/projects/p"),
    ("submit", "POST", "/v1/findings/ab/reopen"),
    ("work", "POST", "/v1/leases"),
    ("work", "GET", "/v1/tasks/0-0/sources?epoch=1"),
    ("admin", "GET", "/v1/tokens"),
    ("admin", "POST", "/v1/tokens"),
    ("admin", "POST", "/v1/workers/w/drain"),
]


@pytest.mark.parametrize("scope", ["read", "submit", "work", "admin"])
def test_a_token_allows_what_its_scope_says_and_no_more(serving, scope):
    client = serving.client(scope)
    for wanted, method, path in ENDPOINTS:
        status = client.request(method, path, json={}).status_code
        assert (status == 403) == (wanted != scope), (scope, method, path, status)


def test_nobody_gets_in_without_a_token(serving, everything):
    for headers in ({}, {"Authorization": "Bearer kassay_x"}, {"Authorization": "Basic YTpi"}, {"Authorization": "x"}):
        everything.cookies.clear()
        for _, method, path in ENDPOINTS:
            answer = serving._client.request(method, path, json={}, headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/", "/findings", "/jobs", "/queue"):
        answer = serving._client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/signin?next={path}")
        assert serving._client.get(f"{path if path != '/' else '/overview'}.json").status_code == 401
    assert serving._client.get("/healthz").json()["status"] == "ok"
    assert serving._client.get("/readyz").status_code == 200


def test_tokens_are_shown_once_kept_as_digests_and_revoked(serving, everything):
    made = everything.post("/v1/tokens", json={"name": "ci", "scopes": ["read"], "days": 1}).json()
    listed = everything.get("/v1/tokens").text
    assert made["token"].startswith("kassay_")
    assert made["token"] not in listed
    assert made["token"].encode() not in b"".join(
        p.read_bytes() for p in serving.service.database.file.parent.iterdir() if p.is_file()
    )
    theirs = {"Authorization": f"Bearer {made['token']}"}
    assert serving._client.get("/v1/jobs", headers=theirs).status_code == 200
    assert "already" in problem_of(everything.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}), 422)
    assert everything.delete("/v1/tokens/ci").status_code == 204
    assert serving._client.get("/v1/jobs", headers=theirs).status_code == 401
    problem_of(everything.delete("/v1/tokens/ci"), 404)


def test_a_job_from_its_submission_to_its_end(everything):
    asked_for = {"kind": "fuzz", "target": {"ops": ["attention"]}, "settings": {"cases": 10}, "key": "k", "priority": 9}
    job = everything.post("/v1/jobs", json=asked_for)
    assert job.status_code == 201
    again = everything.post("/v1/jobs", json={**asked_for, "priority": 1})
    assert (again.status_code, again.json()["id"]) == (200, job.json()["id"])
    other = everything.post("/v1/jobs", json={**asked_for, "settings": {"cases": 11}})
    assert "is that of job" in problem_of(other, 422)
    lease = everything.post("/v1/leases", json=ASK).json()
    assert (lease["job"], lease["cases"]) == (job.json()["id"], 10)
    beat = {"epoch": lease["epoch"], "log": "hello\n", "progress": {"cases": 4}}
    assert everything.post(f"/v1/tasks/{lease['task']}/heartbeat", json=beat).json()["cancel"] is False
    running = everything.get(f"/v1/jobs/{lease['job']}").json()
    assert (running["state"], running["progress"]["cases"], running["worker"]) == ("running", 4, "w1")
    old = {"epoch": lease["epoch"] - 1, "state": "done"}
    assert "has run out" in problem_of(everything.post(f"/v1/tasks/{lease['task']}/outcome", json=old), 409)
    met = found().plain()
    outcome = {
        "epoch": lease["epoch"],
        "state": "done",
        "verdict": "wrong",
        "findings": [met],
        "artifacts": [{"name": "r.py", "text": "<script>\0"}],
        "record": "{}",
    }
    for _ in range(2):
        assert everything.post(f"/v1/tasks/{lease['task']}/outcome", json=outcome).status_code == 204
    done = everything.get(f"/v1/jobs/{lease['job']}").json()
    assert (done["state"], done["verdict"], done["artifacts"]) == ("done", "wrong", ["r.py", "record.json"])
    assert everything.get(f"/v1/jobs/{lease['job']}/log").text == "hello\n"
    text = everything.get(f"/v1/jobs/{lease['job']}/artifacts/r.py")
    assert text.text == "<script>\0"
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["x-content-type-options"] == "nosniff"
    told = everything.get(f"/v1/findings/{done['findings'][0]}").json()
    assert (told["state"], told["record"]["signature"]) == ("new", met["signature"])
    assert "import" in everything.get(f"/v1/findings/{told['id']}/reproducer").text
    followed = everything.get(f"/v1/jobs/{lease['job']}/events").text
    assert followed.startswith("event: log\ndata: hello")
    assert '"state":"done"' in followed


def test_cancel_and_drain_travel_with_the_heartbeat(everything):
    job = everything.post("/v1/jobs", json={"kind": "prove", "priority": 9}).json()
    lease = everything.post("/v1/leases", json={**ASK, "worker": "w2"}).json()
    assert everything.post("/v1/workers/w2/drain").status_code == 204
    assert everything.post(f"/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    orders = everything.post(f"/v1/tasks/{lease['task']}/heartbeat", json={"epoch": lease["epoch"]}).json()
    assert (orders["cancel"], orders["drain"]) == (True, True)
    everything.post("/v1/jobs", json={"kind": "prove"})
    assert everything.post("/v1/leases", json={**ASK, "worker": "w2"}).status_code == 204
    assert everything.delete("/v1/workers/w2/drain").status_code == 204
    assert everything.post("/v1/leases", json={**ASK, "worker": "w2"}).status_code == 200


def test_a_verdict_in_the_reply_and_from_the_cache(serving, everything):
    asked = everything.post("/v1/judge?wait=0", json=JUDGE)
    assert (asked.status_code, asked.headers["kassay-cache"]) == (202, "miss")
    assert everything.post("/v1/judge?wait=0", json=JUDGE).headers["kassay-cache"] == "joined"

    def work():
        worker = serving.client("work")
        lease = worker.post("/v1/leases", json={**ASK, "worker": "w3", "kinds": ["judge"], "wait": 5}).json()
        sources = worker.get(f"/v1/tasks/{lease['task']}/sources?epoch={lease['epoch']}").json()
        assert lease["files"] == sources["files"], "small ones come with the lease"
        said = {"epoch": lease["epoch"], "state": "done"}
        for lie in ("wrong", "right"):
            lied = worker.post(f"/v1/tasks/{lease['task']}/outcome", json={**said, "verdict": lie})
            assert "comes without" in problem_of(lied, 422)
        said["verdict"] = "right" if sources == JUDGE["sources"] else "other sources"
        said["progress"] = {"cases": 1, "judged": 1}
        worker.post(f"/v1/tasks/{lease['task']}/outcome", json=said)

    thread = threading.Thread(target=work)
    thread.start()
    answer = everything.post("/v1/judge?wait=20", json=JUDGE)
    thread.join()
    assert (answer.status_code, answer.json()["verdict"]) == (200, "right")
    began = time.monotonic()
    hit = everything.post("/v1/judge", json=JUDGE)
    assert (hit.status_code, hit.headers["kassay-cache"], hit.json()["id"]) == (200, "hit", answer.json()["id"])
    assert time.monotonic() - began < 5
    other = {**JUDGE, "settings": {"seed": 1}}
    assert everything.post("/v1/judge?wait=0", json=other).headers["kassay-cache"] == "miss"


DEEP = "[" * 3000 + "]" * 3000
HOSTILE = [
    ("POST", "/v1/jobs", {"content": b"{"}, 422),
    ("POST", "/v1/jobs", {"content": b"[]"}, 422),
    ("POST", "/v1/jobs", {"content": b"\xff\xfe"}, (400, 422)),
    ("POST", "/v1/jobs", {"content": DEEP.encode()}, (400, 422)),
    ("POST", "/v1/jobs", {"content": b'{"kind":"judge","priority":1' + b"0" * 5000 + b"}"}, (400, 422)),
    ("POST", "/v1/jobs", {"content": b'{"kind":"judge","key":"\\ud800"}'}, 422),
    ("POST", "/v1/jobs", {"content": b'{"kind":"judge","settings":{"seconds":NaN}}'}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "key": "a\0b"}}, 201),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "settings": {"cases": 10**30}}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "deadline": "9999-12-31T23:59:59-23:59"}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "deadline": "0001-01-01T00:00:00+14:00"}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "sources": {"files": {"../a": ""}}}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "sources": {"files": {"/etc/a": ""}}}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "sources": {"files": {"a": "", "a/b": ""}}}}, 422),
    ("POST", "/v1/jobs", {"content": b'{"kind":"judge","sources":{"files":{"a.py":"\\ud800"}}}'}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "replay"}}, 422),
    ("POST", "/v1/jobs", {"json": {"kind": "judge", "checkout": {"repository": "https://[", "commit": "a" * 7}}}, 422),
    ("PUT", "/v1/projects/port", {"json": {"repository": "https://git.example:99999/x"}}, 422),
    ("POST", "/v1/jobs", {"content": b"x", "headers": {"Content-Encoding": "gzip"}}, 415),
    ("POST", "/v1/jobs", {"content": b"x" * ((16 << 20) + 1)}, 413),
    ("POST", "/v1/leases", {"json": {**ASK, "worker": "../w"}}, 422),
    ("POST", "/v1/leases", {"json": {**ASK, "wait": 1e308}}, 422),
    ("POST", "/v1/tasks/ab-0/heartbeat", {"json": {"epoch": 1}}, 404),
    ("POST", "/v1/tasks/ab-0/heartbeat", {"json": {"epoch": 10**25}}, 422),
    ("POST", "/v1/tasks/..%2f..%2fetc/outcome", {"json": {}}, (404, 422)),
    ("GET", "/v1/jobs?after=99999999999999999999999", {}, 422),
    ("GET", "/v1/jobs?limit=0", {}, 422),
    ("GET", "/v1/jobs?project=%00", {}, 400),
    ("GET", "/v1/jobs/%00", {}, 400),
    ("GET", "/v1/jobs/..%2f..%2fetc%2fpasswd", {}, (404, 422)),
    ("GET", "/v1/jobs/ab/artifacts/..%2fx", {}, (404, 422)),
    ("GET", "/v1/findings?op=%F0%9F%92%A5", {}, 422),
    ("GET", "/static/..%2fapp.py", {}, 404),
    ("GET", "/static/base.html.j2", {}, 404),
    ("TRACE", "/v1/jobs", {}, 405),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), HOSTILE, ids=[f"{n}" for n in range(len(HOSTILE))])
def test_hostile_input_is_refused_in_one_sentence(everything, method, path, body, status):
    if "content" in body:
        body = {**body, "headers": {"Content-Type": "application/json", **body.get("headers", {})}}
    answer = everything.request(method, path, **body)
    allowed = status if isinstance(status, tuple) else (status,)
    assert answer.status_code in allowed, answer.text
    if answer.status_code >= 400 and path.startswith("/v1"):
        assert "\n" not in problem_of(answer, answer.status_code)


def test_what_a_worker_says_is_hostile_too(everything):
    everything.post("/v1/jobs", json={"kind": "prove", "priority": 9})
    lease = everything.post("/v1/leases", json={**ASK, "kinds": ["prove"]}).json()
    nasty = "</pre><script>alert(1)</script>\0\u202e"
    met = found(1)
    met = met.but(verdict=met.verdict.but(message=nasty), count=10**30, first_seen="\0", found_by="../../etc")
    strange = {name: recipe.but(dtype="zzz", layout="nowhere") for name, recipe in met.case.tensors.items()}
    shown = Exhibit(dtype="zzz", elements=(Element(index=(0,), got=1.0, wanted=2.0, bits=-(10**30)),))
    odd = met.but(signature=met.signature.but(dtype="zzz"), case=met.case.but(tensors=strange), count=-5, exhibit=shown)
    outcome = {"epoch": lease["epoch"], "state": "failed", "reason": nasty, "message": nasty, "log": nasty}
    outcome |= {"verdict": nasty[:40], "findings": [met.plain(), odd.plain()]}
    assert everything.post(f"/v1/tasks/{lease['task']}/outcome", json=outcome).status_code == 204
    for page in (f"/jobs/{lease['job']}", f"/findings/{met.id}", "/findings", "/", "/kernels"):
        text = everything.get(page).text
        assert "<script>alert" not in text, page
        assert "\0" not in text, page
    assert everything.get(f"/findings/{met.id}.json").status_code == 200
    assert everything.get(f"/findings/{odd.id}").status_code == 200
    assert "# There is no reproducer" in everything.get(f"/v1/findings/{odd.id}/reproducer").text


def test_repeated_asking_is_slowed_down(tmp_path):
    rates = Rates(2.0)
    assert [rates.wait("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert rates.wait("a", 0.0) == pytest.approx(0.5)
    assert rates.wait("b", 0.0) == 0.0
    assert rates.wait("a", 0.6) == 0.0
    with Serving(tmp_path, rate=0.1) as server:
        client = server.client()
        answers = [client.get("/v1/jobs") for _ in range(3)]
        assert server.client().get("/v1/jobs").status_code == 200, "another token has a bucket of its own"
        client.headers.pop("Authorization")
        floods = [client.post("/signin", data={"token": "kassay_guess"}).status_code for _ in range(9)]
        assert (floods[0], floods[-1]) == (401, 429), "guesses of a token are counted by the address"
    assert (answers[0].status_code, int(answers[-1].headers["Retry-After"]) > 0) == (200, True)
    assert "too many requests" in problem_of(answers[-1], 429)


def test_addresses_that_others_reach_need_tls():
    with pytest.raises(UsageError, match="--insecure"):
        ServiceSettings(database="sqlite:///x", host="0.0.0.0")
    assert ServiceSettings(database="sqlite:///x", host="::1").address == "http://[::1]:8765"
    assert ServiceSettings(database="sqlite:///x", host="0.0.0.0", insecure=True).host == "0.0.0.0"


def test_projects_commits_and_their_status(serving, everything):
    said = {"repository": "/srv/r", "owners": ["me"], "settings": {"seconds": 30}}
    assert everything.put("/v1/projects/p", json=said).json()["name"] == "p"
    spam = {**said, "notify": ["json://127.0.0.1:9/"]}
    assert "admin" in problem_of(serving.client("submit", "read").put("/v1/projects/p", json=spam), 403)
    moved = {**said, "repository": "/srv/elsewhere"}
    assert "elsewhere" in problem_of(serving.client("submit", "read").put("/v1/projects/p", json=moved), 403)
    assert serving.client("submit").put("/v1/projects/p", json={**said, "priority": 3}).status_code == 200
    assert "Apprise" in problem_of(everything.put("/v1/projects/p", json={**said, "notify": ["nonsense"]}), 422)
    commit = "e" * 40
    (name,) = everything.post("/v1/projects/p/commits", json={"commit": commit}).json()["jobs"]
    status = f"/v1/projects/p/commits/{commit}/status"
    assert everything.get(status).json()["state"] == "pending"
    everything.post(f"/v1/jobs/{name}/cancel")
    assert everything.get(f"{status}?for=gitlab").json()["state"] == "failed", "nobody has looked"
    problem_of(everything.post("/v1/projects/none/commits", json={"commit": commit}), 404)
    refused = problem_of(everything.post("/v1/projects/p/commits", json={"commit": "--upload-pack=x"}), 422)
    assert refused == "commit: a commit is 7 to 64 hex digits, as git rev-parse says it"
    assert "a name is" in problem_of(everything.put("/v1/projects/-p", json=said), 422)


def test_ops_that_nobody_knows_are_refused(everything):
    target = {"ops": ["softmx"], "subjects": ["a.py"]}
    told = problem_of(everything.post("/v1/jobs", json={"kind": "fuzz", "target": target}), 422)
    assert told == "op 'softmx' is not known; did you mean softmax?"
    assert "known ones are attention" in problem_of(
        everything.post("/v1/judge", json={"kind": "judge", "target": {"ops": ["zzz"]}}), 422
    )
    assert known_ops() == builtin_ops()
    theirs = {"ops": ["gate"], "subjects": ["a.py"], "references": ["r.py:gate"]}
    job = everything.post("/v1/jobs", json={"kind": "prove", "target": theirs}).json()
    everything.post(f"/v1/jobs/{job['id']}/cancel")


def meet(everything, project, *numbers):
    """Have a job of a project end with findings."""
    everything.post("/v1/jobs", json={"kind": "time", "priority": 9, "project": project})
    lease = everything.post("/v1/leases", json={**ASK, "kinds": ["time"]}).json()
    ended = {"epoch": lease["epoch"], "state": "done", "findings": [found(number).plain() for number in numbers]}
    everything.post(f"/v1/tasks/{lease['task']}/outcome", json=ended)


def test_people_are_told_once_for_each_standing(serving, everything):
    sent = []
    database = serving.service.database
    teller = Notifier(
        database, ["json://somewhere"], "http://here", 60.0, lambda *said: bool(sent.append(said)) or True
    )
    teller.tell(time.time() + 61)
    sent.clear()
    for project in (None, "told"):
        meet(everything, project, 3, 4, 5)
    everything.post(f"/v1/findings/{found(5).id}/reopen?project=told")
    assert teller.tell(time.time()) == 0
    assert teller.tell(time.time() + 61) == 1
    assert teller.tell(time.time() + 61) == 0
    ((addresses, title, body),) = sent
    assert addresses == ("json://somewhere",)
    assert title == "Kernel Assay in told: 3 findings (2 new, 1 reopened)"
    assert body.count("http://here/findings/") == 3
    for hours in (1, 2, 3, 30):
        everything.post(f"/v1/findings/{found(3).id}/reopen?project=told")
        assert teller.tell(time.time() + hours * 3600) == (hours in {1, 30}), (
            "what comes and goes is told of once a day"
        )
    assert [title for _, title, _ in sent[1:]] == ["Kernel Assay in told: 1 finding (1 reopened)"] * 2


def test_browsers_sign_in_and_their_forms_need_a_word(serving, everything):
    client, word = serving.browser()
    cookie = client.cookies.jar._cookies["testserver.local"]["/"]["kassay_session"]
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"
    name = everything.post("/v1/jobs", json={"kind": "prove"}).json()["id"]
    assert client.post(f"/v1/jobs/{name}/cancel").status_code == 403
    assert client.post(f"/jobs/{name}/cancel", data={"csrf": "guessed"}).status_code == 403
    page = client.post(f"/jobs/{name}/cancel", data={"csrf": "guessed"}, headers={"Accept": "text/html"})
    assert (page.status_code, "load the page again" in page.text) == (403, True)
    assert page.headers["content-type"].startswith("text/html")
    assert client.post(f"/jobs/{name}/cancel").status_code == 422
    assert client.post(f"/jobs/{name}/cancel", data={"csrf": word}).status_code == 303
    assert everything.get(f"/v1/jobs/{name}").json()["state"] == "cancelled"
    assert client.post("/signin", data={"token": "kassay_wrong"}).status_code == 401
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert client.post("/signin", data={"token": serving.token(), "next": target}).headers["location"] == "/"
    once = serving.service.door.once("t0")
    assert client.get(f"/signin/{once}").status_code == 303
    assert client.get(f"/signin/{once}").status_code == 401
    word = client.get("/findings").text.split('name="csrf" value="')[1].split('"')[0]
    assert client.post("/signout", data={"csrf": word}).status_code == 303
    assert client.get("/findings").status_code == 303


def test_pages_show_what_is_there_and_say_the_same_as_json(serving, everything):
    client, word = serving.browser()
    everything.put("/v1/projects/p", json={"repository": "https://git.example/p"})
    meet(everything, None, 6)
    finding = everything.get("/v1/findings").json()["items"][0]["id"]
    pages = [
        "/",
        "/findings",
        "/findings?state=unresolved",
        f"/findings/{finding}",
        "/jobs",
        "/kernels",
        "/queue",
        "/trends",
        "/projects/p",
    ]
    for path in pages:
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "<script>" not in answer.text
        assert " style=" not in answer.text
        where, _, query = ("/overview" if path == "/" else path).partition("?")
        assert json.loads(client.get(f"{where}.json?{query}").text)
    assert client.get("/jobs/abcdef").status_code == 404
    assert "there is no job" in client.get("/jobs/abcdef").text
    wrong = client.post(f"/findings/{finding}/wontfix", data={"csrf": word, "reason": " "})
    assert wrong.status_code == 422
    assert (
        client.post(
            f"/findings/{finding}/wontfix", data={"csrf": word, "reason": "known", "until": "2100-01-01"}
        ).status_code
        == 303
    )
    assert "t fix since" in client.get(f"/findings/{finding}").text
    assert client.post(f"/findings/{finding}/reopen", data={"csrf": word}).status_code == 303
    assert everything.get(f"/v1/findings/{finding}").json()["state"] == "reopened"
    assert client.get("/static/script.js").headers["content-type"].startswith("text/javascript")


def test_a_database_that_is_away_is_one_line_of_the_log(serving, caplog):
    for _ in range(3):
        serving.service.outage(OperationalError("SELECT 1", {}, Exception("connection refused\nis it running?")))
    assert caplog.messages == ["the database does not answer: OperationalError: connection refused is it running?"]


def test_figures_for_prometheus(everything):
    text = everything.get("/metrics").text
    assert 'kassay_jobs{state="done"}' in text
    assert "kassay_request_seconds_bucket" in text


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"deadline": "2030-01-01T00:00:00"}, "a deadline needs its time zone"),
        ({"kind": "bisect"}, "a job of kind bisect needs a finding"),
    ],
)
def test_what_does_not_go_together_is_named(everything, more, sentence):
    assert problem_of(everything.post("/v1/jobs", json={"kind": "judge", **more}), 422) == sentence


@pytest.mark.parametrize("address", ["javascript:alert(1)", "ext::sh -c x", "--upload-pack=x", "x/y", "https://a\nb"])
def test_a_project_is_at_an_address_that_workers_fetch(everything, address):
    said = problem_of(everything.put("/v1/projects/odd", json={"repository": address}), 422)
    assert "no address" in said or "has a scheme" in said


def test_a_project_is_deleted_by_an_admin_with_its_schedule_and_keeps_its_findings(serving, everything):
    everything.put("/v1/projects/short", json={"repository": "git@git.example.org:a/b.git"})
    everything.post("/v1/projects/short/commits", json={"commit": "a" * 40})
    assert serving.client("submit").delete("/v1/projects/short").status_code == 403
    assert everything.delete("/v1/projects/short").status_code == 204
    assert "there is no project" in problem_of(everything.delete("/v1/projects/short"), 404)
    assert {one["state"] for one in everything.get("/v1/jobs?project=short").json()["items"]} == {"cancelled"}


def test_a_password_of_a_repository_is_not_kept(everything):
    address = "https://ann:secret@git.example/x.git"
    checkout = {"repository": address, "commit": "a" * 40}
    answers = [
        everything.post("/v1/jobs", json={"kind": "judge", "checkout": checkout}),
        everything.put("/v1/projects/mine", json={"repository": address}),
    ]
    for answer in answers:
        assert "leave the password out" in problem_of(answer, 422)
    for page in ("/v1/jobs", "/v1/projects"):
        assert "secret" not in everything.get(page).text


@pytest.mark.parametrize(("before", "after"), [("right", ""), ("wrong", "wrong")])
def test_a_search_that_was_cancelled_does_not_say_right(tmp_path, before, after):
    with Serving(tmp_path) as server:
        client = server.client()
        job = client.post("/v1/jobs", json={"kind": "fuzz", "settings": {"cases": 1000}}).json()["id"]
        lease = client.post("/v1/leases", json=ASK).json()
        outcome = {"epoch": lease["epoch"], "state": "done", "verdict": before}
        assert client.post(f"/v1/tasks/{lease['task']}/outcome", json=outcome).status_code == 204
        client.post(f"/v1/jobs/{job}/cancel")
        told = client.get(f"/v1/jobs/{job}").json()
        assert (told["state"], told["verdict"]) == ("cancelled", after)


def test_the_number_of_a_lease_cannot_be_said_from_its_time(everything):
    drawn = set()
    for _ in range(4):
        everything.post("/v1/jobs", json={"kind": "prove"})
        epoch = everything.post("/v1/leases", json=ASK).json()["epoch"]
        assert abs((epoch >> 20) / 1000 - time.time()) < 60
        drawn.add(epoch & 0xFFFFF)
    assert len(drawn) > 1
