"""Places of stores: a folder, a file of SQLite and a PostgreSQL server, which is started where one is installed."""

import os
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path

import pytest

from kernel_assay.corpus.storage.opening import open_store

STORES = ("folder", "sqlite", "postgresql")
NUMBERS = count()


def postgres(name):
    """The place of a program of PostgreSQL's, which Debian does not put among all others."""
    there = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(there[-1]) if there else None)


@pytest.fixture(scope="session")
def server():
    """The URL of a server of its own, without a database."""
    if postgres("initdb") is None or postgres("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="kassay-pg-", dir="/tmp"))
    them = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}  # it refuses to be root
    if them:
        shutil.chown(folder, "nobody")

    def do(*command):
        with (folder / "said").open("a") as said:  # no pipe: the server would hold its end as long as it lives
            done = subprocess.run(command, stdout=said, stderr=said, check=False, cwd=folder, **them)
        assert done.returncode == 0, (folder / "said").read_text()

    data, log = folder / "data", folder / "log"
    do(postgres("initdb"), "-D", data, "-A", "trust", "-U", "kassay", "--no-sync")
    options = f"-c listen_addresses='' -k {folder} -c fsync=off -c max_connections=50"
    do(postgres("pg_ctl"), "-D", data, "-l", log, "-w", "-o", options, "start")
    yield f"postgresql://kassay@/{{}}?host={folder}"
    do(postgres("pg_ctl"), "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def database(server):
    """Make the URL of a new, empty database."""
    import psycopg

    def made():
        name = f"corpus{os.getpid()}_{next(NUMBERS)}"
        with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return server.format(name)

    return made


@pytest.fixture
def new_place(request, tmp_path):
    """Make a new, empty place of a kind, as a person names it."""

    def made(kind):
        if kind == "folder":
            return str(tmp_path / f"corpus{next(NUMBERS)}")
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'corpus{next(NUMBERS)}.db'}"
        server = request.getfixturevalue("server")
        return f"{server.format('postgres')}&project=p{os.getpid()}.{next(NUMBERS)}"

    return made


@pytest.fixture(params=STORES)
def store(request, new_place):
    """A store of each kind."""
    with open_store(new_place(request.param)) as made:
        yield made
