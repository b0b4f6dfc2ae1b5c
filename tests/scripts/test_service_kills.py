"""The benchmark that kills parts of the service: what it counts in the end."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_nightly import module_of

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture
def script(monkeypatch):
    pytest.importorskip("sqlalchemy")
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return module_of(BENCH / "service_kills", monkeypatch)


class FakeClient:
    """Jobs on two pages, two of them there twice, and a finding that was lost."""

    def jobs(self, after, **_):
        names, finding = ("cc", "f2") if after else ("aab", "f1")
        jobs = [SimpleNamespace(sources=name, findings=[finding]) for name in names]
        return SimpleNamespace(items=jobs, next=None if after else "2")

    def findings(self, **_):
        return SimpleNamespace(items=[SimpleNamespace(id="f1")])


def test_a_job_that_is_there_twice_is_counted_once(script):
    service, load = SimpleNamespace(client=FakeClient()), SimpleNamespace(twice=0)
    assert script.counted(service, load) == (2, 1)
