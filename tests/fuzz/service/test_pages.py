"""What the pages say: of a run, of times over commits, of what failed; and the feed of findings."""

import json
from base64 import b64encode
from xml.etree import ElementTree as ET

import pytest
from _filled import DAY, LONG, fill
from _serving import Serving, found
from sqlalchemy import update

from kernel_assay.corpus.storage.sql.service_tables import job, life
from kernel_assay.fuzz.service.pages.kit import when
from kernel_assay.fuzz.service.pages.views import _unresolved, _week
from kernel_assay.fuzz.service.protocol import JobRequest, Outcome, Progress
from kernel_assay.fuzz.service.queue import coverage, jobs, upkeep

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    with Serving(tmp_path_factory.mktemp("serving"), public=True) as server:
        server.ids = fill(server.service.database, findings=13, ended=3, timed=12)
        yield server


@pytest.fixture(scope="module")
def browser(serving):
    return serving.browser()


@pytest.fixture
def row(serving):
    with serving.service.database.writing() as connection:
        name, _ = jobs.submit(connection, JobRequest(kind="fuzz"), "ann")
        yield connection, jobs.row_of(connection, name)


def part(cells, quiet=0.0, findings=()):
    told = Progress(cells=len(cells), quiet=quiet)
    record = json.dumps({"coverage": dict.fromkeys(cells, 1)})
    return Outcome(epoch=1, state="done", record=record, progress=told, findings=findings)


def test_cells_of_all_parts_are_counted_once_and_the_last_new_one_is_dated(row):
    connection, of = row
    of["started"] = 1000.0
    assert coverage.take_in(connection, of, part(["a", "b"], quiet=4.0), 1010.0) == 2
    assert coverage.take_in(connection, of, part(["b"]), 1020.0) == 2
    assert coverage.covered(connection, of["id"]).newest == 1006.0, "nothing was new in the second"
    assert coverage.take_in(connection, of, part(["b", "c"]), 1030.0) == 3
    kept = coverage.covered(connection, of["id"])
    assert (kept.coverage, kept.growth, kept.newest) == ({"a": 1, "b": 3, "c": 1}, [(10.0, 2), (30.0, 3)], 1030.0)
    assert (kept.new_since(0.0), kept.new_since(15.0), kept.new_since(40.0)) == (3, 1, 0)
    coverage.take_in(connection, of, part(["a"], findings=(found(0),)), 1040.0)
    assert coverage.covered(connection, of["id"]).newest == 1040.0, "a new finding is new, too"


@pytest.mark.parametrize(
    "record", ["", "{", "[]", "[" * 5000, '{"coverage": 3}', '{"coverage": {"a": 1e400}}', '{"newest": Infinity}']
)
def test_coverage_that_makes_no_sense_is_none(row, record):
    connection, of = row
    assert coverage.take_in(connection, of, Outcome(epoch=1, state="done", record=record), 1.0) == 0
    with_it = coverage.artifact.insert().values(job=of["id"], name=coverage.NAME, body=json.dumps(record))
    connection.execute(with_it)
    assert coverage.covered(connection, of["id"]).coverage == {}


def test_a_run_says_how_fast_it_is_and_when_it_met_something_new(serving, browser):
    client, _ = browser
    said = client.get(f"/jobs/{serving.ids['running']}.json").json()
    figures = {one["name"]: (one["value"], one["remark"]) for one in said["figures"]}
    assert figures["outputs/s"] == ("683", "right now")
    assert figures["cells of coverage"] == ("550", "550 new in 10 min")
    assert figures["since the last new thing"][0].startswith(("1 min", "2 min"))


def test_a_failed_job_says_why_in_the_list_and_what_to_do_on_its_page(serving, browser):
    client, word = browser
    listed = client.get("/jobs").text
    assert "No module named &#39;flash_attn&#39;" in listed
    assert "/projects/gone" not in listed, "no link to what is not there"
    page = client.get(f"/jobs/{serving.ids['failed']}").text
    assert "install that there, and try again" in page
    assert "Look at what `kassay work` printed" in client.get(f"/jobs/{serving.ids['lost']}").text
    made = client.post(f"/jobs/{serving.ids['failed']}/again", data={"csrf": word}).headers["location"]
    before, again = (client.get(f"/v1/jobs/{name}").json() for name in (serving.ids["failed"], made[6:]))
    same = ("kind", "project", "target", "checkout", "finding", "settings")
    assert again["state"] == "queued"
    assert {name: again[name] for name in same} == {name: before[name] for name in same}
    assert client.post(f"/jobs/{serving.ids['failed']}/again", data={"csrf": "x"}).status_code == 403


