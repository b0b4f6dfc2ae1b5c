"""Python's collector of cycles, while cases are judged by the thousand: a case leaves none behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""Objects made and kept between two looks of the collector; with the usual 700 it took a tenth of a case's time."""


@contextmanager
def seldom() -> Iterator[None]:
    """Have it look rarely, and only at what is made from now on: modules alone are some 100,000 objects.

    It does not look once more before: in a forked process that would copy all of them.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
