"""The isolated process: subjects are loaded and run here and nowhere else. It never meets the judge."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from mmap import mmap
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, Array, format_of
from kernel_assay.corpus.inputs.fingerprint import rows_digest_of
from kernel_assay.corpus.inputs.materialize import Tensors, digest, materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, DriverError, give_up, when_lost
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.backends.support.guard import POISONS, Guarded
from kernel_assay.kernels.backends.support.mapped_memory import Mapped
from kernel_assay.kernels.backends.support.signature import Bound, Interface, bind, unbound
from kernel_assay.kernels.backends.support.walls import Walled, fault_note, is_walled, order_of
from kernel_assay.kernels.boundary.devices import is_made_on_gpu
from kernel_assay.kernels.boundary.output_transfer import Loan, Sealed, bytes_of, lent
from kernel_assay.kernels.boundary.protocol import CHANNEL_LOST, IDLE, STACK_AT, STACK_SIGNAL, Channel, frame
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.worker.exceptions import SubjectError, as_tuple, mine, raised, timed
from kernel_assay.kernels.worker.stretched import stretched

PIECE = 1 << 24
"""Elements of two results that are compared at once."""
NO_ROOM = "its inputs and outputs, red zones and copies to compare with do not fit into the memory limit"
OTHER_STREAM = (
    "its result is another one when its inputs arrive late on the current stream: it works on another stream than "
    "that, or does not wait for one of its own"
)


_monotonic_ns = time.monotonic_ns
"""The clock as it was before a subject could put another in its place."""
_TASK, _POSITION, _SINCE, _WALLED, _FAULT = range(5)
"""What stands where in the journal."""


class Setting:
    """One case, materialized, in guarded memory; shared by all subjects that run it."""

    def __init__(self, case: Case, outputs: dict[str, TensorSpec], *, large: bool = False, walls: bool = True) -> None:
        """large: the judge makes some rows of the inputs only, so that only their digest can be compared."""
        self.case, self.large, self.walls = case, large, walls
        self.specs = outputs
        self._kept: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        """Arguments that are not touched, by backend."""
        self.inputs: Tensors = self.memory.views() if large else materialize_all(case)
        self.digest = "" if large else digest(self.inputs)
        self.rows = rows_digest_of(case, self.inputs) if large else ""

    @cached_property
    def order(self) -> int:
        """A number that the seeds of the case give."""
        return order_of(self.case)

    @cached_property
    def memory(self) -> Guarded:
        """The slab with all buffers."""
        if self.large:
            return Mapped(self.case.tensors, self.specs)
        return Guarded(self.case.tensors, self.inputs, self.specs)

    @cached_property
    def walled(self) -> Setting:
        """The same case, its inputs between walls."""
        made, inputs = copy(self), Walled(self.case.tensors, self.inputs, self.order)
        vars(made).update(_kept={}, memory=Guarded(self.case.tensors, self.inputs, self.specs, inputs))
        return made

    def arguments(self, loader: Loader, extra: Collection[str], *, returns: bool) -> tuple[list[Any], dict[str, Any]]:
        """The tensors to call with, outputs first unless the subject returns them; the extra inputs by name.

        Views of its own for every call, if a subject may reshape or transpose what it is given in place.
        """
        if not loader.keeps_views:
            return self._arguments(loader, extra, returns=returns)
        if loader.name not in self._kept:
            self._kept[loader.name] = self._arguments(loader, extra, returns=returns)
        return self._kept[loader.name]

    def _arguments(self, loader: Loader, extra: Collection[str], *, returns: bool) -> tuple[list[Any], dict[str, Any]]:
        views = self.memory.views().items()
        inputs = [loader.wrap(view[...]) for name, view in views if name not in extra]
        named = {name: loader.wrap(view[...]) for name, view in views if name in extra}
        return inputs if returns else [loader.wrap(b.view[...]) for b in self.memory.outputs] + inputs, named


class _Rooms:
    """Rooms for a case, made when they are first wanted: here for subjects on the host, there for those on a GPU."""

    def __init__(
        self, case: Case, outputs: dict[str, TensorSpec], *, large: bool, walls: bool = True, way: str = ""
    ) -> None:
        """way: how outputs of a large case are handed over; empty: they are sent."""
        self._case, self._outputs, self.large, self.way = case, outputs, large, way if large else ""
        self._walls = walls

    @cached_property
    def here(self) -> Setting:
        """The setting on the host."""
        return Setting(self._case, self._outputs, large=self.large, walls=self._walls)

    @cached_property
    def there(self) -> Any:
        """The setting on the GPU, where only large cases are made."""
        from kernel_assay.kernels.worker.large import LargeSetting  # noqa: PLC0415  it needs torch

        return LargeSetting(self._case, self._outputs, "cuda")

    def leave(self) -> None:
        """Give the GPU's memory back, which torch would keep: there may be other workers."""
        if vars(self).pop("there", None) is not None:
            import torch  # noqa: PLC0415  only where it was needed

            torch.cuda.empty_cache()


