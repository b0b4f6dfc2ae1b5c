"""Arrays as numpy saves them, and plain bytes: .npy, .npz, and files that say nothing of themselves."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.formats import FORMATS, Array
from kernel_assay.fuzz.comparing.tensors import Read, Tensor, fits, from_file, full_name, native, stored_as
from kernel_assay.reports.words import count

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_GARBLED: tuple[type[Exception], ...] = (ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, TokenError)
_GARBLED += (RecursionError, MemoryError, EOFError, AttributeError)
"""What numpy raises for one header or another that is none."""
_STEP = 1 << 20
"""Bytes that are passed over at a time."""


def parsed_raw(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`DTYPE` or `DTYPE:4096x4096`: the type, and the shape if there is one. Raises UsageError."""
    dtype, _, extents = text.partition(":")
    try:
        shape = tuple(int(n) for n in extents.split("x")) if extents else None
    except ValueError:
        shape = (-1,)
    if shape and min(shape) < 0:
        raise UsageError(f"{extents!r} is no shape; write it as in float16:4096x4096")
    return full_name(dtype), shape


def of_npy(path: Path, raw: str) -> list[Tensor]:
    """The array of a .npy file. Raises UsageError if its header is no true one."""
    with path.open("rb") as file:
        shape, stored, by_columns = _header(file)
        offset = file.tell()
    dtype = _named(stored, raw)
    fits(shape, stored.itemsize, path.stat().st_size - offset)
    if by_columns and 0 not in shape:
        return [Tensor(path.stem, shape, dtype, _by_columns(path, offset, stored, shape))]
    return [Tensor(path.stem, shape, dtype, from_file(path, offset, _typed(stored, dtype)))]


def of_npz(path: Path, raw: str) -> list[Tensor]:
    """The arrays of a .npz file, compressed or not. Raises UsageError."""
    with _zipped(), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        return [_member(path, archive, info, raw) for info in members]


def of_raw(path: Path, raw: str) -> list[Tensor]:
    """The elements of a file that is nothing else. Raises UsageError if it is not told what they are."""
    if not raw:
        raise UsageError(
            "its name does not end in .safetensors, .npy, .npz, .pt or .pth; for plain elements say what they are, as "
            "in --raw float16:4096x4096"
        )
    dtype, shape = parsed_raw(raw)
    stored = stored_as(dtype)
    held = path.stat().st_size
    if shape is None and held % stored.itemsize:
        raise UsageError(f"its {count(held, 'byte')} are no whole number of elements of {dtype}")
    shape = (held // stored.itemsize,) if shape is None else shape
    fits(shape, stored.itemsize, held)
    return [Tensor(path.stem, shape, dtype, from_file(path, 0, stored))]


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Shape, dtype and whether columns lie one behind another."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise UsageError(f"it is a .npy file of version {'.'.join(map(str, version))}; 1.0 and 2.0 are known")
        length = file.read(2 * version[0])
        text = file.read(min(int.from_bytes(length, "little"), _STEP))
        # Numpy writes <f1 for float8_e5m2, and cannot read it.
        shape, by_columns, stored = _HEADERS[version](BytesIO(length + text.replace(b"'<f1'", b"'|V1'")))
    except _GARBLED as error:
        raise UsageError("it is no .npy file, or was cut off: it has no header that can be read") from error
    if any(n < 0 for n in shape):
        raise UsageError(f"its header says that its shape is {list(shape)}")
    return shape, stored, by_columns and len(shape) > 1


def _named(stored: np.dtype[Any], raw: str) -> str:
    """The full name of a type as numpy stores it; of bfloat16 and float8 it keeps only how wide they are."""
    if stored.kind == "V" and stored.names is None and stored.subdtype is None:
        dtype = parsed_raw(raw)[0] if raw else ""
        if not dtype or stored_as(dtype).itemsize != stored.itemsize:
            wide = f"it holds elements of {count(stored.itemsize, 'byte')} and not their type"
            fitting = [
                name for name, f in FORMATS.items() if (f.dtype.itemsize, f.dtype.isbuiltin) == (stored.itemsize, 2)
            ]
            raise UsageError(
                f"{wide}; {f'say it, as in --raw {fitting[0]}' if fitting else 'no known type has so many'}"
            )
        return dtype
    return full_name(stored.name)


def _typed(stored: np.dtype[Any], dtype: str) -> np.dtype[Any]:
    return stored_as(dtype) if stored.kind == "V" else stored


def _by_columns(path: Path, offset: int, stored: np.dtype[Any], shape: tuple[int, ...]) -> Read:
    dtype = np.dtype(f"u{stored.itemsize}")

    def read(low: int, high: int) -> Array:
        whole = np.memmap(path, dtype, "r", offset, shape, order="F")
        values: Array = whole.flat[low:high]
        return native(np.asarray(values).view(_typed(stored, _named(stored, ""))))

    return read


@contextmanager
def _zipped() -> Iterator[None]:
    """Say in one sentence what is wrong with an archive."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise
        raise UsageError("it is no archive, or was damaged, cut off or encrypted") from error


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, raw: str) -> Tensor:
    name = info.filename.removesuffix(".npy")
    with about(name), archive.open(info) as file:
        shape, stored, by_columns = _header(file)
        dtype = _named(stored, raw)
        fits(shape, stored.itemsize, info.file_size - file.tell())
        if by_columns and 0 not in shape:
            raise UsageError("its columns lie one behind another, and not its rows; save np.ascontiguousarray of it")
        return Tensor(name, shape, dtype, _Stream(path, info, file.tell(), _typed(stored, dtype)).read)


class _Stream:
    """A member of an archive, which can only be read from its beginning to its end; it is open in between only."""

    def __init__(self, path: Path, info: zipfile.ZipInfo, offset: int, dtype: np.dtype[Any]) -> None:
        self._path, self._info, self._offset, self._dtype = path, info, offset, dtype
        self._file: IO[bytes] | None = None
        self._at = 0

    def read(self, low: int, high: int) -> Array:
        """Elements as stored, from low up to high; begins anew for what lies behind."""
        with _zipped():
            if self._file is None or low < self._at:
                archive = zipfile.ZipFile(self._path)
                self._file, self._at = archive.open(self._info), 0
                self._skip(self._offset)
            self._skip((low - self._at) * self._dtype.itemsize)
            wanted = (high - low) * self._dtype.itemsize
            data = bytearray()
            while len(data) < wanted:
                if not (more := self._file.read(min(wanted - len(data), _STEP))):
                    raise EOFError
                data += more
            self._at = high
            if self._offset + high * self._dtype.itemsize == self._info.file_size:
                self._file = None
        return native(np.frombuffer(data, f"u{self._dtype.itemsize}").view(self._dtype))

    def _skip(self, count: int) -> None:
        assert self._file is not None
        while count:
            if not (passed := len(self._file.read(min(count, _STEP)))):
                raise EOFError
            count -= passed