def test_a_job_that_nobody_can_take_says_so(serving, browser):
    client, _ = browser
    asked = {"kind": "fuzz", "settings": {"device": "cuda"}}
    name = serving.client().post("/v1/jobs", json=asked).json()["id"]
    assert "Start one: kassay work --device cuda" in client.get(f"/jobs/{name}").text
    assert client.get(f"/jobs/{serving.ids['waiting']}.json").json()["advice"] == ""


def test_times_over_commits_and_what_got_slower(serving, browser):
    client, _ = browser
    said = client.get("/performance.json").json()
    assert [one["slower"] for one in said["times"]] == [True, True, False, False]
    first = said["times"][1]
    assert (first["subject"], first["runs"], first["interval"]) == (f"softmax/{LONG}", 12, "22.1 µs to 23.9 µs")
    assert first["change"].startswith("1.14x slower since ")
    assert first["since"] != serving.ids["timed"] == first["job"]
    page = client.get("/performance").text
    assert page.count("<svg") == 2
    assert page.count("slower since</text>") == 2
    assert client.get("/performance?kernel=softmax/steady").text.count("<svg") == 2
    assert client.get("/performance.json?project=llm").json()["times"] == []
    assert "Time one: <code>kassay remote" in client.get("/performance?project=llm").text


def test_times_outlive_the_other_texts_of_a_job_and_hostile_ones_are_left_out(serving, browser):
    client, _ = browser
    with serving.service.database.writing() as connection:
        name, _ = jobs.submit(connection, JobRequest(kind="time", project="odd"), "ann")
        series = '{"subject": "s/x", "label": "c", "machine": "m", "points": [%s]}'
        point = '{"run": "", "at": "", "revision": "", "seconds": %s, "low": 1, "high": 3}'
        bad = [series % (point % number) for number in ("-1", "NaN", "1e400", "0")] + [series % (point % 2)]
        body = json.dumps(f"[{', '.join(bad)}]")
        connection.execute(coverage.artifact.insert().values(job=name, name="history.json", body=body))
        connection.execute(coverage.artifact.insert().values(job=name, name="times.txt", body=json.dumps("x")))
        connection.execute(update(job).where(job.c.id == name).values(ended=5.0, state="done"))
        upkeep.forget(connection, 10.0)
        assert jobs.get(connection, name).artifacts == ("history.json",)
    (one,) = client.get("/performance.json?project=odd").json()["times"]
    assert (one["runs"], one["seconds"]) == (1, 2.0)


def feed(client, path="/feed.atom", **more):
    answer = client.get(path, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/atom+xml")
    return ET.fromstring(answer.content)


def test_the_feed_has_an_entry_for_each_state_with_an_id_that_stays(serving):
    client = serving.client("read")
    one, two = feed(client), feed(client)
    entries = one.findall(f"{ATOM}entry")
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids) > 8
    assert ids == [entry.findtext(f"{ATOM}id") for entry in two.findall(f"{ATOM}entry")]
    for tag in ("id", "title", "updated"):
        assert all(place.findtext(ATOM + tag) for place in (one, *entries))
    assert {entry.find(f"{ATOM}category").get("term") for entry in entries} == {"new", "reopened", "fixed", "wontfix"}
    links = [entry.find(f"{ATOM}link").get("href") for entry in entries]
    assert all(client.get(link.removeprefix(serving.service.settings.address)).status_code == 200 for link in links[:3])
    mine = feed(client, "/projects/vision/feed.atom").findall(f"{ATOM}entry")
    assert 0 < len(mine) < len(entries)
    assert client.get("/projects/none/feed.atom").status_code == 404


