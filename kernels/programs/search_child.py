"""The process that searches the inputs of a kernel: closed in before a person's file is read or a kernel runs."""

from __future__ import annotations

import os

from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent
from kernel_assay.kernels.worker.enclosure import Enclosure


def begin(settings: Message) -> tuple[Message, Answer]:
    """Close in, load the kernel and the inputs, and answer with a search, or one launch. Raises UsageError."""
    if settings["enclosure"]:
        Enclosure(**settings["enclosure"]).close_in()
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = settings["scratch"]
    # Only now: a process of several threads cannot be closed in, and libraries start some.
    from kernel_assay.kernels.programs.kernel_search import answer_of  # noqa: PLC0415

    return {}, answer_of(settings)


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)
