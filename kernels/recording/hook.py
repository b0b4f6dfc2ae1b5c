"""The part of a recording that runs inside the recorded program: it needs the standard library and the program's torch.

A file in a folder of its own, `sitecustomize.py`, loads it before the program begins (recorder.py). Each process writes
two files there: one line for each distinct call, when it is first met, and how often each was made, as numbers in
memory that the file shares, so that both are whole whatever ends the process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.abc
import importlib.util
import inspect
import json
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

MOST_CALLS = 1 << 14
"""Distinct calls that a process tells apart; what comes after those is not recorded."""
LONGEST_LIST = 8
"""Numbers of a list that is kept; a longer one may be data."""


class Calls:
    """The calls of this process, and of those that it forks, each in files of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._known: dict[Any, int] = {}
        self._lines: Path | None = None
        self._counts: memoryview = memoryview(b"")
        self._lock = threading.Lock()

    def _open(self) -> None:
        """Make the files, when there is something to write."""
        stem = self._folder / f"{os.getpid()}-{os.urandom(8).hex()}"  # a program that execs another keeps its number
        counts = os.open(f"{stem}.counts", os.O_RDWR | os.O_CREAT, 0o666)
        os.ftruncate(counts, 8 * MOST_CALLS)
        self._counts = memoryview(mmap.mmap(counts, 8 * MOST_CALLS)).cast("q")
        os.close(counts)
        self._lines = Path(f"{stem}.jsonl")

    def _write(self, line: str) -> None:
        """Append a line, by the file's name: a program may close descriptors, and give their numbers to other files."""
        if self._lines is None:
            self._open()
        assert self._lines is not None
        with self._lines.open("ab", buffering=0) as file:
            file.write(line.encode())

    def meet(self, name: str, given: Sequence[tuple[str, Any]], *, texts: bool = False) -> None:
        """Count a call. texts: keep those among its arguments. Nothing that goes wrong here may reach the program."""
        with contextlib.suppress(Exception):
            key = name, tuple([(n, *_form(value, texts)) for n, value in given])
            number = self._known.get(key)
            if number is None:
                number = self._enter(key)
            if number < MOST_CALLS:
                self._counts[number] += 1

    def _enter(self, key: tuple[str, tuple[tuple[Any, ...], ...]]) -> int:
        with self._lock:
            number = self._known.get(key, len(self._known))
            if number == len(self._known) and number < MOST_CALLS:
                self._write(json.dumps(_line(key)) + "\n")
                self._known[key] = number  # a line that cannot be written has no number
        return number


def _form(value: Any, texts: bool) -> tuple[Any, ...]:
    """What is kept of an argument, as something that can be looked up; nothing of the values of tensors."""
    if hasattr(value, "stride") and hasattr(value, "dtype"):
        strides = () if value.layout is not _torch().strided or value.is_contiguous() else value.stride()
        return "tensor", value.dtype, tuple(value.shape), tuple(strides)
    if value is None or isinstance(value, (bool, int, float)):
        return "plain", type(value), value if value == value else "NaN"  # noqa: PLR0124  one that equals itself
    if isinstance(value, str):
        return ("plain", str, value) if texts else ("",)
    if isinstance(value, (list, tuple)):
        if all(isinstance(one, (bool, int, float)) for one in value):
            return ("plain", list, tuple(value)) if len(value) <= LONGEST_LIST else ("",)
        return "several", tuple([_form(one, texts) for one in value])
    return ("plain", str, str(value)) if isinstance(value, _torch().dtype) else ("",)


def _torch() -> Any:
    return sys.modules["torch"]


def _line(key: tuple[str, tuple[tuple[Any, ...], ...]]) -> dict[str, Any]:
    """A call as it is written."""
    name, given = key
    inputs: dict[str, str] = {}
    strides: dict[str, Sequence[int]] = {}
    attrs: dict[str, Any] = {}
    for one, kind, *rest in _flat(given):
        if kind == "tensor":
            dtype, shape, gaps = rest
            inputs[one] = f"{str(dtype).rpartition('.')[2]}[{', '.join(map(str, shape))}]"
            strides.update({one: gaps} if gaps else {})
        elif kind == "plain" and rest[1] is not None:
            attrs[one] = _named(rest[1])
    return {"call": name, "inputs": inputs, "strides": strides, "attrs": attrs}


