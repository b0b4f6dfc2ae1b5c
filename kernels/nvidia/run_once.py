"""One case by one subject in this very process, without a sandbox: for tools that watch a program from outside.

The process gets one argument, a file, which holds an Order as JSON. The last line of the output is a JSON object that
says what happened (a Status, and in words), never what came out: nothing is judged here.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from pydantic_core import from_json, to_json

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import BLANK, address_of, exact
from kernel_assay.kernels.backends.support.signature import Bound, Interface
from kernel_assay.kernels.worker.exceptions import SubjectError, raised
from kernel_assay.kernels.worker.executor import Access, Executor
from kernel_assay.kernels.worker.host import HostAccess, HostSetting

_USAGE = 2


@dataclass(frozen=True, slots=True)
class Order:
    """An order to run a case by a subject."""

    case: Case
    outputs: dict[str, TensorSpec]
    subject: Subject
    face: Interface
    run: int = 0
    """Of the two runs of a case, as which it is run."""
    turn: int = -1
    """The number that chooses in which order threads run; -1: the case's own."""

    def write(self, path: Path) -> None:
        """Write the file that the command line names."""
        said = {"case": self.case, "outputs": self.outputs, "subject": self.subject, "face": asdict(self.face)}
        said |= {"run": self.run, "turn": self.turn}
        path.write_bytes(to_json(said, inf_nan_mode="strings"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read such a file. Raises UsageError if it is none."""
        try:
            said = from_json(path.read_bytes())
            outputs = {name: TensorSpec.model_validate(spec) for name, spec in said["outputs"].items()}
            case, subject = Case.model_validate(said["case"]), Subject.model_validate(said["subject"])
            return cls(case, outputs, subject, Interface.read(said["face"]), said["run"], said["turn"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is no order for one run ({type(error).__name__})") from error

    def call(self, executor: Executor) -> None:
        """Call the subject once. Raises SubjectError."""
        executor.call(self.run, self.case.number if self.turn < 0 else self.turn)


Calling = Callable[[Order, Executor], None]
"""How a subject is called, by whoever watches it from inside."""


def run(order: Order, calling: Calling = Order.call) -> tuple[Status, str]:
    """Run it; what happened, and why it did not run or how it failed in one line."""
    access = HostAccess(loader_of(order.subject.loader))
    try:
        bound = _bound(order, access)
    except UsageError as error:
        return Status.BUILD_FAILED, str(error)
    setting = HostSetting(order.case, order.outputs)
    executor = Executor(setting, access, bound, order.face.extra)
    if reason := executor.declined:
        return Status.UNSUPPORTED, reason
    if exact():
        BLANK.update(address_of(view) for view in setting.memory.tensors()[1])
    try:
        calling(order, executor)
    except SubjectError as error:
        said = raised(error.cause, access.loader)
        return said["status"], said["message"].partition("\n")[0]
    return Status.OK, ""


def _bound(order: Order, access: Access) -> Bound:
    """The subject, ready to be called. Raises UsageError if it cannot be."""
    subject = order.subject
    if why := access.loader.unavailable():
        raise UsageError(f"{subject.key} needs {subject.backend}, not available here, because {why}")
    access.loader.preload()
    return access.bound(subject, order.face)


def main() -> None:
    """Run the order whose file the command line names. Exit code 0 if it could be said what happened, else 2."""
    sys.exit(answer(sys.argv[1:]))


def _tell(status: str, message: str) -> None:
    sys.stdout.write(f"\n{json.dumps({'status': status, 'message': message})}\n")  # a subject may leave a line open


def answer(arguments: Sequence[str], calling: Calling = Order.call, tell: Callable[[str, str], None] = _tell) -> int:
    """The exit code; what happened is told, as JSON on standard output if nothing else is said."""
    try:
        if len(arguments) != 1:
            raise UsageError("name one file that holds an order")  # noqa: TRY301  said as all others are
        order = Order.read(Path(arguments[0]))
    except UsageError as error:
        sys.stderr.write(f"run_once: {error}\n")
        return _USAGE
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    status, message = run(order, calling)
    tell(status, message)
    return 0
