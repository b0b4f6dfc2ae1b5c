"""Workers as tasks of a Ray cluster: as many as there is work for, each with a processor or a GPU of some node.

Each is a worker (worker.py) that ends when nothing waits any more. A node that is lost takes leases along: they run
out, and the server queues their tasks again. What this process hears of nodes are sentences, and nothing else.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.campaign.cluster import handlers_kept, joined
from kernel_assay.fuzz.service.client import AwayError, Client
from kernel_assay.fuzz.service.protocol import Waiting
from kernel_assay.fuzz.service.work.slot import forget_variables
from kernel_assay.fuzz.service.work.worker import STOP_SECONDS, Order, Worker, pauses
from kernel_assay.kernels.environment import gpus

Device = Literal["cpu", "cuda"]
RESOURCES: dict[Device, str] = {"cpu": "CPU", "cuda": "GPU"}
"""What Ray calls them."""
IDLE_SECONDS = 10.0
"""For which a task without work keeps its processor: what comes then finds it warm."""
SETTLE_SECONDS = 3.0
"""Between two looks at what waits: so long a task takes to begin, and to lease."""
END_SECONDS = STOP_SECONDS + 6.0
"""For tasks to hand back what is under way."""


def work(order: Order) -> str:
    """Be a worker on this node until nothing waits any more; a sentence on what was in the way, if anything was."""
    node, settings = platform.node(), order.settings
    if __version__ != order.version:
        return f"node {node} has version {__version__} of this tool, and not {order.version}"
    if settings.gpu_only:
        settings = replace(settings, devices=tuple(name for name, _ in gpus()[:1]) or ("a GPU",))
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    forget_variables()
    try:
        Worker(Client(order.server, order.token), settings, order.checkouts(agent)).run()
    except UsageError as error:
        return f"node {node}: {error}"
    return ""


@dataclass
class RayEngine:
    """Starts tasks while anything waits at the server."""

    address: str
    order: Order
    most: int = 0
    """Tasks at a time for each device; 0: as many as the cluster has processors, or GPUs."""
    say: Callable[[str], None] = lambda _: None
    ending: threading.Event = field(default_factory=threading.Event)
    _running: dict[Any, tuple[Device, str]] = field(default_factory=dict)
    """By the promise of its end: what a task has, and its worker's name."""

    def run(self) -> None:
        """Work until `end`. Raises UsageError if there is no such cluster, or the server refuses the token."""
        ray = joined(self.address)
        try:
            with Client(self.order.server, self.order.token) as client:
                self.say(f"tasks of the Ray cluster {self.address} work for {self.order.server}")
                self._serve(ray, client)
        finally:
            self._stop(ray)

    def end(self) -> None:
        """Hand back what is under way, and end; for a handler of signals, too."""
        self.ending.set()

    def _serve(self, ray: Any, client: Client) -> None:
        waits, kinds = pauses(), self.order.settings.kinds
        while not self.ending.is_set():
            try:
                if client.waiting(kinds, wait=SETTLE_SECONDS) != Waiting():
                    self.ending.wait(0.3)  # a task that is idle may take it
                    self._begin(ray, client.waiting(kinds))
            except AwayError as error:
                self.say(str(error))
                self.ending.wait(next(waits))
                continue
            if self._harvest(ray):
                self.ending.wait(next(waits))
            else:
                waits = pauses()

    def _begin(self, ray: Any, waiting: Waiting) -> None:
        """Start as many tasks as may do what waits, and leave them time to take it."""
        room = self._room(ray)
        for device in RESOURCES:
            for _ in range(min(room[device], getattr(waiting, device))):
                self._start(ray, device)
        if waiting != Waiting():
            self.ending.wait(SETTLE_SECONDS)

    def _room(self, ray: Any) -> dict[Device, int]:
        """How many more tasks there may be."""
        there = ray.cluster_resources()
        taken = [device for device, _ in self._running.values()]
        return {d: max(0, (self.most or int(there.get(RESOURCES[d], 0))) - taken.count(d)) for d in RESOURCES}

    def _start(self, ray: Any, device: Device) -> None:
        settings, names = self.order.settings, {name for _, name in self._running.values()}
        name = next(name for n in count() if (name := f"{settings.name}-{n}") not in names)
        on_gpu = device == "cuda"
        mine = replace(settings, name=name, gpu_only=on_gpu, idle_seconds=IDLE_SECONDS)
        needs = {"num_cpus": 1, "num_gpus": int(on_gpu), "max_retries": 0}  # the server counts what goes wrong
        task = ray.remote(work).options(**needs, scheduling_strategy="SPREAD", name=f"kassay {name}")
        self._running[task.remote(replace(self.order, settings=mine))] = device, name

    def _harvest(self, ray: Any) -> bool:
        """Forget the tasks that have ended; whether any did by a mishap."""
        running = list(self._running)
        ended, _ = ray.wait(running, num_returns=len(running), timeout=0) if running else ([], running)
        found = [why for why in (self._result(ray, one, self._running.pop(one)[1]) for one in ended) if why]
        for why in dict.fromkeys(found):
            self.say(why)
        return bool(found)

    def _result(self, ray: Any, task: Any, name: str) -> str:
        try:
            return str(ray.get(task))
        except ray.exceptions.RayTaskError as error:
            return f"{name}: the node cannot work: {' '.join(str(error.cause or error).split())[-300:]}"
        except ray.exceptions.RayError as error:
            why = type(error).__name__
            return f"{name}: its node or process is lost ({why}); what it had is queued again within a minute"

    def _stop(self, ray: Any) -> None:
        """Have all tasks hand back what they have, and leave the cluster."""
        for task in self._running:
            ray.cancel(task)
        if self._running:
            ray.wait(list(self._running), num_returns=len(self._running), timeout=END_SECONDS)
        with handlers_kept():
            ray.shutdown()
