"""One case by one subject in Python's debugger: in this very process, whose terminal is the person's.

Its arguments are an Order (kernels/nvidia/run_once.py) and a file of Stops as JSON.
"""

from __future__ import annotations

import sys
from bdb import BdbQuit
from contextlib import suppress
from pathlib import Path
from pdb import Pdb
from typing import Any

from pydantic_core import from_json

from kernel_assay.corpus.model.kinds import Status
from kernel_assay.kernels.nvidia.run_once import Order, answer
from kernel_assay.kernels.worker.exceptions import SubjectError
from kernel_assay.kernels.worker.executor import Executor


def main() -> None:
    """Run the order, and stop where the second file says: [[FILE, LINE, FUNCTION or null], ...] and commands."""
    said: dict[str, Any] = from_json(Path(sys.argv[2]).read_bytes())

    def calling(order: Order, executor: Executor) -> None:
        debugger = Pdb(readrc=not said["commands"])
        for file, line, function in said["stops"]:
            debugger.set_break(file, line, funcname=function)
        debugger.cmdqueue += said["commands"]
        debugger.reset()
        debugger.botframe = sys._getframe()  # noqa: SLF001  so that it goes on up to the first stop
        debugger.set_continue()
        sys.settrace(debugger.trace_dispatch)
        try:
            order.call(executor)
        except SubjectError as error:
            if not isinstance(error.cause, BdbQuit):
                raise
        finally:
            sys.settrace(None)

    def tell(status: str, message: str) -> None:
        if status != Status.OK:  # else the person has seen it
            sys.stdout.write(f"\n{status}: {message}\n")

    with suppress(KeyboardInterrupt):
        sys.exit(answer(sys.argv[1:2], calling, tell))
