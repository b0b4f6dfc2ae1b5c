"""Who spends the time: functions wrapped from outside, each moment charged to the innermost one.

In the worker, too: `watch_workers` makes the zygote run `watch_worker` before it forks, and every worker leaves its
sums in a file of its own. The code that is measured does not change.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.process import child
from kernel_assay.corpus.process.channel import Channel
from kernel_assay.kernels.backends.support.guard import Guarded
from kernel_assay.kernels.sandbox import worker_pool
from kernel_assay.kernels.worker import executor, host, worker, zygote

FOLDER = "BENCH_CLOCK"
"""Environment variable: where workers leave their sums."""


class Clock:
    """Seconds by phase, exclusive."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stack: list[str] = []
        self._since = time.perf_counter()

    def _charge(self) -> None:
        now = time.perf_counter()
        phase = self._stack[-1] if self._stack else "everything else"
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now

    def read(self) -> dict[str, float]:
        self._charge()
        return dict(self.seconds)

    def wrap(self, owner: Any, name: str, phase: str, after: Callable[[], None] | None = None) -> None:
        """Charge what owner.name takes to a phase."""
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            self._stack.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._stack.pop()
                if after:
                    after()

        setattr(owner, name, timed)


def watch_workers(folder: Path) -> None:
    """For sandboxes started from here on."""
    os.environ[FOLDER] = str(folder)
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    usual = child.command_of

    def command_of(
        module: str, *arguments: str, python: str = "", lent: Mapping[str, str] = MappingProxyType({})
    ) -> list[str]:
        if module != worker_pool.ZYGOTE or python:
            return usual(module, *arguments, python=python, lent=lent)
        return [sys.executable, "-c", "import sys, _clock; del sys.path[0]; _clock.main()", *arguments]

    child.command_of = command_of


def main() -> None:
    """Be a zygote whose workers are watched."""
    watch_worker()
    zygote.main()


def watch_worker() -> None:
    clock = Clock()
    batches = 0

    def leave() -> None:
        nonlocal batches
        batches += 1
        if batches % 8 == 0:
            path = Path(os.environ[FOLDER]) / str(os.getpid())
            path.with_suffix(".tmp").write_text(json.dumps(clock.read()))
            path.with_suffix(".tmp").replace(path)

    clock.wrap(Channel, "receive", "wait for work + parse")
    clock.wrap(Case, "model_validate", "validate")
    clock.wrap(host.HostSetting, "__init__", "materialize")
    for name in ("__init__", "reset", "intact", "damage"):
        clock.wrap(Guarded, name, "memory")
    clock.wrap(executor.Setting, "arguments", "wrap arguments")
    clock.wrap(executor.Executor, "once", "run")
    clock.wrap(executor, "compared", "compare")
    clock.wrap(worker.Worker, "_note", "journal")
    clock.wrap(worker.Worker, "_send", "send")
    clock.wrap(worker.Worker, "_batch", "everything else", leave)


def worker_seconds(folder: Path) -> dict[str, float]:
    """The sums of all workers."""
    total: dict[str, float] = {}
    for path in folder.iterdir():
        if path.suffix != ".tmp":
            for phase, seconds in json.loads(path.read_text()).items():
                total[phase] = total.get(phase, 0.0) + seconds
    return total
