"""One GPU for several processes at once, by NVIDIA's Multi-Process Service (MPS).

Processes that use a GPU take turns on it, and each turn costs the same, however small the kernel is: 7,300 launches a
second are all that an H200 does for them together. As clients of the service they share one context, and it does 40
times as many. The price: an error after which nothing runs any more ends all clients, the innocent, too. So nobody is
accused of what happens to a client (kernels/sandbox/sandbox.py): it is tried again by a worker that takes turns, and a
sandbox that has lost a client does without the service for a while.

Source: NVIDIA, "Multi-Process Service", sections "Memory Protection and Error Containment" and "terminate_client".
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from kernel_assay.corpus.process.child import start
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.kernels.boundary.devices import PIPES, VISIBLE, Place

CONTROL = "nvidia-cuda-mps-control"
"""The program that starts the service, and talks to it."""
_LOGS = "CUDA_MPS_LOG_DIRECTORY"
_START_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
AWAY_SECONDS = 2.0
"""How long a sandbox that has lost a client does without the service; four times as long after each further loss."""
_LONGEST_SECONDS = 600.0


class Sharing:
    """Whether the next worker of a sandbox shares its GPU."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """environment: what makes a process a client; empty: there is no service."""
        self.environment = environment
        self._losses, self._after = 0, 0.0

    @property
    def wanted(self) -> bool:
        """Whether there is a service, and no client was lost lately."""
        return bool(self.environment) and time.monotonic() >= self._after

    def lose(self) -> None:
        """A client has died, or had to be killed: the service takes nobody until all others are gone."""
        self._after = time.monotonic() + min(_LONGEST_SECONDS, AWAY_SECONDS * 4**self._losses)
        self._losses += 1


class Service:
    """The service for one GPU, for this process and those that are told."""

    def __init__(self, place: Place) -> None:
        """Starts it. Raises OSError if it does not start."""
        self._scratch = Scratch("mps-")
        folders = {PIPES: str(self._scratch.path / "pipes"), _LOGS: str(self._scratch.path / "logs")}
        for folder in folders.values():
            Path(folder).mkdir()
        self.environment = {**folders, VISIBLE: "0"}
        """What makes a process a client: it sees the service's only GPU."""
        null, environment = subprocess.DEVNULL, {**place.environment, **folders}
        self._process = start("corpus.process.parent_death", CONTROL, "-f", environment=environment, out=null, err=null)
        deadline = time.monotonic() + _START_SECONDS
        while _told(self.environment, "get_server_list") is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise OSError("the Multi-Process Service does not start")
            time.sleep(0.02)

    def close(self) -> None:
        """End it; its clients should have ended."""
        _told(self.environment, "quit -t 1")
        try:
            self._process.wait(_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._scratch.close()


def side_by_side(places: Sequence[Place], stack: ExitStack) -> list[Place]:
    """The same places; those that are on one GPU share it, if that can be had. stack: ends what was started."""
    if not shutil.which(CONTROL):
        return list(places)
    found: list[Place] = []
    for place in places:
        known = next((p for p in found if (p.device, p.environment) == (place.device, place.environment)), None)
        if known is None and place.device == "cuda" and places.count(place) > 1:
            with contextlib.suppress(OSError):
                service = Service(place)
                stack.callback(service.close)
                known = replace(place, shared=service.environment)
        found.append(known or place)
    return found


def terminate(environment: Mapping[str, str], pid: int) -> None:
    """End what a client has running on the GPU, without harm to the others: if it is simply killed, all are.

    environment: what has made it a client.
    """
    for server in (_told(environment, "get_server_list") or "").split():
        _told(environment, f"terminate_client {server} {pid}")


def _told(environment: Mapping[str, str], command: str) -> str | None:
    """The answer of the service; None if there is none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [CONTROL],
            env={**os.environ, **environment},
            input=command + "\n",
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
        return answer.stdout if answer.returncode == 0 else None
    return None
