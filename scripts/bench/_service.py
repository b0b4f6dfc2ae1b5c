"""What the benches of the service share: its processes, which are started, killed and started again."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from kernel_assay.client import Client, JobKind, JobRequest, Settings, Sources, Target
from kernel_assay.corpus.errors import UsageError

KASSAY = [sys.executable, "-m", "kernel_assay.fuzz"]
RIGHT = """import numpy as np
OP = "silu"
DTYPES = ("float32",)
def run(out, x):
    w = x.astype(np.float64)
    with np.errstate(over="ignore"):
        out[...] = w / (1 + np.exp(-w))
"""
WRONG = RIGHT + "    out.reshape(-1)[-1:] = 77\n"
START_SECONDS = 120.0
"""For a server or a worker to begin, on a machine that is busy."""


class Process:
    """A process of the service: it prints into a file, and is killed with all that it has started."""

    def __init__(self, command: list[str], log: Path, **more: object) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **more)  # type: ignore[call-overload]

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def says(self, words: str) -> None:
        """Wait until it has printed that."""
        until = time.monotonic() + START_SECONDS
        while words not in self.log.read_text("utf-8", "replace"):
            if self._process.poll() is not None or time.monotonic() > until:
                raise UsageError(f"{self.log.name} does not start: {self.log.read_text('utf-8', 'replace')[-500:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9, of this process alone: what it has started is to notice by itself."""
        self._process.kill()
        self._process.wait()

    def end(self, number: int = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Postgres:
    """A PostgreSQL server of its own, by a user without privileges, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        found = self.programs()
        if found is None:
            raise UsageError("postgres is not installed")
        self._bin, self._folder = found, folder
        folder.mkdir()
        self._user: dict[str, object] = {"cwd": folder}
        if os.geteuid() == 0:  # PostgreSQL refuses root
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            for parent in folder.parents[:-2]:
                parent.chmod(parent.stat().st_mode | 0o055)
            self._user |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        made = [self._bin / "initdb", "-D", folder / "data", "-U", "kassay", "-A", "trust", "-E", "UTF8"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, **self._user)  # type: ignore[call-overload]
        self.url = f"postgresql://kassay@/postgres?host={folder}"
        self.start()

    @staticmethod
    def programs() -> Path | None:
        """The folder of initdb and postgres; None: they are not installed."""
        bins = os.pathsep.join([os.environ.get("PATH", ""), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
        found = shutil.which("postgres", path=bins)
        return Path(found).resolve().parent if found else None

    @property
    def pid(self) -> int:
        return int(self._server.pid)

    def start(self) -> None:
        run = [self._bin / "postgres", "-D", self._folder / "data", "-k", self._folder, "-c", "listen_addresses="]
        self._server = subprocess.Popen(run, stderr=subprocess.DEVNULL, **self._user)  # type: ignore[call-overload]
        ask = [self._bin / "pg_isready", "-q", "-h", self._folder, "-U", "kassay"]
        for _ in range(200):
            if subprocess.run(list(map(str, ask)), check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise UsageError("postgres does not start")

    def kill(self) -> None:
        """kill -9 of its first process: a power cut, as far as the database knows."""
        self._server.kill()
        self._server.wait()
        for _ in range(100):  # its children notice
            if not list(Path("/dev/shm").glob("PostgreSQL.*.lock")):
                break
        time.sleep(0.3)

    def close(self) -> None:
        self._server.send_signal(signal.SIGINT)
        self._server.wait(30)


class Service:
    """A server and its workers on this machine."""

    def __init__(self, folder: Path, database: str = "", *options: str) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.folder, self._options = folder, [*options, *(["--database", database] if database else [])]
        self.address = f"http://127.0.0.1:{self.port}"
        self.token = folder / "token"
        self.workers: dict[str, Process] = {}
        self.serve()
        said = (folder / "serve.log").read_text("utf-8")
        self.token.write_text(next(w for w in said.split() if w.startswith("kassay_")), "utf-8")
        self.client = Client(self.address, self.token.read_text("utf-8"))

    def serve(self) -> None:
        log = self.folder / "serve.log"
        log.write_text("")
        command = [*KASSAY, "serve", "--port", str(self.port), "--corpus", str(self.folder / "corpus"), "--quiet"]
        self.server = Process([*command, "--rate", "100000", *self._options], log)
        self.server.says("sign in")

    def work(self, name: str, *words: str) -> None:
        command = [*KASSAY, "work", "--server", self.address, "--token-file", str(self.token), "--name", name, *words]
        self.workers[name] = Process(command, self.folder / f"{name}.log")

    def close(self) -> None:
        self.client.close()
        for process in [*self.workers.values(), self.server]:
            process.end()


def judging(number: int, *, wrong: bool, cases: int) -> JobRequest:
    """A small kernel to be judged, which nobody has sent before."""
    text = (WRONG if wrong else RIGHT) + f"# {os.getpid()} {number}\n"
    return JobRequest(
        kind=JobKind.JUDGE,
        target=Target(ops=("silu",), subjects=("kernel.py",)),
        sources=Sources(files={"kernel.py": text}),
        settings=Settings(cases=cases, seed=number),
    )
