"""The isolated process: subjects are loaded and run here and nowhere else. It never meets the judge."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from mmap import mmap
from typing import Any, Self

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import Channel, frame
from kernel_assay.corpus.process.inert_tests import stand_in
from kernel_assay.corpus.process.recorded_operators import recorded
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, DriverError, give_up, when_lost
from kernel_assay.kernels.backends.support.base import Loader
from kernel_assay.kernels.backends.support.signature import Bound, Interface
from kernel_assay.kernels.backends.support.walls import fault_note
from kernel_assay.kernels.boundary.devices import is_made_on_gpu
from kernel_assay.kernels.boundary.output_transfer import OutputHandover, bytes_of, lent
from kernel_assay.kernels.boundary.protocol import CHANNEL_LOST, IDLE, STACK_AT, STACK_SIGNAL, WORKER_FAILED, Round
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.worker.exceptions import SubjectError, mine
from kernel_assay.kernels.worker.executor import Access, Executor, Head, Run, Setting, execute
from kernel_assay.kernels.worker.host import HostAccess, HostSetting
from kernel_assay.kernels.worker.stretched import stretched
from kernel_assay.kernels.worker.timed import TimedExecutor
from kernel_assay.kernels.worker.witness import Witness

NO_ROOM = "its inputs and outputs, red zones and copies to compare with do not fit into the memory limit"
_monotonic_ns = time.monotonic_ns
"""The clock as it was before a subject could put another in its place."""
_TASK, _POSITION, _SINCE, _WALLED, _FAULT = range(5)
"""What stands where in the journal."""
_Timing = tuple[Round, dict[str, Run], Setting | None]
"""A round, the first run of its case, if there was one, and another case for a call before it."""
_GPU = "cuda"
"""The device of large cases, as torch calls it."""


class _CaseSettings:
    """Rooms for a case, made when they are first wanted: here for subjects on the host, there for those on a GPU."""

    def __init__(
        self, case: Case, outputs: dict[str, TensorSpec], *, large: bool, walls: bool = True, way: str = ""
    ) -> None:
        """way: how outputs of a large case are handed over; empty: they are sent."""
        self._case, self._outputs, self.large, self.way = case, outputs, large, way if large else ""
        self._walls = walls
        self.round: Round | None = None
        """How it is timed."""
        self.kept: dict[str, dict[str, Run]] = {}
        """First runs, by subject, of a case that is timed."""
        self.before: _CaseSettings | None = None
        """Those of another case of the same shape, if there are any."""
        dtypes = [*(tensor.dtype for tensor in case.tensors.values()), *(spec.dtype for spec in outputs.values())]
        self.unknown = next((dtype for dtype in dtypes if dtype not in FORMATS), "")
        """A dtype that cannot be made in this interpreter; empty: none."""

    @classmethod
    def read(cls, task: dict[str, Any], way: str = "") -> Self:
        """Those of a task, as a message has it."""
        outputs = {k: TensorSpec.model_validate(v) for k, v in task["outputs"].items()}
        return cls(Case.model_validate(task["case"]), outputs, large=task["large"], walls=task["walls"], way=way)

    def of(self, subject: Subject) -> tuple[Setting, Access]:
        """The case where a subject runs, and how it is called there; on a GPU only large cases are made."""
        loader = loader_of(subject.loader)
        if not self.large or not is_made_on_gpu(subject):
            return self.here, HostAccess(loader)
        from kernel_assay.kernels.worker.device import DeviceAccess  # noqa: PLC0415  it needs torch

        return self.there, DeviceAccess(loader, _GPU)

    @cached_property
    def here(self) -> HostSetting:
        """The setting on the host."""
        timed = self.round is not None
        return HostSetting(self._case, self._outputs, large=self.large, walls=self._walls, timed=timed)

    @cached_property
    def there(self) -> Setting:
        """The setting on the GPU."""
        from kernel_assay.kernels.worker.device import DeviceSetting  # noqa: PLC0415  it needs torch

        return DeviceSetting(self._case, self._outputs, _GPU)

    def leave(self) -> None:
        """Give the GPU's memory back, which torch would keep: there may be other workers."""
        if vars(self).pop("there", None) is not None:
            import torch  # noqa: PLC0415  only where it was needed

            torch.cuda.empty_cache()


