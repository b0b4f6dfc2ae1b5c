"""What the pages and `remote` say of work that came to nothing, goes on, or waits: as a user reads it."""

import pytest
from _serving import ENVIRONMENT, Serving, found

from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.cli.toolbox import remote
from kernel_assay.fuzz.service import client

COMMIT = "e" * 40
STATUS = f"/v1/projects/mine/commits/{COMMIT}/status"
ASK = {"worker": "w1", "environment": ENVIRONMENT.plain(), "local": True}


@pytest.fixture
def serving(tmp_path):
    with Serving(tmp_path) as server:
        yield server


@pytest.fixture
def http(serving):
    return serving.client()


@pytest.fixture
def kassay(http, monkeypatch, capsys):
    """The command line, which asks the server in this process; its exit code, output and errors."""

    class Here(client.Client):
        def __init__(self, *_):
            super().__init__("http://testserver", "")
            self._http = http

        def close(self):
            """The next command asks the same server."""

        def follow(self, name, every=0.0):
            return super().follow(name, every)

    monkeypatch.setattr(client, "Client", Here)

    def run(*words):
        code = 0
        try:
            code = main(["remote", *words, "--token", "kassay_x"])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code or 0, said.out, said.err

    return run


def done(http, **outcome):
    """A worker takes the next task and ends it."""
    held = http.post("/v1/leases", json=ASK).json()
    said = {"epoch": held["epoch"], "state": "done", **outcome}
    assert http.post(f"/v1/tasks/{held['task']}/outcome", json=said).status_code == 204
    return held["job"]


def begun(http):
    http.put("/v1/projects/mine", json={"repository": "/srv/r", "settings": {"seconds": 30}})


def test_a_search_that_failed_is_green_nowhere_and_is_queued_anew(serving, http, kassay, tmp_path):
    (tmp_path / "kassay.toml").write_text('[budget]\ncases = 64\n[[kernels]]\nfile = "a.py"\nop = "silu"\n')
    (tmp_path / "a.py").touch()
    code, said, warned = kassay("project", "mine", "--repository", "/srv/r", "--folder", str(tmp_path))
    assert (code, said) == (0, "mine: /srv/r at no commit yet; no search has ended yet\n")
    assert warned.startswith("warning: that is a path")
    assert "--allow-local" in warned
    assert kassay("project", "--check", "--folder", str(tmp_path))[1].partition(": ")[2].startswith("1 kernel, ")
    code, said, warned = kassay("project", "mine", "--commit", COMMIT)
    assert (code, said.splitlines()[0]) == (0, f"queued {http.get('/v1/jobs').json()['items'][0]['id']}")
    assert said.splitlines()[1].endswith("; no search has ended yet")
    assert warned == ""
    assert kassay("project", "mine", "--commit", COMMIT)[1].startswith("already waiting or running ")
    failed = done(http, state="failed", reason="a.py does not load: no module b")

    said = kassay("project", "mine")[1]
    assert f"last search failed: a.py does not load: no module b (kassay remote show {failed})" in said
    assert "no findings" not in said
    assert kassay("list", "projects")[1].splitlines()[1].split()[4] == "failed"
    page, _ = serving.browser()
    overview = page.get("/").text
    assert "No unresolved findings" not in overview
    assert 'class="verdict open">Last search failed: mine</h1>' in overview
    assert overview.count(f'href="/jobs/{failed}"') == 1
    project = page.get("/projects/mine").text
    assert "Nothing is unresolved" not in project
    assert "a.py does not load" in project.partition("Latest jobs")[0]
    assert http.get(STATUS).json()["state"] == "error"

    again = kassay("project", "mine", "--commit", COMMIT)[1]
    assert again.startswith("queued ")
    assert failed not in again.splitlines()[0]
    assert http.get(STATUS).json()["state"] == "pending"
    assert done(http, verdict="right") in again
    assert http.get(STATUS).json()["description"] == "1 job done, nothing found"
    code, said, _ = kassay("project", "mine", "--commit", COMMIT)
    assert (code, said.splitlines()[0].rpartition(" ")[0]) == (0, "already done")
    assert said.splitlines()[1].endswith("; no findings")
    assert http.post("/v1/projects/mine/commits", json={"commit": COMMIT}).status_code == 200
    assert "failed" not in page.get("/").text.partition("Latest changes")[0]


def test_a_job_that_was_tried_again_on_its_page_stands_for_the_failed_one(serving, http):
    begun(http)
    http.post("/v1/projects/mine/commits", json={"commit": COMMIT})
    failed = done(http, state="failed", reason="no network")
    page, word = serving.browser()
    page.post(f"/jobs/{failed}/again", data={"csrf": word})
    assert http.get(STATUS).json()["state"] == "pending"
    done(http, verdict="wrong", findings=[_own(1).plain(), _own(2).plain()])
    assert http.get(STATUS).json() | {"target_url": ""} == {
        "state": "failure",
        "context": "kassay",
        "description": "2 findings",
        "target_url": "",
    }


