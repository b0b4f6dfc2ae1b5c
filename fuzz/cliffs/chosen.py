"""The choice of kernels whose cliffs are looked for, and of the baseline of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.selection import (
    DEFAULT_PEERS,
    UserKernels,
    claims,
    of_described_dtype,
    only_dtypes,
    placed,
    runnable,
)
from kernel_assay.fuzz.checking.subjects import is_emulated, takes
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts

BUILT_IN = "builtin:"
"""What a name begins with that is no file's."""


def chosen(op: str, own: UserKernels, dtypes: Sequence[str], device: str) -> list[Subject]:
    """The kernels, on a device: those that are named, files or built-in ones; else all built-in ones that are there.

    Raises UsageError for what cannot be found, or does not run there, and for kernels that an emulator runs: how long
    that takes says nothing of a GPU.
    """
    if device.endswith(":all"):
        raise UsageError("cliffs are those of one device; name it, as --device cuda:0")
    if op:
        contract_of(op)
    found = _named(op, own) if own.files else [s for s in runnable(op) if not s.planted] if op else []
    if not found:
        raise UsageError("name a kernel, as --subject my_kernel.py, or an op with built-in implementations")
    there = placed(only_dtypes([of_described_dtype(s) for s in found], dtypes), device)
    kind = places_of(device)[0].device
    timed = [s for s in there if s.device == kind and not is_emulated(s)]
    if (own.files and len(timed) < len(found)) or not timed:
        left = next((s for s in there if s not in timed), found[0])
        why = "is emulated on the CPU, and its times there say nothing" if is_emulated(left) else "does not run"
        raise UsageError(f"{left.key} {why} on device {device!r}; name another with --device")
    return timed


def _named(op: str, own: UserKernels) -> list[Subject]:
    names = [text.removeprefix(BUILT_IN) for text in own.files if text.startswith(BUILT_IN)]
    files = replace(own, files=[text for text in own.files if not text.startswith(BUILT_IN)])
    house = {s.name: s for s in subjects_of(op)} if op else {}
    if lost := next((name for name in names if name not in house), None):
        raise UsageError(
            f"{op or 'no op'} has no built-in implementation {lost!r}; it has {', '.join(house) or 'none'}"
        )
    ops = [op] if op else [c.name for c in load_contracts().values() if c.elsewhere is not None]
    return [*(house[name] for name in names), *(files.subjects(ops) if files.files else ())]


def dtype_of(subject: Subject) -> str:
    """The plainest dtype that it takes."""
    return next(dtype for dtype in contract_of(subject.op).dtypes if takes(subject, dtype))


def usual_baseline(subject: Subject, device: str) -> Subject | None:
    """Somebody else's implementation of the op, a library's if there is one, on the same device; None: there is none.

    It calls another library than the subject: two callers of one function have the same cliffs.
    """
    others = (s for b in DEFAULT_PEERS for s in runnable(subject.op) if s.backend == b != subject.backend)
    clean = sorted((s for s in others if not s.planted and takes(s, dtype_of(subject))), key=claims)
    there = placed(clean, device) if clean else []
    return next((s for s in there if s.device == subject.device), None)
