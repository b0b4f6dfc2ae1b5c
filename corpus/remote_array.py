"""An array that lies elsewhere, in memory of another process or a GPU: its form is known, its values are asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array


class Remote(ABC):
    """A contiguous array whose elements cost a message."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @abstractmethod
    def take(self, along: Mapping[int, NDArray[np.int64]]) -> Array:
        """A host array of these indices of these axes, cut one after the other, and of all others everything."""


Outputs = Mapping[str, Array | Remote]
"""What a subject left, by name, wherever it is."""
