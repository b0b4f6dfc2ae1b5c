"""What `pull` and others say of what a worker or a user got wrong: one sentence."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kernel_assay
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.service import client
from kernel_assay.fuzz.service.protocol import SENT, Job
from kernel_assay.fuzz.service.pulling import pulled
from kernel_assay.fuzz.service.work.slot import SECRET, _programs
from kernel_assay.reports.plain.terminal import visible


class _Server:
    """A client of a server on which a worker has left this bundle."""

    def __init__(self, told, bundle):
        self._told, self._bundle = told, bundle

    def finding(self, _name, _project=None):
        return self._told

    def artifact(self, _job, _name):
        return self._bundle


class _Told:
    id, job = "ab", "cd"

    def __init__(self, record):
        self.record = record


@pytest.mark.parametrize(
    "bundle",
    [
        '{"files": {".": ""}}',
        '{"files": {".GIT/x.py": ""}}',
        '{"files": {"../../x.py": ""}}',
        '{"files": {"/x.py": ""}}',
        "[1,",
        "[" * 9999,
    ],
)
def test_a_bundle_that_leads_out_is_refused_in_one_sentence(tmp_path, stored, bundle):
    with Store(tmp_path / "corpus") as store, pytest.raises(UsageError, match="cannot be taken") as raised:
        pulled(_Server(_Told(stored), bundle), "ab", store, None)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("x.py"))


def own(stored, **more):
    subject = stored.subject.but(name="a", path=f"{SENT}/a.py", **more)
    return stored.but(subject=subject, signature=stored.signature.but(subject="a"))


REFERENCE = f"{SENT}/r.py:right#0123456789abcdef"


@pytest.mark.parametrize(
    ("more", "finding", "said"),
    [
        ({"python": "/tmp/evil"}, {}, "names a program to run it with"),
        ({}, {"contract": "/home/ann/contract.py"}, "none of its files"),
        ({}, {"contract": f"{SENT}/../../contract.py"}, "none of its files"),
        ({}, {"contract": f"{SENT}/contract.py"}, "with your rights: read .*/contract.py, then pull it with --trust"),
        ({}, {"contract": REFERENCE}, "with your rights: read .*/r.py, then pull it with --trust"),
    ],
)
def test_code_of_a_stranger_that_would_not_be_closed_in_is_not_pulled(tmp_path, stored, more, finding, said):
    bundle = '{"files": {"sources/a.py": "", "sources/r.py": "", "sources/contract.py": ""}}'
    told = _Told(own(stored, **more).but(**finding))
    with Store(tmp_path / "corpus") as store:
        with pytest.raises(UsageError, match=said):
            pulled(_Server(told, bundle), "ab", store, None)
        assert list(store.findings()) == []
        if "trust" in said:
            assert pulled(_Server(told, bundle), "ab", store, None, trust=True).contract.endswith(
                finding["contract"].rpartition("/")[2]
            )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["remote", "project", "mine", "--commit", "zz"], "a commit is 7 to 64 hex digits"),
        (["work", "--name", "a b"], "'a b' is no name"),
    ],
)
def test_names_that_no_server_takes_are_said_to_be(capsys, words, sentence):
    assert main([*words, "--server", "http://127.0.0.1:1", "--token", "kassay_x"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kassay: ")
    assert said.count("\n") == 1
    assert sentence in said


class _Nasty(_Server):
    """A client of a server whose jobs and findings bring what a terminal obeys."""

    text = "a\x1b[2Jb\tc\nd\u202e"

    def __init__(self, *_):
        job = {"id": "ab", "kind": "judge", "project": None, "target": {}, "settings": {}, "priority": 5}
        said = {"reason": self.text, "message": self.text, "artifacts": ("x\x1b",)}
        self._job = Job(**job, **said, state="done", verdict="wrong", created=datetime.now(UTC))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def job(self, _name):
        return self._job

    def judge(self, *_):
        return self._job

    def log(self, *_):
        return self.text, 0

    def artifact(self, *_):
        return self.text


@pytest.mark.parametrize(
    "words", [["show", "ab"], ["show", "ab", "--text", "x"], ["log", "ab"], ["judge", "a.py", "--op", "silu"]]
)
def test_what_a_terminal_obeys_is_written_out(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "a.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "Client", _Nasty)
    main(["remote", *words, "--token", "kassay_x"])
    said = capsys.readouterr().out
    assert all(one.isprintable() or one in "\n\t" for one in said)
    assert r"a\x1b[2Jb" in said


def test_controls_of_a_stranger_are_written_out():
    assert visible("a\x1b[2J\r\n\u202eb") == r"a\x1b[2J\r\n\u202eb"
    assert visible("größer ≤ 1") == "größer ≤ 1"


def test_what_the_service_tells_people_to_keep_in_a_home_is_hidden():
    assert {".pgpass", ".config", ".ssh"} <= set(SECRET)


def test_where_programs_lie_is_seen_and_no_home(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{Path.home()}:/:relative:/usr/bin:{tmp_path}")
    monkeypatch.setenv("A_SECRET", "/srv")
    seen = set(map(Path, _programs()))
    assert {Path("/usr/bin"), tmp_path, Path(sys.prefix), Path(kernel_assay.__file__).resolve().parent} <= seen
    assert not seen & {Path.home(), *Path.home().parents, Path.cwd(), Path("/srv")}
    for name in (".git", ".env", "package"):
        (tmp_path / name).mkdir()
    assert {one for one in map(Path, _programs()) if one.is_relative_to(tmp_path)} == {tmp_path / "package"}
