"""What the tests of the commands share."""

import atexit
from types import SimpleNamespace

import pytest

from kernel_assay.fuzz import api
from kernel_assay.fuzz.__main__ import main
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool
from kernel_assay.oracles.catalog import forget_contracts


@pytest.fixture
def sandboxes(monkeypatch):
    """Those of `api.check` end with a test, not with the process; the zygote that they share goes on."""
    ends = []

    def register(end, *words):
        keep = isinstance(getattr(end, "__self__", None), WorkerPool)
        atexit.register(end, *words) if keep else ends.append((end, words))

    monkeypatch.setattr(api, "atexit", SimpleNamespace(register=register))
    yield
    api._examiner.cache_clear()
    for end, words in ends:
        end(*words)


@pytest.fixture
def no_references():
    """A test begins without references, and leaves none: each names its own."""
    forget_contracts()
    yield
    forget_contracts()


@pytest.fixture
def fuzz(capsys):
    """A command: its exit code, its output, and what it says beside."""

    def call(*words):
        code = main([*map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
