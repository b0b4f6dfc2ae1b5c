"""The memory: what is saved comes back, merges in any order, and nonsense is refused in one sentence."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.exhaustive_result import Proof, Sweep
from kernel_assay.corpus.model.findings import Environment, Finding, State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Signature, Verdict
from kernel_assay.corpus.storage import atomic_files
from kernel_assay.corpus.storage.atomic_files import named_trouble
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.merging import merge
from kernel_assay.corpus.storage.reading import read_record

ENVIRONMENT = Environment(python="3.11", platform="linux", machine="x86_64")


def case(*shape: int, op: str = "softmax", **fields) -> Case:
    return Case(op=op, tensors={"x": TensorRecipe(shape=shape or (3, 5), dtype="float32", **fields)})


def finding(smallest: Case | None = None, *, op: str = "softmax", rule: str = "rho", **fields) -> Finding:
    signature = Signature(op=op, subject=f"{op}/bad", kind=Kind.MISMATCH, rule=rule, dtype="float32")
    smallest = smallest or case(op=op)
    told = Verdict(kind=Kind.MISMATCH, rule=rule, signature=signature, message=f"wrong on {smallest.label}")
    subject = Subject(op=op, name="bad", backend="numpy")
    made = Finding(
        signature=signature, case=smallest, original=smallest, subject=subject, verdict=told, environment=ENVIRONMENT
    )
    return made.but(**fields)


def proof(name: str = "bad", **fields) -> Proof:
    subject = Subject(op="silu", name=name, backend="numpy")
    whole = case(256, 256, op="silu", fill=Fill(distribution="every_bits"))
    checked = (Sweep(case=whole, kind=Kind.PASS, rho=0.5),)
    return Proof(subject=subject, environment=ENVIRONMENT, at="2026-01-01", checked=checked).but(**fields)


def campaign(run: str = "r1", **fields) -> Campaign:
    return Campaign(run=run, seed=1, environment=ENVIRONMENT, **fields)


@pytest.fixture
def files(tmp_path):
    with Store(tmp_path / "corpus") as made:
        yield made


def one_sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# findings and proofs


def test_init_creates_nothing_and_reading_an_empty_memory_works(files):
    assert (files.findings(), files.regressions(), files.seeds("softmax"), files.runs()) == ([], [], [], [])
    assert files.latest_unfinished() is None
    assert files.read_journal("r1", "pending") == []
    assert not files.has(finding())
    assert not files.root.exists()


def test_what_was_found_here_is_known_and_what_others_committed_is_not(store):
    store.save_finding(finding())
    store.promote(finding(rule="other"))
    assert store.has(finding(case(7), count=3))
    assert not store.has(finding(rule="other"))


@pytest.mark.parametrize(
    ("name", "file"), [("bad", "bad.json"), ("mine:run", "mine-run.json"), ("my köl/../x", "my_k_l_.._x.json")]
)
def test_a_proof_takes_the_place_of_the_one_before(files, name, file):
    files.save_proof(proof(name, at="2025-01-01"))
    path = files.save_proof(proof(name))
    assert path == files.root / "local" / "proofs" / "silu" / file
    assert [p.name for p in path.parent.iterdir()] == [file]
    assert read_record(path, Proof).canonical() == proof(name).canonical()


def test_saved_findings_come_back(files):
    saved = files.save_finding(
        finding(verdict=Verdict(kind=Kind.NONFINITE, rho=float("nan"), message="kaput \udc80 é"))
    )
    (again,) = files.findings()
    assert again.canonical() == saved.canonical()
    path = files.root / "local" / "findings" / "softmax" / f"{saved.id}.json"
    assert "\n  " in path.read_text()
    written = [name for name in Finding.model_fields if name not in {"sent", "cliff"}]  # left out where there is none
    assert list(json.loads(path.read_text())) == written


def test_findings_are_sorted_and_filtered(store):
    for op, rule in (("softmax", "z"), ("gemm", "rho"), ("softmax", "guard")):
        store.save_finding(finding(op=op, rule=rule))
    assert [(f.signature.op, f.signature.rule) for f in store.findings()] == [
        ("gemm", "rho"),
        ("softmax", "guard"),
        ("softmax", "z"),
    ]
    assert [f.signature.op for f in store.findings("gemm")] == ["gemm"]


def test_finding_by_prefix(store):
    saved = [store.save_finding(finding(rule=f"rule{i}")) for i in range(17)]  # 17 ids, 16 first digits
    assert store.finding(saved[0].id).id == saved[0].id
    assert store.finding(saved[3].id[:12]).id == saved[3].id
    with pytest.raises(UsageError, match="no finding"):
        store.finding("zz")
    with pytest.raises(UsageError, match="17 findings"):
        store.finding("")


def test_merge_adds_up(store):
    store.save_finding(finding(count=2, aliases=("b",), first_seen="2026-02", last_seen="2026-03", found_by="r:1"))
    met = finding(count=3, aliases=("a", "b"), first_seen="2026-01", last_seen="2026-01", found_by="r:9", expect="fail")
    merged = store.save_finding(met)
    assert (merged.count, merged.aliases) == (5, ("a", "b"))
    assert (merged.first_seen, merged.last_seen) == ("2026-01", "2026-03")
    assert (merged.found_by, merged.expect) == ("r:1", "pass")
    assert [f.canonical() for f in store.findings()] == [merged.canonical()]


def test_unknown_dates_do_not_win():
    assert merge(finding(first_seen=""), finding(first_seen="2026")).first_seen == "2026"


SPECIALS = (Special(value="nan", place="last"),)
SMALLER = [
    (case(2, 2), case(2, 3)),
    (case(2, 2), case(2, 2, specials=SPECIALS)),
    (case(1, 5, specials=SPECIALS), case(2, 3)),
    (case(2, 2, pokes=((0, 1),)), case(2, 2, specials=SPECIALS, pokes=((0, 1),))),
    (case(2, 2), case(2, 2, layout="transposed_twice")),
]


@pytest.mark.parametrize(("small", "large"), SMALLER)
def test_the_smaller_case_wins_with_all_that_was_seen_on_it(small, large):
    less = finding(small, input_digest="s", gates=("g",), probability=0.5)
    more = finding(large, input_digest="l", probability=1.0)
    for stored, met in ((less, more), (more, less)):
        merged = merge(stored, met)
        assert merged.case.id == small.id
        assert merged.verdict.message == less.verdict.message
        assert (merged.input_digest, merged.gates, merged.probability) == ("s", ("g",), 0.5)
        assert merged.original.id == stored.original.id


def test_of_the_same_case_the_one_that_got_further_wins():
    met, minimized = finding(), finding(state=State.MINIMIZED, gates=("cols % 32 != 0",))
    assert merge(met, minimized).gates == merge(minimized, met).gates == minimized.gates


SHRINK_PASSES = """
new confirmed -> confirmed | confirmed new -> confirmed | new flaky -> flaky | new new -> new
flaky minimized -> minimized | minimized flaky -> minimized | minimized open -> open | open new -> open
open fixed -> fixed | minimized fixed -> fixed | fixed fixed -> fixed | regression fixed -> fixed
fixed new -> regression | fixed minimized -> regression | fixed open -> regression
regression new -> regression | regression minimized -> regression
"""


@pytest.mark.parametrize("move", SHRINK_PASSES.strip().replace("\n", " | ").split(" | "))
def test_states_move_forward(move):
    stored, met, wanted = map(State, move.replace("->", "").split())
    assert merge(finding(state=stored), finding(state=met)).state is wanted


def test_confirmed_or_flaky_goes_with_the_case_that_is_kept():
    small, large = finding(case(1, 1), state=State.FLAKY), finding(case(9, 9), state=State.CONFIRMED)
    assert merge(small, large).state is merge(large, small).state is State.FLAKY


def test_two_processes_merge_without_loss(store):
    code = (
        "import sys; from test_store import case, finding; from kernel_assay.fuzz.api import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "for i in range(30):\n"
        "    store.save_finding(finding(aliases=(f'{sys.argv[2]}{i}',)))\n"
        "    store.add_seed(case(int(sys.argv[2]), i + 1))\n"
    )
    here = Path(__file__)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here.parents[2]), str(here.parent)))}
    command = [sys.executable, "-c", code, getattr(store.place, "url", str(store.place))]
    writers = [subprocess.Popen([*command, name], env=env) for name in "12"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    (found,) = store.findings()
    assert found.count == len(found.aliases) == 60
    assert len(store.seeds("softmax")) == 60


def test_a_writer_that_fails_leaves_the_old_file(files, monkeypatch):
    saved = files.save_finding(finding())

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(UsageError, match="No space left") as error:
        files.save_finding(finding())
    assert saved.id in one_sentence(error)
    monkeypatch.undo()
    assert files.findings()[0].count == 1
    assert [p.name for p in files.root.rglob("*") if p.name.startswith(".")] == []


def test_leftover_temporaries_are_ignored_and_swept(files):
    files.save_finding(finding())
    files.promote(finding())
    files.add_seed(case())
    files.start_run(campaign())
    data = [p for p in files.root.rglob("*.json*") if p.is_file()]
    assert len(data) == 4
    for path in data:
        path.with_name(f".{path.name}.tmp").write_text('{"torn')
    assert len(files.findings()) == len(files.regressions()) == len(files.seeds("softmax")) == len(files.runs()) == 1
    files.prepare()
    assert list(files.root.rglob(atomic_files.TEMPORARY)) == []
    assert all(p.exists() for p in data)


def test_prepare_names_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "corpus").write_text("a file where a folder should be")
    with pytest.raises(UsageError, match="not writable") as error:
        Store(tmp_path / "corpus").prepare()
    assert str(tmp_path / "corpus" / "local") in one_sentence(error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_prepare_sees_permissions(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(UsageError, match="Permission denied"):
        Store(tmp_path / "corpus").prepare()


def test_prepare_leaves_only_the_lock(files):
    files.prepare()
    files.prepare()
    assert [p.name for p in files.root.rglob("*") if p.is_file()] == ["lock"]


def test_promote(files):
    path = files.promote(finding(state=State.MINIMIZED, first_seen="2026"))
    assert path.parent == files.root / "regressions" / "softmax"
    assert path.name == f"{finding().signature.key}-{case().id}.json"
    ((found_at, found),) = files.regressions()
    assert (found_at, found.state) == (path, State.OPEN)
    path.write_text(path.read_text().replace('"expect": "pass"', '"expect": "fail"'))
    assert files.promote(finding(state=State.FIXED, first_seen="2027")) == path
    ((_, found),) = files.regressions()
    assert (found.state, found.expect, found.first_seen) == (State.REGRESSION, "fail", "2026")


def test_strange_and_long_signatures_get_a_file_name(files):
    paths = {files.promote(finding(rule=rule)) for rule in ("law:sum", "law_sum", "law sum", "../x", "r" * 300)}
    assert len(paths) == len(files.regressions()) == 5
    assert all(path.parent.name == "softmax" and len(path.name) < 200 for path in paths)


@pytest.mark.parametrize("op", ["../evil", "", ".hidden", "a/b", "x" * 101])
def test_ops_that_are_no_folder_are_refused(store, op):
    with pytest.raises(UsageError, match="cannot name a folder"):
        store.save_finding(finding(op=op))
    with pytest.raises(UsageError, match="cannot name a folder"):
        store.seeds(op)


# seeds


def test_seeds_keep_order_and_are_not_doubled(store):
    cases = [case(i, 2) for i in (3, 1, 2)]
    two_inputs = Case(op="softmax", tensors={"z": cases[0].tensors["x"], "a": cases[1].tensors["x"]})
    for each in (*cases, two_inputs, *cases):
        store.add_seed(each)
    seeds = store.seeds("softmax")
    assert [c.id for c in seeds] == [c.id for c in (*cases, two_inputs)]
    assert list(seeds[-1].tensors) == ["z", "a"]
    assert store.seeds("gemm") == []


def test_a_spoilt_seed_is_named_by_its_line(files):
    files.add_seed(case())
    path = files.root / "seeds" / "softmax.jsonl"
    path.write_text(path.read_text() + "\n<<<<<<< HEAD\n")
    with pytest.raises(UsageError, match=r"softmax\.jsonl, line 3,"):
        files.seeds("softmax")


# runs and journals


def test_runs(store):
    store.start_run(campaign("b", started="2026-01-02"))
    store.start_run(campaign("a", started="2026-01-01"))
    assert store.runs() == ["a", "b"]
    assert store.latest_unfinished().run == "b"
    store.checkpoint(campaign("a", started="2026-01-01", updated="2026-01-03", next_index=7))
    assert store.latest_unfinished().next_index == store.load_run("a").next_index == 7
    store.checkpoint(campaign("a", updated="2026-01-04", finished=True))
    assert store.latest_unfinished().run == "b"


def test_run_names(store):
    store.start_run(campaign())
    with pytest.raises(UsageError, match="exists"):
        store.start_run(campaign())
    with pytest.raises(UsageError, match=r"no run 'r2'.*r1"):
        store.load_run("r2")
    with pytest.raises(UsageError, match="cannot name a folder"):
        store.load_run("../r1")


def test_journal_comes_back_in_order_and_in_kind(store):
    for i in range(5):
        store.journal("r1", "pending", {"z": i, "a": "line\nbreak\u2028\udc80"})
    store.journal("r1", "elites", {"n": 1})
    assert [r["z"] for r in store.read_journal("r1", "pending")] == list(range(5))
    assert list(store.read_journal("r1", "pending")[0]) == ["z", "a"]
    assert store.read_journal("r1", "elites") == [{"n": 1}]
    with pytest.raises(InternalError, match="trash"):
        store.journal("r1", "trash", {})


def pending(store) -> Path:
    return store.root / "local" / "runs" / "r1" / "pending.jsonl"


@pytest.mark.parametrize("torn", [b'{"n":', b'{"n":3}', b"\0\0\0\n", b"3\n", b"\xff"])
def test_a_torn_last_line_is_dropped_and_never_becomes_a_middle(files, torn):
    files.journal("r1", "pending", {"n": 1})
    files.close()
    with pending(files).open("ab") as file:
        file.write(torn)
    assert files.read_journal("r1", "pending") == [{"n": 1}]
    files.journal("r1", "pending", {"n": 2})
    assert files.read_journal("r1", "pending") == [{"n": 1}, {"n": 2}]


def test_only_a_torn_line(files):
    pending(files).parent.mkdir(parents=True)
    pending(files).write_bytes(b"\0\n")
    assert files.read_journal("r1", "pending") == []


@pytest.mark.parametrize("torn", [b'{"n":', b"[1]", b""])
def test_a_torn_line_in_the_middle_is_our_own_trouble(files, torn):
    pending(files).parent.mkdir(parents=True)
    pending(files).write_bytes(b'{"n":1}\n' + torn + b'\n{"n":2}\n')
    with pytest.raises(InternalError, match="line 2"):
        files.read_journal("r1", "pending")


def test_a_journal_on_a_full_disk_keeps_no_torn_line(files, monkeypatch):
    files.journal("r1", "pending", {"n": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(UsageError, match="make room"):
        files.journal("r1", "pending", {"n": 2})
    monkeypatch.undo()
    files.journal("r1", "pending", {"n": 3})
    assert files.read_journal("r1", "pending") == [{"n": 1}, {"n": 3}]


def test_checkpoint_syncs_the_journals_of_its_run_first(files, monkeypatch):
    files.journal("r1", "pending", {"n": 1})
    files.journal("r2", "pending", {"n": 1})
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(Path(f"/proc/self/fd/{fd}").readlink()), fsync(fd)))
    files.checkpoint(campaign())
    run = pending(files).parent.resolve()
    assert synced == [run / "pending.jsonl", run / ".campaign.json.tmp", run]


def test_a_stored_finding_edited_to_nonsense_names_file_and_field(files):
    saved = files.save_finding(finding())
    (path,) = (files.root / "local" / "findings").rglob("*.json")
    text = path.read_text()
    path.write_text(text.replace('"count": 1', '"count": []'))
    for read in (files.findings, lambda: files.finding(saved.id), lambda: files.save_finding(finding())):
        with pytest.raises(UsageError, match="count") as error:
            read()
        assert str(path) in one_sentence(error)
    path.write_text(text.replace('"rule": "rho"', '"rule": "z"'))
    with pytest.raises(UsageError, match="signature was edited"):
        files.findings()


def test_a_run_that_goes_on_is_held_until_its_process_lets_go(files):
    files.start_run(campaign())
    with Store(files.root) as other, pytest.raises(UsageError, match=rf"still goes on \(process {os.getpid()}\)"):
        other.hold("r1")
    files.close()
    with Store(files.root) as other:
        other.hold("r1")


def test_a_corpus_that_is_removed_while_it_is_used_is_written_once_more(files):
    files.start_run(campaign())
    files.journal("r1", "pending", {"n": 1})
    shutil.rmtree(files.root)
    files.journal("r1", "pending", {"n": 2})
    files.checkpoint(campaign(next_index=7))
    files.journal("r1", "pending", {"n": 3})
    assert files.load_run("r1").next_index == 7
    assert files.read_journal("r1", "pending") == [{"n": 1}, {"n": 2}, {"n": 3}]
    with Store(files.root) as other, pytest.raises(UsageError, match="still goes on"):
        other.hold("r1")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "make room there"),
        (errno.EROFS, "name a folder that may be written to"),
        (errno.ENOENT, "somebody has removed it"),
        (errno.EIO, "name another folder"),
    ],
)
def test_trouble_with_a_file_says_what_to_do(number, words):
    with pytest.raises(UsageError, match=words), named_trouble(Path("there")):
        raise OSError(number, os.strerror(number))
