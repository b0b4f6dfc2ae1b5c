"""The closed place that workers run in: Linux namespaces in which they see little, and reach nobody.

The zygote enters it once, before it imports anything: it has no network; the file system is read-only but for caches of
compilers; /dev has what computes, and no disk; the judge's packages, the corpus and the sockets of services are out of
sight. Each worker gets processes, a /proc, shared memory and a folder to write to that are its own, and ends with all
that it has started. That costs milliseconds for a run and for a worker, and nothing for a case.

Root needs no user namespace; anybody else gets one, in which only his own number exists. Where the system refuses any
of it, a trial in a child says so, and workers run in the open.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kernel_assay.corpus.process.child import taken
from kernel_assay.corpus.process.parent_death import die_with_parent

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _HERE, _AT_RECURSIVE, _ATTR_READ_ONLY = 442, -100, 0x8000, 1
"""The number of the system call is the same on all machines; Linux has it since 5.12."""
_NO_NEW_PRIVILEGES = 38
_CAPABILITIES_3 = 0x20080522
_DAC_OVERRIDE, _SYS_ADMIN = 1, 21
"""Capabilities: root reads what belongs to others by the first, and may do all of this by the second."""

_BY_SIGNAL = 128
"""An exit code above it stands for a signal, as in a shell."""
PROCESSES = 1024
"""Processes and threads of one worker, at most."""
SHARES = 4
"""A worker's folder and its /dev/shm hold one such part of its memory each."""
_ALL_PROCESSES = 4096
"""The same of all workers of a user; root's are not counted by that limit."""
_OWN_PID_MAX = (6, 14)
"""The first Linux in which a namespace has a limit of its own."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "dri", "kfd", "dxg")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_MACHINE_IN_PROC = ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
"""Where root sets up the machine. The rest can be written to: CUDA names its threads there, and does not start else."""
_SYSTEM = ("bin", "sbin", "usr", "etc", "opt", "nix", "gnu", "snap", "proc", "sys", "dev", "run")
"""Folders of the system, besides those whose names begin with lib: programs and libraries, and no person's files."""
_LIBRARIES_IN_RUN = ("current-system", "opengl-driver", "booted-system", "media")
"""What is no socket of a service: where some systems keep programs, and others a person's disks."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a closed place is made of."""

    scratch: str
    """A folder: each worker has an empty one in its place, in memory."""
    megabytes: int
    """Memory of a worker; what it writes to its folder, and to its /dev/shm, comes on top: a share of that each."""
    writable: tuple[str, ...] = ()
    """Folders that can be written to as before; they are made."""
    hidden: tuple[str, ...] = ()
    """Folders and files that are seen empty."""
    shown: tuple[str, ...] = ()
    """All that is seen of folders that are not the system's; none named: they are seen as they are."""
    own: str = ""
    """A folder that all in there share: empty, in memory, and gone with them."""

    def refusal(self) -> str:
        """Say why this system does not allow it; empty: it does. All of it is tried, by a child."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._try(write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            why = pipe.read().decode("utf-8", "replace")
        _, status = os.waitpid(pid, 0)
        return why or ("" if status == 0 else f"a trial ended with {os.waitstatus_to_exitcode(status)}")

    def _try(self, pipe: int) -> None:
        code = 1
        try:
            self.enter()
            keeper = self.begin_worker()
            pid = os.fork()
            if pid == 0:
                self._tried(pipe)
            self.end_fork()
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.kill(keeper, signal.SIGKILL)
        except OSError as error:
            os.write(pipe, str(error).encode())
        finally:
            os._exit(code)

    def _tried(self, pipe: int) -> None:
        code = 1
        try:
            self.seclude()
            code = 0
        except OSError as error:
            os.write(pipe, str(error).encode())
        finally:
            os._exit(code)

    def enter(self) -> None:
        """Go on in there, as the first process of its own: the one that called waits for it, and ends as it does.

        Only for a process of one thread. Raises OSError; then it is in no place to go on.
        """
        user, group = os.getuid(), os.getgid()
        kinds = _NEWNS | _NEWIPC | _NEWPID | _NEWNET
        if not _may_administer():
            _call("unshare", _NEWUSER)
            maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
            for name, said in maps.items():
                Path(f"/proc/self/{name}").write_text(said, "ascii")
        _call("unshare", kinds)
        if child := os.fork():
            _end_as(child)
        die_with_parent()
        self._close_files()

    def close_in(self) -> None:
        """Make this process the only worker of a closed place; where the system refuses that it goes on in the open.

        Only for a process of one thread.
        """
        if self.refusal():
            return
        self.enter()
        if child := os.fork():  # the first process of a namespace is not killed by what it does to itself
            _end_as(child)
        die_with_parent()
        self.seclude()

    def _close_files(self) -> None:
        for folder in self.writable:
            with suppress(OSError):
                Path(folder).mkdir(parents=True, exist_ok=True)
        _mount("none", "/", None, _RECURSIVE | _PRIVATE)
        self._make_devices()
        _set_read_only("/", _AT_RECURSIVE)
        _mount_processes()
        _guard_machine()
        if self.shown:
            _show_only(self.shown)
        for folder in filter(os.path.isdir, self.writable):
            _bind(folder, folder)
            with suppress(OSError):  # it was read-only before
                _set_read_only(folder, 0, clear=True)
        for place in self.hidden:
            if Path(place).is_dir():
                _hide(place)
            elif Path(place).is_file():
                _bind(os.devnull, place)
        if self.own:
            _mount("tmpfs", self.own, "tmpfs", _NOSUID | _NODEV, f"size={self.megabytes}m,mode=0700")
        _hide_services()

    def _make_devices(self) -> None:
        """Put a /dev in the place of the machine's: root could write to its disks."""
        _mount("tmpfs", self.scratch, "tmpfs", _NOSUID | _NODEV, "mode=0755")
        made, machine = Path(self.scratch, "dev"), Path("/dev")
        (made / "shm").mkdir(parents=True)
        for source in [*map(machine.joinpath, _DEVICES), *machine.glob("nvidia*")]:
            place = made / source.name
            if source.is_dir():
                place.mkdir()
            elif source.exists():
                place.touch()
            else:
                continue
            _bind(str(source), str(place))
        for name, target in _LINKS.items():
            (made / name).symlink_to(target)
        _bind(str(made), "/dev")

    def begin_worker(self) -> int:
        """Have what this process forks next live among processes of its own, up to `end_fork`.

        The pid of the first of them, which does nothing: when that is killed, all are.
        """
        _call("unshare", _NEWPID)
        return os.posix_spawnp("sleep", ["sleep", "2147483647"], {"PATH": os.environ.get("PATH", os.defpath)})

    @staticmethod
    def end_fork() -> None:
        """Fork as usual again."""
        mine = os.open("/proc/self/ns/pid", os.O_RDONLY)
        try:
            _call("setns", mine, _NEWPID)
        finally:
            os.close(mine)

    def seclude(self) -> None:
        """Make this process a worker: with a /proc, memory to share and a folder of its own, and no rights left."""
        _call("unshare", _NEWNS)
        _mount_processes()
        _limit_processes()
        _guard_machine()
        size = max(1, self.megabytes // SHARES)
        for folder, mode in (("/dev/shm", "1777"), (self.scratch, "0700")):  # noqa: S108  not the machine's
            Path(folder).mkdir(parents=True, exist_ok=True)  # the second may lie in the first
            _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, f"size={size}m,mode={mode}")
        _give_up_rights()
        os.environ["TMPDIR"] = self.scratch
        tempfile.tempdir = None


