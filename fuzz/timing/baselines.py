"""Baselines: what a kernel is timed against, by the names that a command line has for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.reference_place import ReferencePlace, Target
from kernel_assay.corpus.model.subject import INPUT, Subject
from kernel_assay.fuzz.checking.selection import UserKernels, claims, placed
from kernel_assay.fuzz.checking.subjects import is_emulated
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import ROOT, read_subject, subjects_of
from kernel_assay.oracles.catalog import contract_of

_CALLS = ROOT / "baselines" / "torch_calls.py"
_NARROW = {"float16", "bfloat16"}
_BUILT_IN = "builtin:"
_ACTIVATION = "act"
Found = Sequence[Subject]


def baselines_of(op: str, names: Sequence[str], device: str) -> list[Subject]:
    """The baselines of an op on a device, in their order, each once.

    Raises UsageError for a name that is not known, and a baseline that the op has not, or that is not installed.
    """
    found = [subject for name in names for subject in _one(op, name, device)]
    return list({subject.key: subject for subject in found}.values())


def _one(op: str, name: str, device: str) -> list[Subject]:
    if name.startswith(_BUILT_IN):
        known = {s.name: s for s in subjects_of(op)}
        wanted = name.removeprefix(_BUILT_IN)
        if wanted not in known:
            raise UsageError(f"--baseline {name}: {op} has no such implementation; it has {', '.join(known) or 'none'}")
        return _here([known[wanted]], name, device)
    if name not in _KINDS:
        raise UsageError(f"--baseline {name} is not known; there are {', '.join(_KINDS)} and {_BUILT_IN}NAME")
    found = _KINDS[name](op, device)
    if not found:
        raise UsageError(f"--baseline {name}: there is none for {op}")
    return _here(found, name, device)


def _here(found: Found, name: str, device: str) -> list[Subject]:
    """The same on the device. Raises UsageError if one cannot run."""
    for subject in placed(found, device) or found:
        if why := loader_of(subject.loader).unavailable():
            raise UsageError(f"--baseline {name} is not available here, because {why}")
    return placed(found, device)


def clean(op: str, backend: str = "") -> list[Subject]:
    """Built-in implementations that are meant to be right, those with the usual arithmetic first."""
    found = [s for s in subjects_of(op) if not s.planted and backend in {"", s.backend}]
    return sorted(found, key=claims)


def _naive(op: str, device: str) -> Found:
    """The plainest implementation: in numpy, or on a GPU in CUDA C++."""
    if contract_of(op).origin:
        return _reference(op, device)
    found = clean(op, "numpy" if device == "cpu" else "cuda")
    return sorted(found, key=lambda s: s.name not in {"numpy_float32", "cuda_naive"})[:1]


def _torch(op: str, device: str) -> Found:
    """Torch's own function; where it sums 16 bits in its own way on a GPU, with what a built-in one claims of that."""
    if contract_of(op).origin:
        return _reference(op, device)
    if f"\ndef {op}(" not in _CALLS.read_text("utf-8"):
        return clean(op, "torch")[:1]
    numerics = clean(op, "torch")[0].numerics
    if _ACTIVATION in contract_of(op).intermediates:  # two calls, between which it is rounded
        numerics = numerics.but(intermediates={_ACTIVATION: INPUT})
    plain = read_subject(_CALLS, op=op, function=op).but(name="torch", numerics=numerics)
    if _is_product(op):  # of 8 bits torch has none that is called so
        plain = plain.but(dtypes=tuple(t for t in contract_of(op).dtypes if not t.startswith("float8")))
    narrow = next((s for s in clean(op, "torch") if set(s.dtypes) == _NARROW and claims(s)), None)
    if narrow is None or (device == "cpu" and op == "gemm"):
        return [plain]
    wide = tuple(t for t in plain.dtypes or contract_of(op).dtypes if t not in _NARROW)
    return [plain.but(dtypes=wide), plain.but(name="torch_half", numerics=narrow.numerics, dtypes=narrow.dtypes)]


def _is_product(op: str) -> bool:
    return bool(contract_of(op).product) or op == "gemv"


def _cublas(op: str, device: str) -> Found:
    """Products of torch on a GPU, which are cuBLAS's."""
    if device == "cpu":
        raise UsageError("--baseline cublas is a library of the GPU; name --device cuda, or --baseline torch")
    if not _is_product(op):
        raise UsageError(f"--baseline cublas: {op} is no product of matrices; name --baseline torch")
    return [s.but(name=s.name.replace("torch", "cublas")) for s in _torch(op, device)]


def _ggml(op: str, device: str) -> Found:
    """GGML's, which runs on the CPU."""
    if why := loader_of("ggml").unavailable():
        raise UsageError(f"--baseline ggml is not available here, because {why}")
    if device != "cpu":
        raise UsageError("--baseline ggml runs on the CPU only; leave out --device")
    return clean(op, "ggml")[:1]


def _reference(op: str, device: str) -> Found:
    """A reference of one's own, as it is."""
    del device
    place = ReferencePlace.read(contract_of(op).origin)
    if place is None:
        return []
    target = Target.read(place.target)
    if target.grad:
        raise UsageError(f"{op} is a gradient, which is no function that could be timed as a baseline")
    (found,) = UserKernels((f"{target.where}:{target.name}" if target.name else target.where,)).subjects([op])
    # As a file of ours: that it is the reference is no cheat of it.
    return [found.but(name="reference", path=os.path.relpath(found.path, ROOT.parent))]


_KINDS: dict[str, Callable[[str, str], Found]] = {
    "naive": _naive,
    "torch": _torch,
    "cublas": _cublas,
    "ggml": _ggml,
    "reference": _reference,
}


def usual(op: str, device: str) -> list[Subject]:
    """The baseline of a kernel of one's own if none is named: torch's, else the plainest; none if there is neither."""
    for name in ("torch", "naive"):
        try:
            return baselines_of(op, [name], device)
        except UsageError:
            continue
    return []


def built_in(op: str, device: str) -> list[Subject]:
    """Built-in implementations that are compiled where they run, not emulated."""
    there = placed(clean(op), device)
    here = [s for s in there if not loader_of(s.loader).unavailable() and s.device == _kind(device)]
    return [s for s in here if not (is_emulated(s) or loader_of(s.loader).interprets)]


def _kind(device: str) -> str:
    return device.partition(":")[0]
