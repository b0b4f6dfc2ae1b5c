"""The oracle's process of a proof over billions of inputs: what a subject left is read, and computed anew."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.process.channel import Message, Wire, answer_parent
from kernel_assay.oracles.device.sweep import HostJudge, Judge


def serve(wire: Wire, settings: dict[str, Any]) -> None:
    """Judge part after part until the wire is closed."""
    shared = np.frombuffer(mmap.mmap(settings["memory"], settings["bytes"]), np.uint8)
    numerics = Numerics.model_validate(settings["numerics"])
    judge: Judge = HostJudge(shared, numerics)
    opened = False
    if settings["device"] != "cpu":
        from kernel_assay.oracles.device.sweep_gpu import DeviceJudge  # noqa: PLC0415  the driver is asked for on a GPU only

        judge = DeviceJudge(shared, numerics, bytes.fromhex(settings["handle"]))
        opened = judge.opened
    wire.send({"opened": opened})
    while True:
        try:
            message: Message = wire.receive()
        except EOFError:
            return
        found = judge.judge(Case.model_validate(message["case"]))
        wire.send({"failed": found.failed, "listed": found.listed, "rho": found.rho})


def main() -> None:
    """Entry of the process."""
    answer_parent(serve)


if __name__ == "__main__":
    main()
