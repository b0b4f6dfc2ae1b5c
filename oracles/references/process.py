"""The process that runs a user's reference, and what it is asked.

It is started for one reference, which may do to it what it likes; the judge reads shapes and numbers from it, no more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent
from kernel_assay.corpus.process.inert_tests import stand_in
from kernel_assay.oracles.references.differences import compared
from kernel_assay.oracles.references.host import Host, Refused
from kernel_assay.oracles.references.loading import said_of


def answer(host: Host, message: Message) -> Message:
    """Answer for some cases; numbers are left in the file, one array behind the other."""
    numerics = Numerics.model_validate(message["numerics"])
    replies: list[Message] = []
    at = 0
    for said in message["cases"]:
        try:
            want, spans = host.answer(Case.model_validate(said), numerics)
        except (Refused, UsageError) as refused:
            replies.append({"refused": str(refused)})
            continue
        shapes = {name: list(array.shape) for name, array in want.items()}
        begin, at = at, _left(host.memory, at, [x for n in want for x in (want[n], *spans[n])])
        reply: Message = {"shapes": shapes, "at": begin, "positions": {}, "unjudged": host.unjudged}
        for name, (axis, low, high) in host.positions.items():
            reply["positions"][name] = {"axis": axis, "shape": list(low.shape), "at": at}
            at = _left(host.memory, at, [low, high])
        replies.append(reply)
    return {"answers": replies, "bytes": at, "unfollowed": sorted(host.unfollowed)}


def native(host: Host, said: Message) -> Message:
    """Run the reference itself on a case; its outputs are left in the file."""
    try:
        made = host.native(Case.model_validate(said))
    except (Refused, UsageError) as refused:
        return {"refused": str(refused)}
    _left(host.memory, 0, [*made.values()])
    return {"shapes": {name: list(array.shape) for name, array in made.items()}}


def differences(host: Host, cases: Sequence[Message]) -> Message:
    """Compare gradients with finite differences, in some cases."""
    assert host.derived is not None
    found: list[Message] = []
    for said in cases:
        case = Case.model_validate(said)
        try:
            found.append(compared(host.derived, host.contract.dims_of(case), materialize_all(case), case.attrs))
        except (Exception, SystemExit) as error:  # noqa: BLE001  a user's own code
            found.append({"refused": said_of(error, host.loaded.file)})
    return {"found": found}


def _left(memory: int, at: int, arrays: Sequence[Array]) -> int:
    """Write arrays as float64; where the next one begins."""
    for array in arrays:
        data = np.ascontiguousarray(array, np.float64).tobytes()
        written = 0
        while written < len(data):
            written += os.pwrite(memory, data[written:], at + written)
        at += len(data)
    return at


def begin(settings: Message) -> tuple[Message, Answer]:
    """Describe the reference. Raises UsageError for one that cannot be used."""
    stand_in()
    host = Host(settings["place"], settings["folder"], settings["memory"])

    def reply(message: Message) -> Message:
        if "native" in message:
            return native(host, message["native"])
        return differences(host, message["differences"]) if "differences" in message else answer(host, message)

    return host.message(), reply


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)
