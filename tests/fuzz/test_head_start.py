"""Workers start while a reference is loaded, are taken by the run, and are closed if nobody takes them."""

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.api import RunSettings, Store, run
from kernel_assay.fuzz.checking import head_start as module
from kernel_assay.fuzz.checking import user_references
from kernel_assay.fuzz.checking.head_start import HeadStart, head_start
from kernel_assay.kernels.catalog import subjects_of

pytestmark = pytest.mark.usefixtures("no_references")

REFERENCE = 'import numpy as np\n\n\ndef twice(x: "float32[n]"):\n    return x * {}\n'


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "ref.py").write_text(REFERENCE.format(2))
    (tmp_path / "mine.py").write_text("import numpy as np\n\n\ndef run(x):\n    return x + x\n")
    return RunSettings(references=(f"{tmp_path}/ref.py:twice",), subjects=(f"{tmp_path}/mine.py",), cases=4, seed=1)


class FakePool:
    def __init__(self, *backends):
        self.backends, self.closed = backends, 0

    def close(self):
        self.closed += 1


def test_a_run_has_the_workers_that_were_started_before_its_reference(settings, tmp_path, monkeypatch):
    met = []

    def pool_ahead(*words, **more):
        met.append("workers")
        return started(*words, **more)

    def add_reference(text, **how):
        met.append("reference")
        return known(text, **how)

    def take(ahead, subjects):
        met.append(taken(ahead, subjects))
        return met[-1]

    started, known, taken = module.pool_ahead, user_references.add_reference, HeadStart.take
    monkeypatch.setattr(module, "pool_ahead", pool_ahead)
    monkeypatch.setattr(user_references, "add_reference", add_reference)
    monkeypatch.setattr(HeadStart, "take", take)
    with Store(tmp_path / "corpus") as store:
        result = run(settings, store=store)
    result.verify()
    assert met[:2] == ["workers", "reference"]
    assert met[2].backends == ("numpy",)


def test_workers_of_a_reference_that_is_refused_are_closed(settings, tmp_path, monkeypatch):
    pool = FakePool("numpy")
    monkeypatch.setattr(module, "pool_ahead", lambda *_, **__: pool)
    (tmp_path / "ref.py").write_text(REFERENCE.format("undefined"))
    with Store(tmp_path / "corpus") as store, pytest.raises(UsageError):
        run(settings, store=store)
    assert pool.closed == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"references": ()},
        {"peers": ("numpy_float32",)},
        {"python": "python3"},
        {"subjects": ("no-such-file.py",)},
    ],
)
def test_none_start_where_it_is_not_known_which_are_needed(settings, changes):
    subjects = subjects_of("silu")
    with head_start(RunSettings(**{"references": settings.references, "subjects": settings.subjects, **changes})) as it:
        assert it.take(subjects) is None


def test_only_those_that_fit_are_taken():
    mine = [s for s in subjects_of("silu") if s.loader == "numpy"]
    with HeadStart(pool := FakePool("torch")) as ahead:
        assert ahead.take(mine) is None
        assert pool.closed == 1, "nobody else can want it"
    assert pool.closed == 1
    with HeadStart(pool := FakePool("numpy")) as ahead:
        assert ahead.take(mine) is pool
        assert ahead.take(mine) is None
    assert pool.closed == 0, "it is its taker's"