class Worker:
    """Takes batches from a connection until it closes."""

    def __init__(self, channel: Channel, journal: int) -> None:
        self._channel = channel
        self._journal = np.frombuffer(mmap(journal, STACK_AT), np.int64)
        self._subjects: dict[str, Subject] = {}
        self._faces: dict[str, Interface] = {}
        self._bound: dict[str, Bound | UsageError] = {}

    def serve(self) -> None:
        """The main loop."""
        while True:
            try:
                message, _ = self._channel.receive()
            except (EOFError, OSError):
                return
            if "subjects" in message:
                self._introduce(message)
            elif "environment" in message:
                self._share(message["environment"])
            elif "probe" in message:
                self._probe(message["probe"])
            elif "stretch" in message:
                self._send(stretched(self._subject_of(message), message), [])
            elif "warm" in message:
                self._warm(message["warm"])
            else:
                self._batch(message["tasks"], message["way"])

    def _introduce(self, message: dict[str, Any]) -> None:
        self._subjects = {k: Subject.model_validate(s) for k, s in message["subjects"].items()}
        self._faces = {op: Interface.read(f) for op, f in message["faces"].items()}

    def _share(self, environment: dict[str, str]) -> None:
        """Become a client of a service on the GPU (kernels/sandbox/mps.py), before anything is done there."""
        os.environ.update(environment)
        if any(is_made_on_gpu(s) for s in self._subjects.values()):
            try:
                DRIVER.check()
            except DriverError as error:
                give_up(error)

    def _subject_of(self, message: dict[str, Any]) -> tuple[Any, Interface]:
        """Load a subject, before it is bound, and the interface of its op."""
        subject = self._subjects[message["stretch"]]
        loaded = loader_of(subject.loader).load_with(resolve(subject), subject.function, subject.launch)
        return loaded, self._faces[subject.op]

    def _probe(self, key: str) -> None:
        """Load a subject and say whether it can be called; also which of our own modules are loaded here."""
        self._note(0, 0)
        bound = self._bind(key)
        self._note(IDLE, IDLE)
        apart = ("kernel_assay.fuzz", "kernel_assay.oracles", "kernel_assay.reports", "hypothesis")
        ours = sorted(m for m in sys.modules if m.startswith(apart))
        self._send({**_said_of(bound), "modules": ours}, [])

    def _warm(self, keys: list[str]) -> None:
        """Do beforehand what makes a first task slow: load these subjects, and touch what a task touches."""
        setting = Setting(_PRACTICE, {"out": TensorSpec(shape=(4, 4), dtype="float32")})
        for key in keys:
            self._bind(key)
            loader = loader_of(self._subjects[key].loader)
            loader.warm()
            setting.arguments(loader, (), returns=False)
        setting.memory.reset(0)
        setting.memory.intact(0)

    def _batch(self, tasks: list[dict[str, Any]], way: str) -> None:
        for task in tasks:
            self._note(task["n"], IDLE)
            case = Case.model_validate(task["case"])
            outputs = {k: TensorSpec.model_validate(v) for k, v in task["outputs"].items()}
            rooms = _Rooms(case, outputs, large=task["large"], walls=task["walls"], way=way)
            for position, key in enumerate(task["subjects"]):
                self._run_and_tell(rooms, key, task["n"], position)
            rooms.leave()

    def _run_and_tell(self, rooms: _Rooms, key: str, number: int, position: int) -> None:
        """Run a subject; send what came of it, or offer its outputs until they are taken."""
        head, payload, loan = self._run(rooms, key, number, position)
        self._note(IDLE, IDLE)
        head = {"n": number, "subject": key, **head}
        if not loan.offers:
            self._send(head, [bytes_of(values) for values in payload])
        while loan.offers:
            self._send({**head, "offers": loan.offers}, [])
            again = self._heard_of_loan()
            loan.give_back()
            loan = lent(payload, again)

    def _heard_of_loan(self) -> str:
        """The way in which outputs must be offered once more; empty: they are not needed any more."""
        try:
            return str(self._channel.receive()[0]["again"])
        except EOFError as error:
            raise OSError("the supervisor has hung up") from error

    def _run(self, rooms: _Rooms, key: str, number: int, position: int) -> tuple[dict[str, Any], list[Any], Loan]:
        """Make what a subject runs on, unless it is there; then run it. Where there is no room, nobody is accused."""
        subject = self._subjects[key]
        there = rooms.large and is_made_on_gpu(subject)
        try:
            setting = rooms.there if there else rooms.here
            self._note(number, position)
            head, payload = self._execute_there(setting, key) if there else self._execute(setting, key)
            return head, payload, lent(payload, rooms.way)
        except Exception as error:
            if rooms.large and loader_of(subject.loader).is_out_of_memory(error):
                return {"status": Status.UNSUPPORTED, "input_digest": "", "message": NO_ROOM}, [], Loan()
            raise

    def _note(self, task: int, position: int) -> None:
        """Journal what is about to run, so that whatever kills this process has a name."""
        # Number by number, each at once, so that whoever reads meanwhile sees no run with another's time or position.
        order = (_TASK, _POSITION, _SINCE) if task == IDLE else (_SINCE, _POSITION, _TASK)
        said = (task, position, _monotonic_ns())
        for place in order:
            self._journal[place] = said[place]

    def _send(self, head: dict[str, Any], payload: list[bytes]) -> None:
        self._channel.send(frame(head, payload))

    def _bind(self, key: str) -> Bound | UsageError:
        if key not in self._bound:
            subject = self._subjects[key]
            try:
                function = loader_of(subject.loader).load_with(resolve(subject), subject.function, subject.launch)
                self._bound[key] = bind(function, self._faces[subject.op], f"{subject.path}:{subject.function}")
            except UsageError as error:
                self._bound[key] = error
        return self._bound[key]

    def _execute_there(self, setting: Any, key: str) -> tuple[dict[str, Any], list[Any]]:
        """The same as _execute on the GPU, of a large case."""
        from kernel_assay.kernels.worker.large import road_of, run_on  # noqa: PLC0415  it needs torch

        subject, word = self._subjects[key], f"{key} of large cases"
        road, face = road_of(subject), self._faces[subject.op]
        if word not in self._bound:
            try:
                self._bound[word] = road.bound(subject, face)
            except UsageError as error:
                self._bound[word] = error
        return run_on(setting, self._bound[word], road, face.extra)

    def _execute(self, setting: Setting, key: str) -> tuple[dict[str, Any], list[Any]]:
        """Two runs of one subject; what came out as a head and the first run's bytes."""
        head: dict[str, Any] = {"status": Status.OK, "input_digest": setting.digest, "input_rows": setting.rows}
        bound = self._bind(key)
        if isinstance(bound, UsageError):
            return {**head, "status": Status.BUILD_FAILED, "message": str(bound)}, []
        if reason := bound.declines(setting.case.attrs, setting.inputs):
            return {**head, "status": Status.UNSUPPORTED, "message": reason}, []
        loader = loader_of(self._subjects[key].loader)
        try:
            extra = self._faces[setting.case.op].extra
            runs = [_run_once(setting, bound, loader, extra, run, setting.case.number) for run in (0, 1)]
            if loader.streamed and _differ(*runs):
                again = _run_once(setting, bound, loader, extra, 1, 0)
                if not _differ(runs[0], again):
                    return {**head, "status": Status.FAULTED, "fault": Kind.RACE, "message": OTHER_STREAM}, []
            may_be_walled = loader.walled and setting.walls and not setting.large and is_walled(setting.order)
            if may_be_walled and not _did_harm(runs):
                self._run_between_walls(setting, bound, loader, extra)
        except SubjectError as error:
            return {**head, **_not_returned(bound, error.cause, loader)}, []
        try:
            found, payload = _report(setting, runs, aliases=bound.returns)
        except MemoryError:
            message = "its results are too large to be read back within the memory limit"
            return {**head, "status": Status.OUT_OF_MEMORY, "message": message}, []
        return {**head, **found}, payload

    def _run_between_walls(self, setting: Setting, bound: Bound, loader: Loader, extra: Collection[str]) -> None:
        """Once more, only to see whether it leaves its inputs or writes to them, which ends this process.

        What comes out does not count: the inputs lie at other addresses, and sums in another order are as right.
        """
        walled = setting.walled
        assert walled.memory.walled is not None
        self._journal[_WALLED] = walled.memory.walled.address
        with suppress(SubjectError):
            _run_once(walled, bound, loader, extra, 0, 0)
        self._journal[_WALLED] = 0


