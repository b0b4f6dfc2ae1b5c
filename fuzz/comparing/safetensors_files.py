"""The layout of safetensors: eight bytes that say how long the header is, a header in JSON, and the data behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.fuzz.comparing.tensors import SAFETENSORS, Tensor, fits, from_file, stored_as

_LONGEST = 100_000_000
"""Bytes of a header, as the format has it."""
_CODES = {name: code for code, name in SAFETENSORS.items()}


def bytes_of(tensors: Mapping[str, Array]) -> bytes:
    """The file of some tensors, of dtypes that the format has a name for."""
    header, parts, end = dict[str, Any](), list[bytes](), 0
    for name, values in tensors.items():
        parts.append(values.tobytes())
        begin, end = end, end + len(parts[-1])
        header[name] = {"dtype": _CODES[values.dtype.name], "shape": values.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begin where elements of any type may
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def tensors_of(path: Path) -> list[Tensor]:
    """The tensors of a file, in the order in which they lie. Raises UsageError if its header is no true one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST):
            raise UsageError("it is no safetensors file, or was cut off: it ends within its header")
        header = _parsed(file.read(length))
    begin = 8 + length
    found = sorted((_entry(name, entry) for name, entry in header.items()), key=lambda one: one[3:])
    ends = [0, *(edge for *_, low, high in found for edge in (low, high)), size - begin]
    if any(a > b for a, b in pairwise(ends)):
        raise UsageError("its tensors overlap, or lie beyond the end of the file: it was cut off, or its header lies")
    return [
        Tensor(name, shape, dtype, from_file(path, begin + low, stored_as(dtype)))
        for name, shape, dtype, low, _ in found
    ]


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise UsageError("its header is no JSON") from error
    if not isinstance(header, dict):
        raise UsageError("its header is no JSON object")
    header.pop("__metadata__", None)
    return header


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UsageError("its header names something twice")
    return found


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...], str, int, int]:
    """Name, shape, dtype, begin and end of a tensor."""
    try:
        shape, (low, high) = tuple(entry["shape"]), entry["data_offsets"]
        kind = str(entry["dtype"])
        sound = all(type(n) is int and n >= 0 for n in (*shape, low, high))
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UsageError(f"the header says no shape, dtype and place of {name!r} that can be")
    if kind not in SAFETENSORS:
        raise UsageError(
            f"{name!r} is of type {kind}, which is not compared; the known ones are {', '.join(SAFETENSORS)}"
        )
    dtype = SAFETENSORS[kind]
    try:
        fits(shape, stored_as(dtype).itemsize, high - low)
    except UsageError as error:
        raise UsageError(f"{name!r}: {error}") from error
    return name, shape, dtype, low, high
