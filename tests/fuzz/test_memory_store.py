"""The store in memory keeps what a run asks of it, as the one on disk does."""

import json

import pytest
from _silu import right

from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.memory_store import MemoryStore
from kernel_assay.fuzz import api

KERNEL = right("float32") + "    out.reshape(-1)[-1:] = 77\n"


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    return api.RunSettings(subjects=(str(tmp_path / "kernel.py"),), peers=("none",), cases=24, seed=3)


def told(result):
    """What a run has found, without its times."""
    records = [finding.plain() for finding in result.findings]
    for record in records:
        for name in ("first_seen", "last_seen", "history", "found_by", "environment"):
            record.pop(name)
    c = result.campaign
    return json.dumps(records, sort_keys=True), c.cases, c.judged, c.kinds, c.coverage, c.findings


def test_a_run_in_memory_finds_what_one_on_disk_finds(settings, tmp_path):
    stop, memory = api.Stop(), MemoryStore()

    def first(event):
        if isinstance(event, api.FailureMet):
            stop.ask()

    in_memory = api.run(settings, store=memory, on_event=first, stop=stop)
    stop = api.Stop()
    with Store(tmp_path / "corpus") as disk:
        on_disk = api.run(settings, store=disk, on_event=first, stop=stop)
        assert [f.id for f in memory.findings("silu")] == [f.id for f in disk.findings()]
    assert in_memory.failed
    assert told(in_memory) == told(on_disk)
    assert memory.runs() == [in_memory.campaign.run]
    assert all(memory.has(finding) for finding in in_memory.findings)


def test_findings_of_one_signature_are_merged_and_dropped_ones_are_forgotten(settings):
    memory = MemoryStore()
    found = api.run(settings, store=memory).findings[0]
    before = next(f for f in memory.findings() if f.id == found.id).count
    assert memory.save_finding(found.but(count=5)).count == before + 5
    memory.drop(found)
    assert not memory.has(found)
    assert memory.findings("softmax") == []