def _did_harm(runs: list[_Run]) -> bool:
    """Whether it is known already that something was written that was not to be."""
    return any(run.damage or run.mutated for run in runs)


def _not_returned(bound: Bound, error: BaseException, loader: Loader) -> dict[str, Any]:
    """Describe a call that raised: the subject did, unless the call did not get to it."""
    reason = unbound(bound, error)
    return {"status": Status.UNSUPPORTED, "message": reason} if reason else raised(error, loader)


def _said_of(bound: Bound | UsageError) -> dict[str, Any]:
    """The answer to a probe."""
    if isinstance(bound, UsageError):
        return {"error": str(bound)}
    lacks = sorted({*bound.fixed, *bound.refused})
    return {"error": "", "returns": bound.returns, "lacks": lacks, "needs": sorted(bound.needed)}


_PRACTICE = Case(
    op="practice", tensors={"x": TensorRecipe(shape=(4, 4), dtype="float32", fill=Fill(distribution="normal"))}
)
"""What a spare worker materializes while it waits."""
_FOREIGN = b""
"""The payload of a result in a dtype that is none of ours: nobody could read it."""


@dataclass(slots=True)
class _Run:
    """One call: how long, what came back, what was damaged."""

    nanoseconds: int
    answer: Any
    """What came back itself, which is kept so that the next result cannot lie in its place by right."""
    results: list[Returned]
    damage: list[dict[str, Any]]
    mutated: list[str]
    warnings: list[str]
    sealed: list[Sealed | bytes] = field(default_factory=list)
    """The results of the first run of a large case, where the next run cannot reach them."""