def _flat(given: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Every tensor of a list as an input of its own."""
    for one, kind, *rest in given:
        if kind == "several":
            yield from _flat([(f"{one}_{i}", *form) for i, form in enumerate(rest[0])])
        else:
            yield (one, kind, *rest)


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    return value


class Threads:
    """Sees operators in each thread: what torch asks for that belongs to a thread, and must end with it."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """make: of torch what is entered in each thread, as a context manager."""
        self._make, self._kind = make, None
        self._local = threading.local()
        start = threading.Thread.start

        @functools.wraps(start)
        def started(thread: threading.Thread) -> None:
            run = thread.run
            thread.run = lambda: self._within(run)  # type: ignore[method-assign]
            start(thread)

        threading.Thread.start = started  # type: ignore[method-assign, assignment]
        atexit.register(self._leave)

    def torch_is_there(self, torch: ModuleType) -> None:
        """Begin in the thread that has imported torch, and in all that start later."""
        self._kind = self._make(torch)
        if threading.current_thread() is threading.main_thread() or getattr(self._local, "ends", False):
            self._enter()

    def _within(self, run: Callable[[], None]) -> None:
        self._local.ends = True
        try:
            self._enter()
            run()
        finally:
            self._leave()

    def _enter(self) -> None:
        if self._kind is not None:
            self._local.mode = self._kind()
            self._local.mode.__enter__()

    def _leave(self) -> None:
        mode = self._local.__dict__.pop("mode", None)
        if mode is not None:
            mode.__exit__(None, None, None)


def _recording(torch: Any, calls: Calls) -> Any:
    """Make what torch tells of every operator, if it is entered as a context manager."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415  the program may never import it

    strange = (torch._subclasses.FakeTensor,)  # noqa: SLF001  of compilers: no call of the model's

    class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            name, names, recorded = _about(func)
            if recorded and not isinstance(args[0] if args else None, strange):
                calls.meet(name, [*zip(names, args), *(kwargs or {}).items()], texts=True)  # noqa: B905  defaults
            return func(*args, **(kwargs or {}))

    # Under its wrapper, which would import torch's compiler to say that it is not compiled.
    Recording.__torch_dispatch__ = inspect.unwrap(Recording.__torch_dispatch__)  # type: ignore[method-assign]
    return Recording


_NO_KERNELS = frozenset(
    {
        *("detach", "clone", "copy_", "_to_copy", "contiguous", "lift_fresh", "_local_scalar_dense"),
        *("uniform_", "normal_", "random_", "fill_", "zero_", "ones_like", "zeros_like", "empty_like"),
    }
)
"""Operators that move or make numbers and compute nothing."""


@functools.cache
def _about(func: Any) -> tuple[str, tuple[str, ...], bool]:
    """Name and arguments of an operator, and whether it computes something from a tensor."""
    known = func._schema.arguments  # noqa: SLF001
    takes = any("Tensor" in str(one.type) for one in known)
    name = str(func).rpartition(".")[0]
    moves = name.rpartition(".")[2] in _NO_KERNELS
    return name, tuple(one.name for one in known), takes and not func.is_view and not moves


def record_modules(torch: Any, calls: Calls, names: Sequence[str]) -> None:
    """Have every call of a module recorded whose class has one of these names."""
    wanted = frozenset(names)

    def hook(module: Any, args: Any, kwargs: Any, result: Any) -> None:
        del result
        kind = type(module)
        if kind.__name__ in wanted:
            weights = [*module.named_parameters(), *module.named_buffers()]
            held = [(name.replace(".", "_"), one) for name, one in weights]
            calls.meet(kind.__name__, [*_bound(kind.forward, (module, *args), kwargs)[1:], *held])

    torch.nn.modules.module.register_module_forward_hook(hook, with_kwargs=True, always_call=True)


def record_function(module: ModuleType, calls: Calls, path: str, label: str) -> None:
    """Put a function in the place of another one that records its calls. Raises TypeError for what is none."""
    *owners, last = path.split(".")
    owner = functools.reduce(getattr, owners, module)
    function = inspect.getattr_static(owner, last)
    if not isinstance(function, (FunctionType, BuiltinFunctionType)):
        raise TypeError(f"{label} is a {type(function).__name__}; only a function can be recorded")

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        calls.meet(label, _bound(function, args, kwargs))
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await recorded(*args, **kwargs)

    # Frameworks ask whether a function is a coroutine's, and call it otherwise.
    setattr(owner, last, awaited if inspect.iscoroutinefunction(function) else recorded)


def _bound(function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> list[tuple[str, Any]]:
    """Arguments by the names of parameters."""
    try:
        given = _signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [*((f"arg{i}", one) for i, one in enumerate(args)), *kwargs.items()]
    found: list[tuple[str, Any]] = []
    for name, value in given.arguments.items():
        kind = given.signature.parameters[name].kind
        found += value.items() if kind is inspect.Parameter.VAR_KEYWORD else [(name, value)]
    return found


_signature = functools.cache(inspect.signature)


class AfterImport(importlib.abc.MetaPathFinder):
    """Does something when modules of some names have been imported."""

    def __init__(self, wanted: dict[str, list[Callable[[ModuleType], None]]]) -> None:
        self._wanted = wanted

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that others have for it, whose loader then does it."""
        if name not in self._wanted:
            return None
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        spec = next((found for one in others if (found := one.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._doing(spec.loader.exec_module, self._wanted[name])  # type: ignore[method-assign]
        return spec

    @staticmethod
    def _doing(execute: Callable[[ModuleType], None], then: list[Callable[[ModuleType], None]]) -> Any:
        def executed(module: ModuleType) -> None:
            execute(module)
            for do in then:
                do(module)

        return executed


def begin(folder: Path) -> None:
    """Prepare this process, before its program begins."""
    said = json.loads((folder / "asked.json").read_text("utf-8"))
    torch = "torch" if importlib.util.find_spec("torch") else ""
    (folder / f"{os.getpid()}.process").write_text(json.dumps({"executable": sys.executable, "torch": torch}))
    calls = Calls(folder)
    wanted: dict[str, list[Callable[[ModuleType], None]]] = {}

    def at(name: str, do: Callable[..., None], *more: Any) -> None:
        wanted.setdefault(name, []).append(lambda module: _attempt(folder, do, module, *more))

    if "trace" in said:
        at("torch", Threads(lambda torch: trace(torch, folder, **said["trace"])).torch_is_there)
    elif said["modules"]:
        at("torch", record_modules, calls, said["modules"])
    elif not said["functions"]:
        at("torch", Threads(lambda torch: _recording(torch, calls)).torch_is_there)
    for label in said.get("functions", ()):
        name, _, path = label.partition(":")
        at(name, record_function, calls, path, label)
    sys.meta_path.insert(0, AfterImport(wanted))


def trace(torch: ModuleType, folder: Path, *, stop: bool, every_call: bool) -> Any:
    """Begin a trace, by the files beside this one, and return what each thread enters; it writes to the folder."""
    here = Path(__file__).with_name("__init__.py")
    spec = importlib.util.spec_from_file_location("kassay_tracing", here, submodule_search_locations=[str(here.parent)])
    assert spec is not None
    sys.modules["kassay_tracing"] = importlib.util.module_from_spec(spec)
    told = importlib.import_module("kassay_tracing.events").Told(folder)
    kind = importlib.import_module("kassay_tracing.watch").Watch
    watch = kind(torch, folder=folder / "cases", stop=stop, every_call=every_call, tell=told.write)
    os.register_at_fork(after_in_child=watch.forked)
    atexit.register(watch.close)
    return watch.mode


def _attempt(folder: Path, do: Callable[..., None], *given: Any) -> None:
    """Do something, and leave word if it fails: the program goes on as if nobody recorded it."""
    try:
        do(*given)
    except Exception as error:  # noqa: BLE001  whatever it is, it is none of the program's
        with contextlib.suppress(OSError):
            (folder / f"{os.getpid()}.trouble").write_text(f"{error}")


def start(folder: Path) -> None:
    """Begin, and hand over to the program's own sitecustomize, in whose place this was loaded."""
    sys.path[:] = [one for one in sys.path if one != str(folder)]
    with contextlib.suppress(Exception):
        begin(folder)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
