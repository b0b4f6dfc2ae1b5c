"""The process that executes tasks for a worker: closed in, without network, and warm from one task to the next.

References and adapters that were sent run below it, too, which is why it is closed in as a whole: it reads the file
system, sees neither tokens nor other processes, and writes to memory of its own. Kernels run in closed places in it.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_assay.corpus.process.channel import Channel, Message, frame
from kernel_assay.corpus.process.child import ChildProcess, GoneError, start, taken
from kernel_assay.corpus.process.import_limit import SECONDS_VARIABLE
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.kernels.worker.enclosure import Enclosure

if TYPE_CHECKING:
    from kernel_assay.fuzz.service.work.warm import WarmPools

MODULE = "fuzz.service.work.executor"
START_SECONDS = 120.0
TRIAL = {
    "request": {"kind": "judge", "target": {"ops": ["silu"], "subjects": ["numpy_float32"]}, "settings": {"cases": 4}},
    "work": {},
}
"""A task by which all is imported that the first one would wait for."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A process with several threads cannot be closed in; and there are as many tasks as processors."""


class Executor(ChildProcess):
    """The process, as its worker sees it."""

    def __init__(self, warm: Sequence[str], enclosure: Message | None = None, compiled: Path | None = None) -> None:
        """warm: loaders that kernels are expected to need; enclosure: what it is closed in by; None: nothing.

        compiled: machine code of the judge's own, as `compiled_ahead` leaves it. Raises GoneError if it does not start.
        """
        self._nothing = os.memfd_create("nothing")
        settings = {"enclosure": enclosure, "warm": list(warm), "compiled": str(compiled or "")}
        super().__init__(MODULE, self._nothing, settings, ONE_THREAD)
        self.served, self._compiled = 0, compiled or enclosure is None
        self.hear(START_SECONDS)

    def outdated(self, *, compiled: object) -> bool:
        """Whether it has begun without the machine code that is there now."""
        return bool(compiled) and not self._compiled

    def say(self, message: Message) -> None:
        """Send a message that is not answered at once. Raises GoneError."""
        try:
            self._channel.send(frame(message, []))
        except OSError as error:
            raise GoneError(self._ending()) from error

    def close(self) -> None:
        """End it, and whatever it has started."""
        super().close()
        if self._nothing >= 0:
            os.close(self._nothing)
            self._nothing = -1


def compiled_ahead(folder: Path) -> None:
    """Compile what judges into a folder that nothing else writes to, if that was not done before; it may take 30 s."""
    environment = {"NUMBA_CACHE_DIR": str(folder)}
    start("oracles.judging.precompile", environment=environment, out=subprocess.DEVNULL, err=subprocess.DEVNULL).wait()


def _closed_in(enclosure: Message, compiled: str) -> None:
    """Go on in a closed place of one's own, whose first process reaps what is left behind."""
    Enclosure(**enclosure).enter()
    if child := os.fork():
        for number in range(3, 1024):
            with suppress(OSError):
                os.close(number)
        ended, status = os.wait()
        while ended != child:
            ended, status = os.wait()
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    die_with_parent()
    os.environ["TMPDIR"] = own = enclosure["own"]
    if compiled:  # numba keeps nothing where it cannot write
        os.environ["NUMBA_CACHE_DIR"] = shutil.copytree(compiled, f"{own}/numba")
    else:
        os.environ["KERNEL_ASSAY_NO_NUMBA"] = "1"


class _Tasks:
    """Messages of the worker: tasks in turn, and the order to stop the one that is executed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.stop: Any = None
        """Of the task that is executed."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                message, _ = self._channel.receive()
            except (EOFError, OSError):
                self._waiting.put(None)
                return
            if "stop" not in message:
                self._waiting.put(message)
            elif self.stop is not None:
                self.stop.ask()

    def next(self) -> Message | None:
        """The next task; None: there is nobody any more who has one."""
        return self._waiting.get()


def main() -> None:
    """Entry of the process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = taken(sys.argv[1])
    os.chdir("/")  # the folders of tasks are removed, and what is started here outlives them
    if settings["enclosure"]:
        _closed_in(settings["enclosure"], settings["compiled"])
    # what judges is imported when this process is closed in, for which it may have one thread only
    from kernel_assay.fuzz.service.work.warm import WarmPools  # noqa: PLC0415
    from kernel_assay.oracles.judging.measure import engine, prefer_numba  # noqa: PLC0415

    channel = Channel(socket.socket(fileno=settings["channel"]))
    engine()
    prefer_numba()  # it is here for many tasks
    os.environ.pop("NUMBA_CACHE_DIR", None)  # that of kernels is another one
    with WarmPools(settings["warm"]) as pools:
        tasks = _Tasks(channel)
        _done(TRIAL | {"sources": tempfile.gettempdir()}, tasks, pools, lambda _: None)
        channel.send(frame({"ready": os.getpid()}, []))
        while (message := tasks.next()) is not None:
            done = _done(message, tasks, pools, lambda said: channel.send(frame(said, [])))
            channel.send(frame({"outcome": done}, []))


def _done(message: Message, tasks: _Tasks, pools: WarmPools, send: Callable[[Message], None]) -> Message:
    """Execute one task; its outcome as JSON data."""
    from kernel_assay.fuzz import api  # noqa: PLC0415  as above
    from kernel_assay.fuzz.service.protocol import JobRequest, Progress  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.assignment import Work  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.execute import execute, load_seconds  # noqa: PLC0415
    from kernel_assay.fuzz.service.work.portable import Places  # noqa: PLC0415

    def tell(progress: Progress) -> None:
        send({"progress": progress.model_dump(mode="json")})

    tasks.stop, request = api.Stop(), JobRequest.model_validate(message["request"])
    os.environ[SECONDS_VARIABLE] = f"{load_seconds(request):g}"
    with pools.scratch() as store:
        work = Work(
            request=request,
            places=Places(Path(message["sources"]), store),
            tell=tell,
            ahead=pools.ahead,
            stop=tasks.stop,
            **message["work"],
        )
        try:
            return execute(work).model_dump(mode="json")
        finally:
            tasks.stop = None


if __name__ == "__main__":
    main()