def _report(setting: Setting, runs: list[_Run], *, aliases: bool) -> tuple[dict[str, Any], list[Any]]:
    """Describe two runs: the head of a message, and the first run's bytes."""
    pairs = zip(setting.specs, runs[0].results, runs[1].results, strict=True)
    reports = [_compare(name, a, b) for name, a, b in pairs]
    for report, result in zip(reports, runs[0].results, strict=True):
        report["alias_of"] = setting.memory.holds(result.address) if aliases and result.array.size else ""
    for report, first, second in zip(reports, runs[0].results, runs[1].results, strict=True):
        shared = range(max(first.place.start, second.place.start), min(first.place.stop, second.place.stop))
        report["reused"] = bool(shared) and bool(first.array.size) and not setting.large
    values = (r.array.tobytes() if r.dtype in FORMATS else _FOREIGN for r in runs[0].results)
    payload: list[Any] = runs[0].sealed or list(values)
    head = {
        "nanoseconds": runs[0].nanoseconds,
        "outputs": reports,
        "damage": runs[0].damage or runs[1].damage,
        "mutated": runs[0].mutated or runs[1].mutated,
        "warnings": runs[0].warnings or runs[1].warnings,
    }
    return head, payload


def _differ(first: _Run, second: _Run) -> bool:
    """Whether two runs left other results."""
    pairs = zip(first.results, second.results, strict=True)
    return any(a.array.shape != b.array.shape or bool(_compare("", a, b).get("differing")) for a, b in pairs)