class Worker:
    """Takes batches from a connection until it closes."""

    __slots__ = ("_bound", "_called", "_channel", "_faces", "_journal", "_rooms", "_subjects", "_witness")
    """Nothing else may be put on it: a subject in its process could hide its methods behind its own."""

    def __init__(self, channel: Channel, journal: int) -> None:
        self._channel = channel
        self._journal = np.frombuffer(mmap(journal, STACK_AT), np.int64)
        self._subjects: dict[str, Subject] = {}
        self._faces: dict[str, Interface] = {}
        self._bound: dict[tuple[str, type[Access]], Bound | UsageError] = {}
        self._witness = Witness({}, ())
        self._called: set[str] = set()
        self._rooms: dict[str, _CaseSettings] = {}
        """Of cases that are timed, by their recipes, the latest last."""

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
                self._send(stretched(*self._subject_of(message), message), [])
            elif "inputs" in message:
                self._say_inputs(message)
            elif "operators" in message:
                self._say_operators(message)
            elif "warm" in message:
                self._warm(message["warm"])
            else:
                self._batch(message["tasks"], message["token"], message["way"])

    def _introduce(self, message: dict[str, Any]) -> None:
        self._subjects = {k: Subject.model_validate(s) for k, s in message["subjects"].items()}
        self._faces = {op: Interface.read(f) for op, f in message["faces"].items()}
        ours = {
            os.path.realpath(resolve(s)) for s in self._subjects.values() if not s.is_own
        }  # a reference, timed as it is
        sources = [one for face in self._faces.values() for one in face.sources if one.rpartition(":")[0] not in ours]
        own = {key: resolve(subject) for key, subject in self._subjects.items() if subject.is_own}
        self._witness = Witness(own, sources)
        self._witness.listen()

    def _share(self, environment: dict[str, str]) -> None:
        """Become a client of a service on the GPU (kernels/sandbox/mps.py), before anything is done there."""
        os.environ.update(environment)
        if any(is_made_on_gpu(s) for s in self._subjects.values()):
            try:
                DRIVER.check()
            except DriverError as error:
                give_up(error)

    def _say_inputs(self, message: dict[str, Any]) -> None:
        """Make the inputs of a case and say what they are; nothing of the subject's is loaded."""
        setting, _ = _CaseSettings.read(message["inputs"]).of(self._subjects[message["subject"]])
        self._send({"input_digest": setting.digest, "input_rows": setting.rows}, [])

    def _say_operators(self, message: dict[str, Any]) -> None:
        """Run a case once by some subjects, of which most are nobody's own, and say what of torch each of them calls.

        That of a person comes last: it may have changed whatever it likes by then.
        """
        setting = _CaseSettings.read(message["operators"]).here
        others = [Subject.model_validate(one) for one in message["others"]]
        self._subjects |= {one.key: one for one in others}
        keys = [*(one.key for one in others), message["subject"]]
        self._send({"called": {key: self._operators_of(setting, key) for key in keys}}, [])

    def _operators_of(self, setting: Setting, key: str) -> dict[str, Any]:
        """The operators, and how many kernels were launched; nothing of a subject that does not run the case."""
        subject = self._subjects[key]
        access = HostAccess(loader_of(subject.loader))
        if isinstance(bound := self._bound_by(access, key), UsageError):
            return {}
        executor, launches = (
            Executor(setting, access, bound, self._faces[subject.op].extra),
            access.loader.noted_launches(),
        )
        if executor.declined:
            return {}
        try:
            called = recorded(sys.modules["torch"], lambda: executor.call(0, 0))
        except SubjectError:
            return {}
        return {**called, "launches": None if launches is None else len(launches)}

    def _subject_of(self, message: dict[str, Any]) -> tuple[Loader, Any, Interface]:
        """Load a subject, before it is bound: its loader, itself, and the interface of its op."""
        subject = self._subjects[message["stretch"]]
        access = HostAccess(loader_of(subject.loader))
        return access.loader, access.load(subject), self._faces[subject.op]

    def _probe(self, key: str) -> None:
        """Load a subject and say whether it can be called; also which of our own modules are loaded here."""
        self._note(0, 0)
        bound = self._bound_by(HostAccess(loader_of(self._subjects[key].loader)), key)
        self._note(IDLE, IDLE)
        apart = ("kernel_assay.fuzz", "kernel_assay.oracles", "kernel_assay.reports", "hypothesis")
        ours = sorted(n for n, m in sys.modules.items() if n.startswith(apart) and hasattr(m, "__file__"))
        self._send({**_said_of(bound), "modules": ours}, [])

    def _warm(self, keys: list[str]) -> None:
        """Do beforehand what makes a first task slow: load these subjects, and touch what a task touches."""
        setting = HostSetting(_PRACTICE, {"out": TensorSpec(shape=(4, 4), dtype="float32")})
        for key in keys:
            access = HostAccess(loader_of(self._subjects[key].loader))
            self._bound_by(access, key)
            access.loader.warm()
            setting.arguments(access, (), returns=False)
        setting.memory.reset(0)
        setting.memory.intact(0)

    def _batch(self, tasks: list[dict[str, Any]], token: str, way: str) -> None:
        for task in tasks:
            self._note(task["n"], IDLE)
            rooms = self._settings_of(task, way)
            for position, key in enumerate(task["subjects"]):
                said = {"n": task["n"], "subject": key, "token": token}
                self._run_and_tell(rooms, said, position, last=task is tasks[-1])
            if rooms.round is None:
                rooms.leave()

    def _settings_of(self, task: dict[str, Any], way: str) -> _CaseSettings:
        """Those of a task; of one that is timed the same as last time, if there was room for them."""
        if task["round"] is None:
            return _CaseSettings.read(task, way)
        asked, word = Round(**task["round"]), repr((task["case"], task["outputs"]))
        while word not in self._rooms and len(self._rooms) >= asked.rooms:
            self._rooms.pop(next(iter(self._rooms))).leave()
        before = next(reversed(self._rooms.values()), None)
        rooms = self._rooms.setdefault(word, _CaseSettings.read(task, way))
        rooms.round, rooms.way = asked, way if rooms.large else ""
        rooms.before = before if asked.new else None
        return rooms

    def _run_and_tell(self, rooms: _CaseSettings, said: Head, position: int, *, last: bool) -> None:
        """Run a subject; send what came of it, or offer its outputs until they are taken. last: of its batch."""
        head, payload, handover = self._run(rooms, said["subject"], said["n"], position, last=last)
        self._note(IDLE, IDLE)
        head = {**said, **head}
        if not handover.offers:
            self._send(head, [bytes_of(values) for values in payload])
        while handover.offers:
            self._send({**head, "offers": handover.offers}, [])
            again = self._heard_of_loan()
            handover.give_back()
            handover = lent(payload, again)

    def _heard_of_loan(self) -> str:
        """The way in which outputs must be offered once more; empty: they are not needed any more."""
        try:
            return str(self._channel.receive()[0]["again"])
        except EOFError as error:
            raise OSError("the supervisor has hung up") from error

    def _run(
        self, rooms: _CaseSettings, key: str, number: int, position: int, *, last: bool
    ) -> tuple[dict[str, Any], list[Any], OutputHandover]:
        """Make what a subject runs on, unless it is there; then run it. Where there is no room, nobody is accused."""
        subject = self._subjects[key]
        if rooms.unknown:
            why = f"{rooms.unknown} needs ml_dtypes, which its interpreter has not"
            return {"status": Status.UNSUPPORTED, "input_digest": "", "message": why}, [], OutputHandover()
        try:
            setting, access = rooms.of(subject)
            self._note(number, position)
            before = rooms.before.of(subject)[0] if rooms.before else None
            timing = (rooms.round, rooms.kept.setdefault(key, {}), before) if rooms.round else None
            head, payload = self._watched(setting, access, key, timing, last=last)
            return head, payload, lent(payload, rooms.way)
        except Exception as error:
            if rooms.large and loader_of(subject.loader).is_out_of_memory(error):
                return {"status": Status.UNSUPPORTED, "input_digest": "", "message": NO_ROOM}, [], OutputHandover()
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

    def _bound_by(self, access: Access, key: str) -> Bound | UsageError:
        """A subject as it is called there, loaded when it is first wanted; or why it cannot be."""
        word = (key, type(access))
        if word not in self._bound:
            subject = self._subjects[key]
            self._witness.begin(key, closely=True)
            try:
                self._bound[word] = access.bound(subject, self._faces[subject.op])
            except UsageError as error:
                self._bound[word] = error
            self._witness.look()
            self._witness.end()
        return self._bound[word]

    def _watched(
        self, setting: Setting, access: Access, key: str, timing: _Timing | None, *, last: bool
    ) -> tuple[Head, list[Any]]:
        """Execute; who was seen to cheat, then or before, is told of instead of its result."""
        bound, first = self._bound_by(access, key), key not in self._called
        self._called.add(key)
        self._witness.begin(key, closely=first)
        head, payload = self._execute(setting, access, bound, timing)
        if first or last:  # a look takes as long as a small kernel
            self._witness.look()
        self._witness.end()
        if not (seen := self._witness.evidence(key)):
            return head, payload
        said = {name: head[name] for name in ("input_digest", "input_rows")}
        return {**said, "status": Status.FAULTED, "fault": Kind.CHEATED, "message": seen}, []

    def _execute(
        self, setting: Setting, access: Access, bound: Bound | UsageError, timing: _Timing | None
    ) -> tuple[Head, list[Any]]:
        """Two runs of one subject, or a round; what came out as a head and the first run's bytes."""
        head: Head = {"status": Status.OK, "input_digest": setting.digest, "input_rows": setting.rows}
        if isinstance(bound, UsageError):
            return {**head, "status": Status.BUILD_FAILED, "message": str(bound)}, []
        extra = self._faces[setting.case.op].extra
        if timing is not None:
            return execute(TimedExecutor(setting, access, bound, extra, *timing), head)
        executor = Executor(setting, access, bound, extra)

        def then(*runs: Run) -> None:
            if isinstance(setting, HostSetting) and setting.may_be_walled(access) and not any(r.did_harm for r in runs):
                self._run_between_walls(executor, setting.walled)

        return execute(executor, head, order=setting.case.number, then=then)

    def _run_between_walls(self, executor: Executor, setting: HostSetting) -> None:
        """Once more, only to see whether it leaves its inputs or writes to them, which ends this process.

        What comes out does not count: the inputs lie at other addresses, and sums in another order are as right.
        """
        assert setting.memory.walled is not None
        self._journal[_WALLED] = setting.memory.walled.address
        with suppress(SubjectError):
            replace(executor, setting=setting).once(0, 0)
        self._journal[_WALLED] = 0


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


def main(channel: int, journal: int) -> None:
    """Serve until the supervisor hangs up; leave without running anything a subject may have registered."""
    conn = Channel(socket.socket(fileno=channel))
    mine()
    stand_in()
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
        os._exit(WORKER_FAILED)
    os._exit(0)
