"""What a path holds: the tensors of a file, or of all files in a folder, by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.fuzz.comparing import numpy_files, safetensors_files
from kernel_assay.fuzz.comparing.tensors import Tensor
from kernel_assay.fuzz.comparing.torch_files import TorchFiles

_TORCH = {".pt", ".pth"}
_KNOWN = {".safetensors", ".npy", ".npz", *_TORCH}
_PLAIN = {".bin", ".raw"}
_LONG = 200
"""Characters of a path that are repeated when it is refused."""
Named = dict[str, tuple[Tensor, str]]
"""Tensors by the names that they are matched by, each with its file."""


def opened(places: Sequence[Path], raw: str, stack: ExitStack) -> list[Named]:
    """What each place holds, under names that are the same wherever the tensor is; all files, or all folders.

    A tensor is called what its file calls it, and in a folder FILE/NAME, if any two files of one have a name in common.
    Files of one tensor each are matched whatever they are called. Raises UsageError.
    """
    for place in places:
        try:
            place.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(f"{place} does not exist") from error
        except (OSError, ValueError) as error:
            raise _unreadable(str(place), error) from error
    if len({place.is_dir() for place in places}) > 1:
        file, folder = min(places, key=Path.is_dir), max(places, key=Path.is_dir)
        raise UsageError(f"{folder} is a folder and {file} is none; name files only, or folders only")
    opener = TorchFiles(stack)
    found = [_files(place, raw, opener) for place in places]
    if all(len(one) == 1 and len(tensors) == 1 for one in found for _, tensors in one):
        return [{found[0][0][1][0].name: (tensors[0], path)} for ((path, tensors),) in found]
    prefixed = any(_ambiguous(one) for one in found)
    return [_named(place, one, prefixed=prefixed) for place, one in zip(places, found, strict=True)]


Files = list[tuple[str, list[Tensor]]]


def _files(place: Path, raw: str, opener: TorchFiles) -> Files:
    """The files of a place, with their tensors."""
    if not place.is_dir():
        return [(str(place), _tensors(place, raw, opener))]
    kinds = _KNOWN | (_PLAIN if raw else set())
    walked = os.walk(place, onerror=_refuse)  # links to folders are not followed, for they may lead in a circle
    paths = sorted(path for at, _, names in walked for name in names if (path := Path(at, name)).suffix in kinds)
    if not paths:
        raise UsageError(f"{place} holds no file of tensors: {', '.join(sorted(kinds))}")
    return [(str(path), _tensors(path, raw, opener)) for path in paths]


def _unreadable(place: str, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or str(error)
    return UsageError(f"{place if len(place) < _LONG else place[:_LONG] + '...'} cannot be read ({why})")


def _refuse(error: OSError) -> None:
    """Refuse a folder that cannot be read: what lies in it would go unnoticed."""
    raise _unreadable(str(error.filename), error) from error


def _tensors(path: Path, raw: str, opener: TorchFiles) -> list[Tensor]:
    with about(str(path)):
        if not path.is_file():
            raise UsageError("it is no plain file")
        try:
            found = _read(path, raw, opener)
        except OSError as error:
            raise UsageError(f"it cannot be read ({error.strerror})") from error
        if not found:
            raise UsageError("it holds no tensors")
        if odd := [one.name for one in found if not one.name.isprintable()]:
            raise UsageError(f"the name of a tensor, {odd[0]!a}, cannot be printed")
        return found


def _read(path: Path, raw: str, opener: TorchFiles) -> list[Tensor]:
    if path.suffix in _TORCH:
        return opener.tensors_of(path)
    if path.suffix == ".safetensors":
        return safetensors_files.tensors_of(path)
    if path.suffix == ".npz":
        return numpy_files.of_npz(path, raw)
    return numpy_files.of_npy(path, raw) if path.suffix == ".npy" else numpy_files.of_raw(path, raw)


def _ambiguous(files: Files) -> bool:
    names = [tensor.name for _, tensors in files for tensor in tensors]
    return len(set(names)) < len(names)


def _named(place: Path, files: Files, *, prefixed: bool) -> Named:
    found: Named = {}
    for path, tensors in files:
        stem = Path(path).relative_to(place).with_suffix("") if prefixed and place.is_dir() else None
        for tensor in tensors:
            name = tensor.name if stem is None else f"{stem}/{tensor.name}"
            if name in found:
                raise UsageError(f"{name} stands twice: in {found[name][1]} and in {path}")
            found[name] = tensor, path
    return found