def _run_once(setting: Setting, bound: Bound, loader: Loader, extra: Collection[str], run: int, order: int) -> _Run:
    memory = setting.memory
    arguments, named = setting.arguments(loader, extra, returns=bound.returns)
    memory.reset(run)
    loader.stage(memory.slab)
    loader.prepare(order, run, contracted=setting.case.contracted)
    try:
        answer, took = timed(lambda: bound.call(*arguments, **named, **bound.attributes(setting.case.attrs)))
        results = [loader.unwrap(r) for r in as_tuple(answer, len(setting.specs))] if bound.returns else []
    except BaseException as error:
        raise SubjectError(error) from error
    damage, mutated = ([], []) if memory.intact(run) else memory.damage(run)
    if not bound.returns:
        kept = (b.view if setting.large else b.view.copy() for b in memory.outputs)
        results = [Returned(array, format_of(array.dtype).name, True, 0) for array in kept]
    sealed = [Sealed(r.array) if r.dtype in FORMATS else _FOREIGN for r in results] if setting.large and not run else []
    pairs = zip(results, sealed, strict=False)
    results = [replace(r, array=s.array) if isinstance(s, Sealed) else r for r, s in pairs] or results
    said = [d.model_dump() for d in damage]
    return _Run(took, None if setting.large else answer, results, said, mutated, loader.warnings(), sealed)


def _compare(name: str, first: Returned, second: Returned) -> dict[str, Any]:
    """Compare two runs of one output."""
    report: dict[str, Any] = {
        "name": name,
        "shape": first.array.shape,
        "dtype": first.dtype,
        "contiguous": first.contiguous,
    }
    a, b = first.array, second.array
    if a.shape != b.shape or a.dtype != b.dtype:
        return {**report, "differing": max(a.size, b.size), "first_differing": 0}
    one, other = (np.ascontiguousarray(array).reshape(-1) for array in (a, b))
    for start in range(0, one.size, PIECE):
        _compare_piece(report, start, one[start : start + PIECE], other[start : start + PIECE])
    if "differing" in report:
        report["digest"], report["digest_again"] = (
            blake2b(r.view(np.uint8).data, digest_size=16).hexdigest() for r in (one, other)
        )
    return report


def _compare_piece(report: dict[str, Any], start: int, a: Array, b: Array) -> None:
    """Add what differs between two stretches of an output to its report."""
    if a.tobytes() == b.tobytes():
        return
    x, y = _element_bytes(a), _element_bytes(b)
    unwritten = (x == POISONS[0]).all(axis=1) & (y == POISONS[1]).all(axis=1)
    both_nan = (a != a) & (b != b)  # noqa: PLR0124  which NaN it is, is up to the compiler
    differing = (x != y).any(axis=1) & ~unwritten & ~both_nan
    for word, mask in (("unwritten", unwritten), ("differing", differing)):
        if mask.any():
            report[word] = report.get(word, 0) + int(mask.sum())
            report.setdefault(f"first_{word}", start + int(np.argmax(mask)))
    if differing.any() and "differing_bits" not in report:
        report["differing_bits"] = tuple(int.from_bytes(bits[np.argmax(differing)], sys.byteorder) for bits in (x, y))


def _element_bytes(array: Array) -> Array:
    return np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, array.itemsize)


def main(channel: int, journal: int) -> None:
    """Serve until the supervisor hangs up; leave without running anything a subject may have registered."""
    conn = Channel(socket.socket(fileno=channel))
    mine()
    os.lseek(journal, STACK_AT, os.SEEK_SET)
    noted = np.frombuffer(mmap(journal, STACK_AT), np.int64)
    fault_note().write_to(noted[_FAULT:].ctypes.data)
    faulthandler.register(STACK_SIGNAL, file=journal, all_threads=False)
    when_lost(lambda why: conn.send(frame({"lost": why}, [])))
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    try:
        Worker(conn, journal).serve()
    except OSError:
        os._exit(CHANNEL_LOST)
    except BaseException:  # noqa: BLE001  a fault of ours must not look like a crash of the subject
        conn.send(frame({"internal": traceback.format_exc()}, []))
    os._exit(0)
