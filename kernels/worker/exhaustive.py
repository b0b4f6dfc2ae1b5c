"""The process of a subject that is tried on billions of inputs: what it makes stays where the judge can read it.

It is told a part of all inputs at a time, makes them itself, runs the subject and says that it is done, or why not. The
outputs lie in memory that another process maps: of the host, or of the GPU (kernels/worker/resident.py). It never
judges.
"""

from __future__ import annotations

import mmap
import time
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import Message, Wire, answer_parent
from kernel_assay.kernels.backends.support.signature import Bound, Interface
from kernel_assay.kernels.worker.stages import Host, Stage

_perf_counter_ns = time.perf_counter_ns
"""The clock as it was before a subject could put another in its place."""


def place_of(subject: Subject, shared: Array) -> Stage:
    """The stage on which a subject runs."""
    if subject.device == "cpu":
        return Host(shared, subject.loader)
    from kernel_assay.kernels.worker.resident import Resident  # noqa: PLC0415  torch is imported on a GPU only

    return Resident(shared, subject)


def outcome(place: Stage, bound: Bound, message: Message) -> Message:
    """Run the subject once: what became of it, and how long it took."""
    attrs, output = message["attrs"], TensorSpec.model_validate(message["output"])
    if why := bound.declines(attrs):
        return {"status": Status.UNSUPPORTED, "message": why}
    place.poison(message["poison"], output)
    start = _perf_counter_ns()
    try:
        place.call(bound, attrs, output)
    except NotImplementedError as error:
        return {"status": Status.UNSUPPORTED, "message": str(error)}
    except Exception as error:  # noqa: BLE001  whatever a subject raises
        return {"status": Status.RAISED, "message": f"{type(error).__name__}: {error}"[:500]}
    took = _perf_counter_ns() - start
    if message["fetch"]:
        place.fetch(output)
    return {"status": Status.OK, "message": "", "nanoseconds": took}


def serve(wire: Wire, settings: dict[str, Any]) -> None:
    """Load the subject, say so, and run it on part after part until the wire is closed."""
    subject = Subject.model_validate(settings["subject"])
    shared = np.frombuffer(mmap.mmap(settings["memory"], settings["bytes"]), np.uint8)
    try:
        place = place_of(subject, shared)
        bound = place.load(subject, Interface.read(settings["face"]))
    except UsageError as error:
        wire.send({"refused": str(error)})
        return
    wire.send({"handle": place.handle.hex()})
    while True:
        try:
            message = wire.receive()
        except EOFError:
            return
        if message["fresh"]:
            place.fill(Case.model_validate(message["case"]))
        wire.send(outcome(place, bound, message))


def main() -> None:
    """Entry of the process."""
    answer_parent(serve)


if __name__ == "__main__":
    main()
