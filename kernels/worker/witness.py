"""Acts by which code under test shows that it is out for the test and not for the result: what a worker sees of them.

It exchanges a name that tests rely on (tampering.py), reaches for what says what is right, or for the memory of
another process, or has every call of the process told to it. An act is a subject's by the file of the code that does
it: its own, one that lies beside it, or one of its package. What libraries do is nobody's.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from itertools import islice
from mmap import mmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from kernel_assay.kernels.backends.support.importing import package_of
from kernel_assay.kernels.worker.tampering import Change, changes, is_library, is_stdlib

_ORACLE = re.compile(r"kernel_assay\.oracles\.(?!spec\b).*")
"""What says what is right for the built-in ops; contracts of a person's own are written in terms of `spec`."""
_MEMORY = re.compile(r"/proc/[^/]+/(task/[^/]+/)?mem")
_FOREIGN = {"ptrace": "the memory of other processes", "process_vm_readv": "the memory of other processes"}
_FOREIGN["process_vm_writev"] = _FOREIGN["ptrace"]
_IMPORTS: dict[type, list[CodeType]] = {
    kind: [kind.get_data.__code__, kind.get_code.__code__, kind.exec_module.__code__]
    for kind in (SourceFileLoader, SourcelessFileLoader)
}
"""Code of loaders that opens a file to execute it as a module, the innermost first: they may be asked to read, too."""
_MOST_SEEN = 1 << 16
"""Bytes of evidence that are kept."""
_TELLS = {
    "sys.settrace": "sets a trace function for all calls",
    "sys.setprofile": "sets a profile function for all calls",
}


