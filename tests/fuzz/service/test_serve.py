"""`kassay serve` as a person starts it: what it prints, what it refuses, how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.service.queue.database import ServerDatabase

ROOT = Path(__file__).resolve().parents[3]
SAID = re.search(r"```text\n\$ kassay serve.*?\n(.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)[1]
VARIES = {
    r"sqlite:\S+": "DATABASE",
    r"127\.0\.0\.1:\d+": "ADDRESS",
    r"kassay_\S+": "TOKEN",
    r"signin/\S+": "signin/WORD",
}


def plain(text):
    for pattern, instead in VARIES.items():
        text = re.sub(pattern, instead, text)
    return text


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def started(folder, port):
    command = [sys.executable, "-m", "kernel_assay.fuzz", "serve", "--port", str(port), "--quiet"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(port):
    for _ in range(600):
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        except httpx.TransportError:
            time.sleep(0.1)
    return False


def test_a_server_prints_what_the_page_shows_and_outlives_a_kill(tmp_path, capsys):
    port = free_port()
    first = started(tmp_path, port)
    lines = [first.stdout.readline() for _ in range(3)]
    assert plain("".join(lines)) == plain(SAID)
    token = re.search(r"kassay_\S+", lines[1])[0]
    assert answers(port)
    key = {"Authorization": f"Bearer {token}"}
    job = httpx.post(f"http://127.0.0.1:{port}/v1/jobs", json={"kind": "judge"}, headers=key).json()["id"]
    assert main(["serve", "--port", str(port), "--corpus", str(tmp_path / "other")]) == 2
    assert re.fullmatch(
        r"kassay: 127\.0\.0\.1 port \d+ cannot be listened at \(.*\); name another by --port\n", capsys.readouterr().err
    )
    first.kill()
    first.communicate()
    second = started(tmp_path, port)
    lines = [second.stdout.readline() for _ in range(2)]
    assert "token" not in lines[1]
    assert answers(port)
    assert httpx.get(f"http://127.0.0.1:{port}/v1/jobs/{job}", headers=key).json()["state"] == "queued"
    assert httpx.get(f"http://127.0.0.1:{port}/findings").status_code == 303
    second.send_signal(signal.SIGTERM)
    _, said = second.communicate(timeout=60)
    assert (second.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--tls-cert", "nothing.pem"], "--tls-cert and --tls-key go together"),
        (["--tls-cert", "nothing.pem", "--tls-key", "nothing.pem"], "nothing.pem is no file"),
        (["--database", "mysql://x"], "mysql"),
        (["--database", "postgresql://nobody@127.0.0.1:1/x"], "cannot be used"),
        (["--tls-cert", __file__, "--tls-key", __file__], "no certificate"),
        (["--notify", "nonsense"], "Apprise"),
        (["--host", "256.1.1.1"], "TLS"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(tmp_path, capsys, options, sentence):
    assert main(["serve", "--corpus", str(tmp_path), "--port", str(free_port()), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kassay: ")
    assert said.count("\n") == 1
    assert sentence in said


def test_a_new_database_is_nothing_for_other_users(tmp_path):
    database = ServerDatabase(f"sqlite:///{tmp_path}/new/service.db")
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM event")
        files = list((tmp_path / "new").glob("service.db*"))
        assert {path.stat().st_mode & 0o077 for path in files if path.is_file()} == {0}
