"""The oracle's process of a proof over billions of inputs: what a subject left is read, and computed anew."""

from __future__ import annotations

import mmap

import numpy as np

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent
from kernel_assay.oracles.device.sweep import HostJudge, Judge


def begin(settings: Message) -> tuple[Message, Answer]:
    """Open the memory that the subject writes to, and what judges it part after part."""
    shared = np.frombuffer(mmap.mmap(settings["memory"], settings["bytes"]), np.uint8)
    numerics = Numerics.model_validate(settings["numerics"])
    judge: Judge = HostJudge(shared, numerics)
    opened = False
    if settings["device"] != "cpu":
        from kernel_assay.oracles.device.sweep_gpu import DeviceJudge  # noqa: PLC0415  the driver is asked for on a GPU only

        judge = DeviceJudge(shared, numerics, bytes.fromhex(settings["handle"]))
        opened = judge.opened

    def answer(message: Message) -> Message:
        found = judge.judge(Case.model_validate(message["case"]))
        return {"failed": found.failed, "listed": found.listed, "rho": found.rho}

    return {"opened": opened}, answer


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)


if __name__ == "__main__":
    main()
