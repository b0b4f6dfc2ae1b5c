"""Repositories of projects on a worker: fetched by git into bare clones, of which single commits are unpacked.

Whoever may submit jobs names the repository, so git is held short: only the transports that the worker allows, no
address of an inner network, no hooks, filters, submodules or questions, no configuration but its own, and limits of
time and size. Nothing of a repository is executed here.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.repository import check_repository, whole

FETCH_SECONDS, LOCAL_SECONDS = 300.0, 60.0
MOST_MB, MOST_FILE_COUNT = 1024, 50_000
"""Of a repository as git packs it, or of one commit unpacked; and files of a commit."""
KEPT = 4
"""Commits of a slot that stay unpacked."""
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    "gc.auto": "0",
    "http.followRedirects": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}


@dataclass(frozen=True)
class Checkouts:
    """All repositories that a worker has fetched, and what it may fetch."""

    folder: Path
    """Of the bare clones."""
    allow_local: bool = False
    """Whether paths on this machine are repositories, too."""
    allow_private: bool = False
    """Whether addresses of inner networks may be asked."""
    ssh_agent: str = ""
    """Socket of the agent that holds keys for ssh."""
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def files(self, repository: str, commit: str, into: Path, patience: Callable[[], None] = lambda: None) -> Path:
        """The files of a commit, unpacked in a folder below `into`. Raises UsageError if they cannot be had.

        patience: called again and again while git is waited for; what it raises ends that.
        """
        bare, name = self._with_commit(repository, commit, patience)
        place = into / f"commit-{bare.name[:12]}-{name}"
        if not place.is_dir():
            kept = sorted(into.glob("commit-*"), key=lambda path: path.stat().st_mtime)
            for old in kept[: max(0, len(kept) - KEPT + 1)]:
                shutil.rmtree(old, ignore_errors=True)
            self._unpack(bare, name, place, patience)
        os.utime(place)
        return place

    def history(self, repository: str, patience: Callable[[], None] = lambda: None) -> Callable[..., list[str]]:
        """A function that lists the commits from one (the first, if empty) to another, the oldest first, both included.

        Side branches count as the commit that merged them.
        """

        def between(first: str, last: str) -> list[str]:
            bare, last = self._with_commit(repository, last, patience)
            first = self._commit(bare, first) if first else ""
            asked = ["rev-list", "--first-parent", "--reverse", last]
            found = self._git(bare, *asked, seconds=LOCAL_SECONDS, patience=patience).split()
            if first and first not in found:
                raise UsageError(f"{first[:12]} is no commit before {last[:12]} on its line of first parents")
            return found[found.index(first) :] if first else found

        return between

    def _with_commit(self, repository: str, commit: str, patience: Callable[[], None]) -> tuple[Path, str]:
        """The bare clone with a commit, and the whole name of that."""
        url, config = self._allowed(repository)
        bare = self.folder / hashlib.sha256(url.encode()).hexdigest()[:24]
        with self._locks.setdefault(bare.name, threading.Lock()):
            if not (bare / "HEAD").is_file():
                bare.mkdir(parents=True, exist_ok=True)
                self._git(bare, "init", "--quiet", "--bare", seconds=LOCAL_SECONDS, patience=patience)
            try:
                return bare, self._commit(bare, commit)
            except UsageError:
                self._fetch(bare, url, config, patience)
            return bare, self._commit(bare, commit)

    def _fetch(self, bare: Path, url: str, config: dict[str, str], patience: Callable[[], None]) -> None:
        refs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        words = ["fetch", "--quiet", "--no-recurse-submodules", "--prune", "--", url, *refs]
        try:
            self._git(bare, *words, seconds=FETCH_SECONDS, patience=patience, config=config)
        except UsageError as error:
            raise UsageError(f"the repository {url} cannot be fetched: {error}") from error
        if _megabytes(bare) > MOST_MB:
            shutil.rmtree(bare, ignore_errors=True)
            raise UsageError(f"the repository {url} has more than {MOST_MB} MB")

    def _commit(self, bare: Path, commit: str) -> str:
        words = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"]
        try:
            return self._git(bare, *words, seconds=LOCAL_SECONDS)
        except UsageError as error:
            raise UsageError(f"the repository has no commit {commit[:40]}") from error

    def _unpack(self, bare: Path, commit: str, place: Path, patience: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="unpacking-") as made:
            tar, tree = Path(made, "all.tar"), Path(made, "tree")
            words = ["archive", "--format=tar", f"--output={tar}", commit]
            self._git(bare, *words, seconds=LOCAL_SECONDS, patience=patience)
            with tarfile.open(tar) as archive:
                members = [m for m in archive if m.isreg() or m.isdir() or m.issym()]
                members.sort(key=tarfile.TarInfo.issym)  # so that nothing is written through a link
                if len(members) > MOST_FILE_COUNT or sum(m.size for m in members) > MOST_MB << 20:
                    raise UsageError(f"the commit has more than {MOST_FILE_COUNT:,} files or {MOST_MB} MB")
                archive.extractall(tree, members, filter=_within)  # noqa: S202  each of them was looked at
            tree.mkdir(exist_ok=True)
            tree.rename(place)

    def _allowed(self, repository: str) -> tuple[str, dict[str, str]]:
        """The address as git takes it, and the settings with which it is asked. Raises UsageError for one it is not."""
        parts = check_repository(repository)
        if parts.scheme == "file":
            if not self.allow_local:
                raise UsageError(f"{repository!r} is a path, and this worker takes none: see --allow-local")
            if not Path(parts.path).is_dir():
                raise UsageError(f"{repository!r} is no folder on this worker")
            return str(Path(parts.path).resolve()), {"protocol.file.allow": "always", "safe.directory": "*"}
        assert parts.hostname is not None  # it was looked at
        port = parts.port or {"https": 443, "ssh": 22}[parts.scheme]
        address = self._address(parts.hostname, port)
        config = {f"protocol.{parts.scheme}.allow": "always"}
        if parts.scheme == "https":  # the address that was looked at is the one that is asked
            config["http.curloptResolve"] = f"{parts.hostname}:{port}:{address}"
        else:
            options = f"-oBatchMode=yes -oHostName={address} -oHostKeyAlias={parts.hostname}"
            config["core.sshCommand"] = f"ssh {options} -oStrictHostKeyChecking=yes"
        return whole(repository), config

    def _address(self, host: str, port: int) -> str:
        """An address of a host. Raises UsageError for one of an inner network, unless these are allowed."""
        try:
            found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            raise UsageError(f"the host {host!r} is not known here") from error
        if not self.allow_private and not all(_is_public(address) for address in found):
            raise UsageError(f"{host!r} is an address of an inner network: see --allow-private")
        return f"[{found[0]}]" if ":" in found[0] else found[0]

    def _git(
        self,
        folder: Path,
        *words: str,
        seconds: float,
        patience: Callable[[], None] = lambda: None,
        config: dict[str, str] | None = None,
    ) -> str:
        """Run git; its output. Raises UsageError with its last words, and for what takes too long or gets too large."""
        settings = [word for item in {**_CONFIG, **(config or {})}.items() for word in ("-c", "=".join(item))]
        command = ["git", *settings, "--git-dir", str(folder), *words]
        # a shell limits the size of each file that git may write: it has no such setting itself
        limited = ["sh", "-c", f'ulimit -f {MOST_MB * 2048}; exec "$@"', "sh", *command]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    limited, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._environment(), process_group=0
                )
            except (OSError, ValueError) as error:  # an address may hold a NUL
                raise UsageError(f"git cannot be run ({getattr(error, 'strerror', None) or error})") from error
            _awaited(process, seconds, patience, words[0])
            out.seek(0)
            err.seek(0)
            if process.returncode in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}:
                raise UsageError(f"git {words[0]}: it writes a file of more than {MOST_MB} MB")
            if process.returncode:
                lines = err.read(65_536).decode("utf-8", "replace").strip().splitlines() or [""]
                said = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1])
                raise UsageError(f"git {words[0]}: {said or f'exit code {process.returncode}'}"[:500])
            return out.read().decode("utf-8", "replace").strip()

    def _environment(self) -> dict[str, str]:
        kept = ("PATH", "HOME", "LANG", "TMPDIR", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE")
        made = {name: os.environ[name] for name in kept if name in os.environ}
        made |= {"SSH_AUTH_SOCK": self.ssh_agent} if self.ssh_agent else {}
        return made | {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ASKPASS": "true",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_LAZY_FETCH": "1",
        }


def _awaited(process: subprocess.Popen[bytes], seconds: float, patience: Callable[[], None], what: str) -> None:
    """Wait for its end; kill it, and what it has started, when time is up or somebody does not want to wait."""
    until = time.monotonic() + seconds
    try:
        while True:
            try:
                process.wait(0.25)
            except subprocess.TimeoutExpired:
                patience()
                if time.monotonic() > until:
                    raise UsageError(f"git {what} took more than {seconds:.0f} s") from None
            else:
                return
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _within(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Leave out what leads out of the folder."""
    try:
        return tarfile.data_filter(member, path)
    except tarfile.FilterError:
        return None


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global and not found.is_multicast


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / (1 << 20)


def words_of(commits: Sequence[str]) -> str:
    """Commits as a sentence names them."""
    return ", ".join(commit[:12] for commit in commits[:3]) + (f" and {len(commits) - 3} more" if commits[3:] else "")