def _mount_processes() -> None:
    """Have /proc show those of this namespace."""
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def _guard_machine() -> None:
    """Let nobody write to what of /proc is the machine's."""
    for entry in filter(os.path.exists, (f"/proc/{name}" for name in _MACHINE_IN_PROC)):
        _bind(entry, entry)
        _set_read_only(entry, 0)


def _end_as(child: int) -> NoReturn:
    """Wait for a child, and end as it does; the first process of a namespace cannot die by a signal, and says which."""
    os.closerange(3, 1 << 16)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    number = -code if code < 0 else code - _BY_SIGNAL
    if number > 0 and os.getpid() != 1:
        with suppress(OSError):  # one that cannot be caught needs no default
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else _BY_SIGNAL - code)


def _may_administer() -> bool:
    """Whether this process needs no user namespace for this."""
    return bool(_capabilities() >> _SYS_ADMIN & 1)


def _capabilities() -> int:
    """The effective ones."""
    lines = Path("/proc/self/status").read_text("utf-8", "replace").splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def _give_up_rights() -> None:
    """Keep no capability, but root's to read what belongs to others."""
    kept = _capabilities() & (1 << _DAC_OVERRIDE) if os.getuid() == 0 else 0
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    head, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    _call("capset", head, sets)


def _limit_processes() -> None:
    release = tuple(map(int, platform.release().split("-")[0].split(".")[:2]))
    if release >= _OWN_PID_MAX:  # before, this is the whole machine's
        Path("/proc/sys/kernel/pid_max").write_text(str(PROCESSES), "ascii")
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _ALL_PROCESSES if most == resource.RLIM_INFINITY else min(most, _ALL_PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _hide(folder: str) -> None:
    _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=4k,mode=0555")
    _set_read_only(folder, 0)


def _show_only(places: Sequence[str]) -> None:
    """Leave of folders that are not the system's nothing but these places, and links that lead to them."""
    links: dict[str, str] = {}
    found = sorted({_followed(place, links) for place in places if Path(place).exists()})
    kept = {place: os.open(place, os.O_PATH) for place in found}
    tops = [one for one in Path("/").iterdir() if not one.is_symlink()]
    others = [one for one in tops if one.is_dir() and not one.name.startswith("lib") and one.name not in _SYSTEM]
    covered = list(map(str, others))
    for file in filter(Path.is_file, tops):
        _bind(os.devnull, str(file))
    for top in covered:
        _mount("tmpfs", top, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for place, source in kept.items():
        if not os.path.lexists(place):  # else it is the system's, or lies in another one
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
            Path(place).mkdir() if is_folder else Path(place).touch()
            _bind(f"/proc/self/fd/{source}", place)
        os.close(source)
    for link, target in links.items():
        if not os.path.lexists(link):
            Path(link).parent.mkdir(parents=True, exist_ok=True)
            Path(link).symlink_to(target)
    for top in covered:
        _set_read_only(top, 0)


def _followed(place: str, links: dict[str, str]) -> str:
    """A path without links, and note the links that were on the way."""
    path, rest = Path("/"), list(reversed(Path(place).parts[1:]))
    while rest:
        name = rest.pop()
        path = path.parent if name == ".." else path / name
        if path.is_symlink():
            links[str(path)] = target = str(path.readlink())
            rest += reversed(Path(target).parts)
            path = path.parent
    return str(path)


def _hide_services() -> None:
    """Leave no socket in /run: a service behind it would do for a worker what it cannot do itself."""
    run = Path("/run")
    for entry in run.iterdir() if run.is_dir() else ():
        if entry.name in _LIBRARIES_IN_RUN or entry.is_symlink():
            continue
        with suppress(OSError):  # nobody can reach what not even its owner can
            if entry.is_dir():
                _hide(str(entry))
            elif entry.is_socket():
                _bind(os.devnull, str(entry))


def _bind(source: str, place: str) -> None:
    _mount(source, place, None, _BIND | _RECURSIVE)


def _mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    _call("mount", *map(_text, (source, place, kind)), ctypes.c_ulong(flags), _text(options), about=place)


def _text(words: str | None) -> bytes | None:
    return None if words is None else os.fsencode(words)


def _set_read_only(place: str, depth: int, *, clear: bool = False) -> None:
    """Make a mount read-only, or let it be written to; depth: _AT_RECURSIVE for all below it."""
    sets = (ctypes.c_uint64 * 4)(0 if clear else _ATTR_READ_ONLY, _ATTR_READ_ONLY if clear else 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(sets))
    _call("syscall", ctypes.c_long(_MOUNT_SETATTR), _HERE, _text(place), depth, sets, size, about=place)


def _call(name: str, *arguments: Any, about: str = "") -> None:
    """Call a function of the C library. Raises OSError, naming it and what it was about."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        number = ctypes.get_errno()
        asked = "mount_setattr" if name == "syscall" else name
        raise OSError(number, f"{asked}{f' of {about}' if about else ''}: {os.strerror(number)}")


def main() -> None:
    """Say why workers cannot be closed in here; nothing if they can: for `doctor`, which starts this as a process."""
    print(Enclosure(**taken(sys.argv[1])).refusal(), end="")  # noqa: T201  this is the answer