def _own(number):
    known = found(number)
    return known.but(state="minimized", subject=known.subject.but(path=""))


def test_the_headline_tells_of_findings_outside_projects(serving, http):
    http.post("/v1/jobs", json={"kind": "fuzz", "settings": {"cases": 9}})
    done(http, verdict="wrong", findings=[_own(0).plain()])
    page, _ = serving.browser()
    overview = page.get("/").text
    assert 'class="verdict open">1 unresolved finding outside projects, the latest just now</h1>' in overview
    assert f'href="/findings/{_own(0).id}"' in overview
    assert "Nothing is unresolved" not in overview
    assert page.get("/overview.json").json()["sentence"].startswith("1 unresolved finding outside")


def test_who_follows_is_told_how_far_it_is_and_of_each_finding(serving, http, kassay, monkeypatch):
    monkeypatch.setattr(remote, "NEWS_SECONDS", 0.0)
    steps = iter(range(9))
    ask = client.Client.job

    def job(self, name):
        step = next(steps)
        if step == 1:
            self.held = http.post("/v1/leases", json=ASK).json()
            told = {"cases": 64, "judged": 128, "findings": 1}
            beat = {"epoch": self.held["epoch"], "progress": told}
            http.post(f"/v1/tasks/{self.held['task']}/heartbeat", json=beat)
        if step == 2:
            ended = {"epoch": self.held["epoch"], "state": "done", "verdict": "wrong", "findings": [_own(0).plain()]}
            http.post(f"/v1/tasks/{self.held['task']}/outcome", json=ended)
        return ask(self, name)

    monkeypatch.setattr(client.Client, "job", job)
    code, said, news = kassay("submit", "fuzz", "--op", _own(0).signature.op, "--cases", "9", "--follow")
    lines = news.splitlines()
    assert lines[0].startswith("queued, 0 before it. No worker that takes this job")
    assert lines[1] == "running, 128 outputs judged, 0 findings stored, failures are looked into"
    assert lines[2].startswith("finding   ")
    assert lines[2].endswith(f"kassay pull {_own(0).id}")
    assert len(lines) == 3
    assert code == 1
    assert said.startswith("wrong: fuzz ")


def test_findings_of_one_bug_are_one_line(http, kassay):
    one = _own(0)
    other = one.but(signature=one.signature.but(rule="another"))
    assert one.id != other.id
    job = http.post("/v1/jobs", json={"kind": "time", "priority": 9}).json()["id"]
    held = http.post("/v1/leases", json={**ASK, "kinds": ["time"]}).json()
    ended = {"epoch": held["epoch"], "state": "done", "verdict": "wrong", "findings": [one.plain(), other.plain()]}
    assert http.post(f"/v1/tasks/{held['task']}/outcome", json=ended).is_success
    told = [line for line in kassay("show", job)[1].splitlines() if line.startswith("finding")]
    assert len(told) == 1
    assert " (also " in told[0]
    assert one.id in told[0]
    assert other.id in told[0]


def test_a_job_that_no_worker_takes_says_so(http, kassay):
    name = http.post("/v1/jobs", json={"kind": "fuzz", "settings": {"device": "cuda"}}).json()["id"]
    http.post("/v1/leases", json=ASK)
    said = kassay("show", name)[1]
    assert "advice    No worker that takes this job has asked for work" in said
    assert "kassay work --device cuda" in said
    assert "serve --engine ray" in said
    http.post("/v1/leases", json={**ASK, "worker": "w2", "devices": ["H100"], "kinds": ["judge"]})
    assert "advice" in kassay("show", name)[1], "of other kinds"
    http.post("/v1/leases", json={**ASK, "worker": "w3", "devices": ["H100"]})
    assert "advice" not in kassay("show", name)[1]


def test_times_are_to_the_second_and_ids_are_named_by_their_option(http, kassay):
    http.post("/v1/leases", json=ASK)
    head, row = kassay("list", "workers")[1].splitlines()
    assert head.endswith("seen, UTC")
    assert len(row.split()[-1]) == len("12:34:56")
    assert "." not in row.split()[-1]
    assert "." not in kassay("token")[1]
    for words, named in (
        (("submit", "verify", "--finding", "zzz"), "--finding 'zzz'"),
        (("wontfix", "zzz"), "FINDING 'zzz'"),
        (("cancel", "zzz"), "JOB 'zzz'"),
    ):
        code, _, said = kassay(*words)
        assert (code, f"{named}: an id is at most 64 hex digits" in said) == (2, True), said