def test_texts_in_the_feed_are_escaped(serving):
    nasty = "</title><script>alert(1)</script>&\0\x1b\ufffe"
    with serving.service.database.writing() as connection:
        connection.execute(update(life).values(title=nasty.replace("\0", "\1")))
    text = serving.client("read").get("/feed.atom").text
    assert "<script" not in text
    assert "alert(1)" in ET.fromstring(text).findtext(f".//{ATOM}entry/{ATOM}title")


def test_a_token_in_an_address_opens_feeds_and_nothing_else(tmp_path):
    with Serving(tmp_path) as server:
        anybody, secret = server._client, server.token("feed")
        assert anybody.get("/feed.atom").status_code == 401
        assert anybody.get("/feed.atom").headers["www-authenticate"].startswith("Basic ")
        assert len(feed(anybody, f"/feed.atom?token={secret}")) > 3
        basic = b64encode(f"anybody:{secret}".encode()).decode()
        feed(anybody, headers={"Authorization": f"Basic {basic}"})
        feed(server.client("read"))
        wrong = [f"/feed.atom?token={server.token('read')}", "/feed.atom?token=x", f"/findings.json?token={secret}"]
        assert [anybody.get(path, follow_redirects=False).status_code for path in wrong] == [401, 401, 401]
        reader = {"Authorization": f"Bearer {secret}"}
        assert [anybody.get(path, headers=reader).status_code for path in ("/v1/findings", "/findings")] == [403, 403]
        both = server.client().post("/v1/tokens", json={"name": "x", "scopes": ["feed", "read"]})
        assert (both.status_code, "no other" in both.json()["detail"]) == (422, True)


def test_a_finding_has_a_discussion_an_issue_text_and_its_neighbours(serving, browser):
    client, word = browser
    address, form = f"/findings/{serving.ids['finding']}", {"csrf": word, "project": "vision"}
    said = client.post(f"{address}/discuss", data={**form, "address": "https://git.example.org/issues/7"})
    assert said.headers["location"] == f"{address}?project=vision"
    page = client.get(f"{address}?project=vision").text
    assert '<a href="https://git.example.org/issues/7" rel="noopener noreferrer nofollow">' in page
    for bad in ("javascript:alert(1)", "https://[", "/jobs", "https://a b"):
        assert client.post(f"{address}/discuss", data={**form, "address": bad}).status_code == 422
    assert "Text for an issue, in Markdown" in page
    assert f"{serving.service.settings.address}{address}\n</pre>" in page
    assert "owned by ann@example.org" in page


def test_trends_count_weeks_without_anything_and_one_project_alone(serving, browser):
    client, _ = browser
    every, mine, other = (client.get(f"/trends.json{query}").json() for query in ("", "?project=llm", "?project=none"))
    assert len(every["weeks"]) == 12
    assert sum(mine["series"]["new findings"]) == 4
    assert sum(every["series"]["new findings"]) == 13
    assert every["series"]["unresolved at its end"][-1] == len([s for s in range(13) if s % 7 not in {2, 5, 6}])
    assert not any(any(counts) for counts in other["series"].values())
    assert "Nothing has happened yet" in client.get("/trends?project=none").text


def change(week, what, about="a"):
    return (week + 0.5) * 7 * DAY, what, about, ""


def test_what_was_unresolved_at_the_end_of_each_week():
    rows = [
        change(2, "new"),
        change(2, "open"),
        change(4, "fixed"),
        change(4, "discussed"),
        change(7, "reopened"),
    ]
    rows += [change(3, "fixed", "known before"), change(5, "wontfix", "b")]
    counts = _unresolved(1, sorted(rows), 0.0)
    assert counts == [2, 2, 3, 2, 1, 0, 0, 1, 1, 1, 1, 1]
    assert [_week(at * 7 * DAY, 0.0) for at in (0, 0.999, 1, 11.5, 12.5)] == [0, 0, 1, 11, 11]


def test_times_are_relative_and_exact_in_a_title():
    assert when(None) == "never"
    text = when("2020-01-31T12:00:05+02:00")
    assert 'title="2020-01-31 10:00:05 UTC"' in text
    assert text.endswith(" d ago</time>")


def test_the_kernels_page_names_its_columns_apart(browser):
    heads = browser[0].get("/kernels").text.partition("<thead>")[2].partition("</thead>")[0]
    assert heads.count(">open</th>") == 1
    assert heads.count(">unresolved</th>") == 1
