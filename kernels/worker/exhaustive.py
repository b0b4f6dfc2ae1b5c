"""The process of a subject that is tried on billions of inputs: what it makes stays where the judge can read it.

It is told a part of all inputs at a time, makes them itself, runs the subject and says that it is done, or why not. The
outputs lie in memory that another process maps: of the host, or of the GPU. It never judges.
"""

from __future__ import annotations

import mmap
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.worker.enclosure import Enclosure
from kernel_assay.kernels.worker.exceptions import SubjectError
from kernel_assay.kernels.worker.executor import Access, Executor
from kernel_assay.kernels.worker.host import HostAccess
from kernel_assay.kernels.worker.open_memory import OpenMemory


class OpenAccess(HostAccess):
    """Subjects on the host, each call of which is like any other: no order of threads is chosen for it."""

    def prepare(self, memory: Any, case: Case, run: int, order: int) -> None:
        """Leave the loader as it is."""

    def free_memory(self, specs: dict[str, TensorSpec], run: int) -> AbstractContextManager[None]:
        """Leave it as it is: there would be as much to fill as the subject writes."""
        del specs, run
        return nullcontext()


def place_of(subject: Subject, shared: Array) -> tuple[OpenMemory, Access]:
    """The memory that a subject works on, and how it is called there. Raises UsageError if it cannot be."""
    loader = loader_of(subject.loader)
    loader.preload()
    if subject.device == "cpu":
        return OpenMemory(shared), OpenAccess(loader)
    # torch is imported on a GPU only
    from kernel_assay.kernels.worker.device import DeviceAccess  # noqa: PLC0415
    from kernel_assay.kernels.worker.open_gpu_memory import OpenGpuMemory  # noqa: PLC0415

    return OpenGpuMemory(shared), DeviceAccess(loader, "cuda")


def outcome(executor: Executor, memory: OpenMemory, run: int, *, fetch: bool) -> Message:
    """Run the subject once: what became of it, and how long it took."""
    if why := executor.declined:
        return {"status": Status.UNSUPPORTED, "message": why}
    try:
        answer, took = executor.call(run, 0)
        if executor.bound.returns:
            memory.keep(executor.access.returned(answer))
    except SubjectError as error:
        return executor.not_returned(error.cause)
    except Exception as error:  # noqa: BLE001  what it returned is the subject's, too
        return executor.not_returned(error)
    if fetch:
        memory.fetch()
    return {"status": Status.OK, "message": "", "nanoseconds": took}


def begin(settings: Message) -> tuple[Message, Answer]:
    """Load the subject, closed in where that is wanted and possible. Raises UsageError if it cannot be loaded."""
    if settings["enclosure"]:
        Enclosure(**settings["enclosure"]).close_in()
    subject = Subject.model_validate(settings["subject"])
    shared = np.frombuffer(mmap.mmap(settings["memory"], settings["bytes"]), np.uint8)
    memory, access = place_of(subject, shared)
    bound = access.bound(subject, Interface.read(settings["face"]))
    executor: Executor | None = None

    def answer(message: Message) -> Message:
        nonlocal executor
        if executor is None or message["run"] == 0:
            case, output = Case.model_validate(message["case"]), TensorSpec.model_validate(message["output"])
            executor = Executor(memory.fill(case, output), access, bound)
        return outcome(executor, memory, message["run"], fetch=message["fetch"])

    return {"handle": memory.handle.hex()}, answer


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)


if __name__ == "__main__":
    main()
