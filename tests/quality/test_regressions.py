"""What was found once, and is kept in corpus/regressions, is still found; what was repaired stays repaired."""

from pathlib import Path

import pytest

from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.replay.replay import gather, replay

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def replayed():
    with Store(ROOT / "corpus") as store:
        items = gather(store, [str(path) for path, _ in store.regressions()])
    return {r.item.name: r for r in replay(items, None, timeout=10.0, memory_mb=4096)}


def test_there_is_one_for_every_op(replayed):
    folders = {Path(name).parent.name for name in replayed}
    assert folders == {path.parent.name for path in (ROOT / "kernels").glob("*/bug_*.py")}


def test_every_regression_is_as_it_should_be(replayed):
    wrong = {name: (r.outcome.value, r.verdict.message) for name, r in replayed.items() if not r.good}
    assert not wrong


def test_the_inputs_are_those_of_the_day_they_were_found(replayed):
    assert all(r.item.finding.input_digest for r in replayed.values())
    assert not [name for name, r in replayed.items() if r.outcome.value == "recipe drifted"]
