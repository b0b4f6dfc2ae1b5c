"""The arguments that tensors of a case stand for: lists, masks, offsets, and what a function changes in place.

A case has plain tensors. Where a function takes something else, an Argument says which of them it is made of, for the
process of a reference and for a worker alike; arrays may be of numpy or of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

AFTER = "_after"
"""Ends the name of an output that is an argument, after the call has changed it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument that is no plain tensor, or is changed in place."""

    name: str
    kind: Literal["tensor", "list", "mask", "offsets"]
    tensors: tuple[str, ...]
    """Of which it is made; a case need not have all tensors of a list."""
    inout: bool = False
    """Whether a call changes it."""
    divides: tuple[str, int] = ("", 0)
    """Of offsets: the tensor whose axis they divide, and which axis."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read it from a message, in which tuples are lists."""
        tensor, axis = said["divides"]
        return cls(said["name"], said["kind"], tuple(said["tensors"]), said["inout"], (tensor, axis))

    def made(self, given: Mapping[str, Any]) -> Any:
        """The argument, of the tensors that a case has."""
        there = [given[name] for name in self.tensors if name in given]
        if self.kind == "list":
            return there
        if self.kind == "mask":
            return _mask(there[0])
        if self.kind == "offsets":
            tensor, axis = self.divides
            return _offsets(there[0], given[tensor].shape[axis])
        return there[0]


def argued(given: Mapping[str, Any], arguments: Sequence[Argument]) -> dict[str, Any]:
    """Arguments by name, in the order of their first tensors; a tensor that belongs to none is one itself."""
    owner = {tensor: argument for argument in arguments for tensor in argument.tensors}
    found: dict[str, Any] = {}
    for name, tensor in given.items():
        argument = owner.get(name)
        if argument is None:
            found[name] = tensor
        elif argument.name not in found:
            found[argument.name] = argument.made(given)
    return found


def names_of(tensors: Collection[str], arguments: Sequence[Argument]) -> dict[str, tuple[str, ...]]:
    """Name of each argument, in order -> the tensors that it is made of."""
    owner = {tensor: argument for argument in arguments for tensor in argument.tensors}
    found: dict[str, tuple[str, ...]] = {}
    for name in tensors:
        argument = owner.get(name)
        found.setdefault(argument.name if argument else name, argument.tensors if argument else (name,))
    return found


def _mask(array: Any) -> Any:
    """The same bytes as truth values."""
    return array.view(np.bool_ if isinstance(array, np.ndarray) else sys.modules["torch"].bool)


def _offsets(cuts: Any, end: int) -> Any:
    """Offsets from 0 to the end, in order: between them all cuts but the first, which makes room for both ends."""
    inner = sorted(min(int(cut), end) for cut in cuts.tolist()[1:])
    found = [0, *inner, end]
    return np.array(found, cuts.dtype) if isinstance(cuts, np.ndarray) else cuts.new_tensor(found)
