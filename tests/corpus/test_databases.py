"""A corpus in a database: kept as in a folder, copied without loss, refused in one sentence, safe from a kill."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_kept import kept
from test_store import campaign, case, finding, one_sentence, proof

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.storage import opening
from kernel_assay.corpus.storage.copying import backup, copy, prune
from kernel_assay.corpus.storage.opening import existing, open_store
from kernel_assay.corpus.storage.place import DatabaseUrl, place_of
from kernel_assay.corpus.storage.sql.database import MIGRATIONS, STEPS, Database
from kernel_assay.corpus.storage.sql.tables import metadata
from kernel_assay.fuzz.cli.toolbox.db import command as db


def fill(store):
    """Write something of every kind."""
    told = store.save_finding(finding(rule="law:\udc80 sum", aliases=("b",), first_seen="2026-02", last_seen="2026-02"))
    store.save_finding(finding(op="gemm", state=State.FIXED, last_seen="2026-01"))
    store.promote(told.but(expect="fail", reason="known"))
    store.promote(finding(rule="z" * 300))
    store.keep(told.id, [kept(out=np.ones(3)), kept(out=np.zeros(2))])
    store.keep("r1", [])
    store.save_proof(proof("mine:run"))
    store.add_seed(case(2, 2))
    store.add_seed(case(1, 2))
    store.start_run(campaign(started="2026-01-02"))
    store.journal("r1", "pending", {"verdict": told.verdict.plain(), "a": "\u2028\udc80"})
    store.journal("r1", "elites", {"n": 1})
    store.journal("r1", "elites", {"n": 0})
    store.checkpoint(campaign(started="2026-01-02", updated="2026-01-03", next_index=7, coverage={"a|b": 3}))
    store.start_run(campaign("r0", started="2026-01-01", finished=True))
    store.matrix_line("m1", {"cell": "x"})
    return told


@pytest.mark.parametrize("kind", ["folder", "sqlite", "postgresql"])
def test_a_corpus_copied_there_and_back_is_the_same(new_place, kind):
    first, there, back = new_place("folder"), new_place(kind), new_place("folder")
    with open_store(first) as store:
        told = fill(store)
        texts = dict(store.dump())
    for source, target in ((first, there), (there, back)):
        copied = copy(place_of(source), place_of(target))
        ones = dict.fromkeys(("proofs", "seeds", "matrices"), 1)
        assert copied == ones | dict.fromkeys(("findings", "regressions", "kept", "runs", "journals"), 2)
    with open_store(back) as store, open_store(there) as middle:
        assert dict(store.dump()) == texts
        assert all((Path(back) / path).read_bytes() == (Path(first) / path).read_bytes() for path in texts)
        for one in (store, middle):
            assert one.finding(told.id).expect == "fail"
            assert one.latest_unfinished().next_index == 7
            assert [line["n"] for line in one.read_journal("r1", "elites")] == [1, 0]
    with pytest.raises(UsageError, match="already") as refused:
        copy(place_of(first), place_of(there))
    one_sentence(refused)


def test_databases_are_copied_whole_and_go_on(database, tmp_path):
    with open_store(f"{database()}&project=a") as store:
        fill(store)
        whole = DatabaseUrl(store.place.url.removesuffix("&project=a"))
        backup(whole, tmp_path / "backup")
        with pytest.raises(UsageError, match="exists; name a new file"):
            backup(whole, tmp_path / "backup")
        again = database()
        assert copy(DatabaseUrl(f"sqlite:///{tmp_path / 'backup'}"), DatabaseUrl(again))["journals"] == 4
        with open_store(f"{again}&project=a") as copied:
            assert list(copied.dump()) == list(store.dump())
            copied.journal("r1", "elites", {"n": 5})  # its number comes after those that were copied
            assert [line["n"] for line in copied.read_journal("r1", "elites")] == [1, 0, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_migrations_make_the_tables_that_are_declared(kind, database, new_place):
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    made = Database(database() if kind == "postgresql" else new_place(kind))
    assert (made.version(), made.upgrade(), made.version(), made.upgrade()) == ("", "", STEPS[-1], STEPS[-1])
    with made.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [STEPS[-1]]
    made.close()


@pytest.mark.parametrize("version", ["v9999", "v0000"])
def test_a_database_of_another_version_is_refused(tmp_path, version, monkeypatch):
    place = f"sqlite:///{tmp_path / 'a.db'}"
    with open_store(place) as store:
        store.save_finding(finding())
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    if version == "v0000":
        monkeypatch.setattr("kernel_assay.corpus.storage.sql.database.STEPS", ["v0000", *STEPS])
    said = "written by a newer version" if version == "v9999" else "`kassay db upgrade` brings it up to date"
    with open_store(place) as store, pytest.raises(UsageError, match=said) as refused:
        store.findings()
    one_sentence(refused)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://me:secret@there/db", "mysql://me@there/db' is no corpus"),
        ("sqlite://", "is no corpus: name a folder"),
        ("postgresql://me:secret@localhost:1/db", r"postgresql://me@localhost:1/db cannot be used \(.*refused"),
        ("postgresql://localhost:x/db?password=secret", "is no URL of a database"),
    ],
)
def test_what_is_no_corpus_is_refused_without_its_password(url, said):
    with pytest.raises(UsageError, match=said) as refused, open_store(url) as store:
        store.findings()
    assert "secret" not in one_sentence(refused)


def test_a_file_that_is_no_database_and_one_that_has_gone(tmp_path):
    (tmp_path / "a.db").write_text("x" * 2000)
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store, pytest.raises(UsageError, match="not a database"):
        store.prepare()
    with pytest.raises(UsageError, match="there is no corpus in sqlite"):
        existing(DatabaseUrl(f"sqlite:///{tmp_path / 'no.db'}"))
    with open_store(f"sqlite:///{tmp_path / 'b.db'}") as store:
        store.prepare()
        (tmp_path / "b.db").unlink()
        with pytest.raises(UsageError, match="was removed while it was in use"):
            store.save_finding(finding())


def test_without_its_packages_a_folder_still_works(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kernel_assay.corpus.storage.sql.store", None)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delattr(opening, "SqlStore", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'kernel-assay\[sql\]'"):
        open_store(f"sqlite:///{tmp_path / 'a.db'}")
    assert open_store(str(tmp_path)).findings() == []


def test_old_runs_are_removed_and_findings_stay(store):
    told = fill(store)
    fixed = next(f for f in store.findings() if f.state is State.FIXED)
    store.keep(fixed.id, [])
    met = {"verdict": finding(rule="nobody looked").verdict.plain()}
    store.start_run(campaign("r2", started="2026-01-01"))
    store.journal("r2", "pending", met)
    store.end_journal("r1", "pending")
    store.close()  # lets go of the runs
    assert prune(store, "2026-01-02") == {"runs": 1, "left": 1, "kept": 1}  # r0; r2 met a failure that is no finding
    assert store.runs() == ["r1", "r2"]
    assert prune(store, "2026-06") == {"runs": 1, "left": 1}
    assert (store.kept_names(), len(store.findings())) == ([told.id], 2)
    assert store.read_journal("r1", "elites") == []


WRITER = """
import sys
from kernel_assay.corpus.storage.opening import open_store
from test_store import campaign, case, finding
store = open_store(sys.argv[1])
store.hold("r1")
step = len(store.read_journal("r1", "pending"))
while True:
    step += 1
    store.journal("r1", "pending", {"step": step, "bulk": "x" * 5000})
    store.save_finding(finding(case(2, 3), rule=f"rule{step % 3}", gates=("gate",) * 2000))
    store.checkpoint(campaign(next_index=step))
    print(step, flush=True)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_killed_writer_loses_nothing_that_it_was_told_is_safe(new_place, kind):
    place, said, safe = new_place(kind), 0, 0
    path = os.pathsep.join((str(Path(__file__).parents[2]), str(Path(__file__).parent)))
    for pause in (0.02, 0.0):
        command = [sys.executable, "-c", WRITER, place]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE) as writer:
            first = writer.stdout.readline()
            time.sleep(pause)
            writer.kill()
            steps = [int(first), *map(int, writer.stdout.read().split(b"\n")[:-1])]
        said, safe = steps[-1], safe + len(steps)
        with open_store(place) as store:
            lines = [line["step"] for line in store.read_journal("r1", "pending")]
            assert lines == list(range(1, len(lines) + 1))
            assert said <= store.load_run("r1").next_index <= len(lines)
            assert safe <= sum(f.count for f in store.findings()) <= len(lines)


def test_commands_say_what_they_did(tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    with open_store("corpus") as store:
        fill(store)
    run = CliRunner().invoke
    assert "copied from corpus to sqlite:///a.db: findings 2," in run(db, ["copy", "corpus", "sqlite:///a.db"]).output
    assert "schema v" in run(db, ["upgrade", "--corpus", "sqlite:///a.db"]).output
    assert (
        "removed from sqlite:///a.db: runs 2"
        in run(db, ["prune", "--older-than", "1d", "--corpus", "sqlite:///a.db"]).output
    )
    assert run(db, ["backup", "b", "--corpus", "sqlite:///a.db"]).output.startswith("backed up sqlite:///a.db in b: ")
    Path("served/local").mkdir(parents=True)
    Path("served/local/service.db").touch()
    refused = run(db, ["backup", "c", "--corpus", "served"])
    assert "--corpus sqlite:////" in str(refused.output) + str(refused.exception)
    assert not Path("c").exists()
    for wrong in (["prune", "--older-than", "3"], ["upgrade"], ["copy", "corpus", "corpus"], ["copy", "no", "x"]):
        assert isinstance(run(db, wrong).exception, UsageError)