class Witness:
    """Evidence against the subjects of one process."""

    def __init__(self, files: Mapping[str, Path], sources: Sequence[str]) -> None:
        """files: of each subject that is not trusted, by key; sources: `FILE:NAME` of what says what is right."""
        self._files = {key: str(path) for key, path in files.items()}
        self._names = dict(source.rpartition(":")[::2] for source in sources)
        """Files of references, as the code of each is called -> the function or class there."""
        self._sources = {one: name for file, name in self._names.items() if (one := _inode(file))}
        """The same files, whatever they are called."""
        self._seen = mmap(-1, _MOST_SEEN)
        """Evidence, a line of JSON each, in memory shared with forked children: what they do is its act, too."""
        self._current = ""
        self._ran: set[str] | None = None
        """Files of the code that was executed since a subject was closely watched; None: it is not."""

    def evidence(self, key: str) -> str:
        """What a subject was seen to do, in half a sentence; empty: nothing."""
        lines = self._seen[: self._seen.find(b"\0", 0)].splitlines()
        return next((str(what) for who, what in map(json.loads, lines) if who == key), "")

    def begin(self, key: str, *, closely: bool) -> None:
        """A subject is loaded or called from now on. closely: what changes up to the next `look` is nobody else's."""
        if closely:
            self.look()  # what changed before is not this one's
        self._current, self._ran = key, set() if closely and self._files else None

    def end(self) -> None:
        """It is over, and no subject runs."""
        self._current = ""

    def look(self) -> None:
        """Look for names that were exchanged, unless nobody would do that."""
        for change in changes() if self._files else ():
            self._exchanged(change)

    def _exchanged(self, change: Change) -> None:
        code = change.code
        file = code.co_filename if code else ""
        said = f"it puts another thing in the place of {change.name}, which tests rely on"
        if owners := self._owners(file):
            assert code is not None
            self._accuse(owners, f"{said}: {code.co_qualname} ({Path(file).name}, line {code.co_firstlineno})")
        elif self._is_alone() and not change.is_ours and (is_stdlib(file) or not Path(file).is_file()):
            self._accuse((self._current,), f"{said}: {change.words}")

    def _is_alone(self) -> bool:
        """Whether nothing can have changed a name since `begin` but the subject that runs, and Python's own modules."""
        if not self._current or self._ran is None:
            return False
        return all(is_stdlib(file) or self._owners(file) for file in self._ran)

    def _accuse(self, keys: Sequence[str], what: str) -> None:
        for line in (f"{json.dumps([key, what])}\n".encode() for key in keys if not self.evidence(key)):
            end = self._seen.find(b"\0", 0)
            if end + len(line) < _MOST_SEEN:
                self._seen[end : end + len(line)] = line

    def _owners(self, file: str) -> tuple[str, ...]:
        """The subjects whose code a file holds: those of that file, else the one that runs, if it lies with it."""
        if mine := tuple(key for key, path in self._files.items() if path == file):
            return mine
        path = self._files.get(self._current, "")
        return (self._current,) if path and not is_library(file) and _lies_with(file, path) else ()

    def listen(self) -> None:
        """Be told by the interpreter of what code asks it for. There is no way back: once in a process."""
        heard: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._opens,
            "exec": lambda arguments: self._executes(getattr(arguments[0], "co_filename", "")),
            "import": lambda arguments: self._executes(arguments[1] or ""),
            "ctypes.dlsym": self._finds,
            **{event: self._tells(what) for event, what in _TELLS.items()},
        }

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if self._current and event in heard:
                heard[event](arguments)

        sys.addaudithook(hook)
        sys.meta_path.insert(0, self)  # importlib.import_module tells no hook

    def find_spec(self, name: str, *_: Any) -> None:
        """Be asked for a module before all others, which know where it is."""
        if self._current and _ORACLE.fullmatch(name):
            self._acts(f"imports the oracle, {name}")

    def _acts(self, what: str) -> None:
        """Accuse the subject whose own code is about to do something; a library's is none."""
        for frame in _frames():
            if owners := self._owners(frame.f_code.co_filename):
                self._accuse(owners, f"it {what} ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})")
            if not _passes_on(frame.f_code.co_filename):
                return

    def _executes(self, file: str) -> None:
        """A module's code is executed, or a compiled one loaded."""
        if self._ran is not None and not file.startswith("<"):
            self._ran.add(file)

    def _opens(self, arguments: tuple[Any, ...]) -> None:
        path = arguments[0]
        if not isinstance(path, str | bytes):
            return
        name = os.fsdecode(path)
        if _MEMORY.fullmatch(name):
            self._acts(f"opens {name}")
        elif self._sources and (known := self._sources.get(_inode(_source_of(name)) or (0, 0))):
            if imported := _imported():  # which is no offence: it may hold helpers, or a class to derive from
                self._names[imported] = known
                self._listen_to_calls()
            else:
                self._acts(f"reads the reference's source, {Path(name).name}")

    def _listen_to_calls(self) -> None:
        """Be told of every call in this thread; that this is asked for is told, too, and no subject's act."""
        current, self._current = self._current, ""
        sys.setprofile(self._calls)
        self._current = current

    def _finds(self, arguments: tuple[Any, ...]) -> None:
        if what := _FOREIGN.get(str(arguments[1])):
            self._acts(f"asks for {arguments[1]}, which reaches {what}")

    def _tells(self, what: str) -> Callable[[tuple[Any, ...]], None]:
        return lambda _: self._acts(what)

    def _calls(self, frame: FrameType, event: str, _: Any) -> None:
        """Told of every call, once the reference was imported: to call it is to return what it says is right."""
        code = frame.f_code
        name = self._names.get(code.co_filename)
        named = bool(name) and code.co_qualname in {name, f"{name}.forward"}
        if event == "call" and named and code.co_flags & inspect.CO_OPTIMIZED and self._current:  # no class's body
            what = f"calls the reference, {code.co_qualname} of {Path(code.co_filename).name}"
            self._accuse((self._current,), f"it {what}")


def _frames() -> Iterator[FrameType]:
    """The frames that led here, the innermost first, ours left out."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield frame
        frame = frame.f_back


def _passes_on(file: str) -> bool:
    """Whether code of a file does what its caller wants: Python's own, and what was made of a text."""
    return file.startswith("<") or is_stdlib(file)


def _lies_with(file: str, path: str) -> bool:
    """Whether a file lies in the package of another one, or beside it."""
    root, name = package_of(Path(path))
    if root != Path(path).parent:
        return file.startswith(f"{root / name.partition('.')[0]}/")
    return Path(file).parent == Path(path).parent


def _imported() -> str:
    """What the code is called that is being made of a file which Python itself opens to import it; empty: none is."""
    frames = list(islice(_frames(), 3))
    own = frames[1].f_locals if len(frames) > 1 else {}
    if [frame.f_code for frame in frames] != _IMPORTS.get(type(own.get("self"))):
        return ""
    return str(own.get("source_path") or own["path"])


def _source_of(name: str) -> str:
    """The path of a file, or of what it was compiled from."""
    path = Path(os.path.realpath(name))
    return str(path.parent.parent / f"{path.name.partition('.')[0]}.py") if path.suffix == ".pyc" else name


def _inode(file: str) -> tuple[int, int] | None:
    """Device and number of a file, which it has under whatever name; None: there is none."""
    try:
        found = Path(file).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
