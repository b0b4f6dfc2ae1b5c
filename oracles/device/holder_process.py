"""The oracle's process for large cases: a message for each thing that it is given, or asked about (holder.py)."""

from __future__ import annotations

import os
from collections.abc import Callable

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import Answer, serve_parent
from kernel_assay.oracles.device.holder import Holder, Key

_ANSWERS: dict[str, Callable[[Holder, list[Key], Message], Message]] = {
    "take": lambda holder, keys, m: holder.take(keys[0], m["offer"]),
    "refer": lambda holder, _, m: holder.refer(_case(m)),
    "algebra": lambda holder, _, m: holder.algebra(_case(m), Subject.model_validate(m["subject"])),
    "suspects": lambda holder, keys, m: holder.suspects(keys[0], keys[1], m["room"]),
    "measured": lambda holder, keys, _: holder.measured(keys[0], keys[1]),
    "unwritten": lambda holder, keys, m: {"pattern": holder.unwritten(keys[0], m["first"], m["count"])},
}
"""Word of a message -> what is done about it."""


def _case(message: Message) -> Case:
    return Case.model_validate(message["case"])


def answer(holder: Holder, message: Message, memory: int) -> Message:
    """Do what a message says. memory: a file that values are left in."""
    keys = [(subject, name) for subject, name in message.get("keys", ())]
    if message["word"] == "values":
        return {"bytes": _left(memory, holder.take_some(keys[0], message["of"], message["along"]))}
    if message["word"] == "forget":
        holder.forget()
        return {}
    return _ANSWERS[message["word"]](holder, keys, message)


def _left(memory: int, values: Array) -> int:
    """Write values to the beginning of a file; how many bytes that are."""
    data, at = memoryview(values.tobytes()), 0
    while at < len(data):
        at += os.pwrite(memory, data[at:], at)
    return len(data)


def begin(settings: Message) -> tuple[Message, Answer]:
    """Make the holder."""
    holder = Holder(settings["device"])
    return {"ready": True}, lambda message: answer(holder, message, settings["memory"])


def main() -> None:
    """Entry of the process."""
    serve_parent(begin)


if __name__ == "__main__":
    main()
