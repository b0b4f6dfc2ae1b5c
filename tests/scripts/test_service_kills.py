"""The benchmark that kills parts of the service: what it counts in the end."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_nightly import module_of

from kernel_assay.client import ServiceError

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return module_of(BENCH / "service_kills", monkeypatch)


class FakeClient:
    """Jobs on two pages, two of them there twice; of three findings one was shrunk to another, and one was lost."""

    def jobs(self, after, **_):
        names, findings = ("cc", ["f2", "f3"]) if after else ("aab", ["f1"])
        jobs = [SimpleNamespace(sources=name, findings=findings) for name in names]
        return SimpleNamespace(items=jobs, next=None if after else "2")

    def findings(self, **_):
        return SimpleNamespace(items=[SimpleNamespace(id="f1")])

    def finding(self, name):
        if name == "f3":
            raise ServiceError(404, "There is no finding f3.")
        return SimpleNamespace(record=SimpleNamespace(id="f1"))


def test_a_job_that_is_there_twice_is_counted_once(script):
    service, load = SimpleNamespace(client=FakeClient()), SimpleNamespace(twice=0)
    assert script.counted(service, load) == (2, 1)
