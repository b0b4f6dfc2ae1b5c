"""The distribution of sizes, as a Hypothesis provider: the strategies stay plain, so that failures shrink.

Hypothesis documents `PrimitiveProvider` as its extension point; a test runs its conformance suite on this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

TILES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Block and vector widths that kernels are written around."""

FAVOURITES = (3, 5, 7, 11, 13, 17, 31, 61, 97, 127, 251, 509, 896, 1021, 2560, 4093)
"""Small primes, primes next to tiles, and hidden sizes of language models."""

SMALL_RANGE = 32
"""Ranges below this are choices from a list, drawn evenly."""
LARGE_RANGE = 1 << 16
"""Ranges from this on are seeds, drawn evenly."""


class Draws:
    """Integers from closed ranges: near tile boundaries, ties with earlier sizes, small sizes, and the code's own."""

    def __init__(self, random: Random, hints: Sequence[int] = ()) -> None:
        """hints: constants of the code under test."""
        self._random = random
        self._hints = tuple(hints)
        self._seen: list[int] = []

    def integer(self, low: int, high: int) -> int:
        """One between two bounds, both included: of a list or of seeds drawn evenly, else a size."""
        extent = high - low + 1
        if extent <= SMALL_RANGE or extent >= LARGE_RANGE:
            # randrange without its argument checks; the bias of 53 bits does not matter here
            return low + int(self._random.random() * extent) if extent < 1 << 50 else self._random.randint(low, high)
        value = min(high, max(low, self._size(low, high)))
        self._seen.append(value)
        return value

    def _size(self, low: int, high: int) -> int:  # noqa: PLR0911  one return for each share of the mixture
        """A size between low and high, possibly a little outside (the caller clamps)."""
        r = self._random
        u = r.random()
        if u < 0.08 and self._seen:
            return r.choice(self._seen)
        if u < 0.16 and self._hints:
            return r.choice(self._hints) + r.choice((-1, 0, 1))
        if u < 0.40:
            return low + int(r.random() * 20)
        if u < 0.55:
            return int(2.0 ** (r.random() * high.bit_length()))
        if u < 0.58:
            return r.randint(low, high)
        if u < 0.66:
            return r.choice((low, low, low + 1, high, *FAVOURITES))
        return self._near_tile(high)

    def _near_tile(self, high: int) -> int:
        r = self._random
        tile = r.choice(TILES[: max(1, min(high.bit_length() - 1, len(TILES)))])
        multiple = 1 if r.random() < 0.6 else 1 + int(r.random() * min(8, max(1, high // tile)))
        return tile * multiple + r.choice((-1, 0, 1))


class KernelProvider(HypothesisProvider):
    """Draws integers as Draws does."""

    lifetime = "test_case"

    def __init__(self, conjecturedata: ConjectureData | None, /, *, hints: Sequence[int] = ()) -> None:
        super().__init__(conjecturedata)
        self._draws = None if self._random is None else Draws(self._random, hints)

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """Sizes get the domain's distribution, weights or not; other ranges are even; open ones are Hypothesis' own."""
        if min_value is None or max_value is None:
            return super().draw_integer(min_value, max_value, weights=weights, shrink_towards=shrink_towards)
        assert self._draws is not None
        return self._draws.integer(min_value, max_value)


BACKEND = "kernel-assay"


def register() -> None:
    """Make the provider known to `settings(backend=...)`."""
    AVAILABLE_PROVIDERS[BACKEND] = KernelProvider


def provider_kw(hints: Sequence[int]) -> dict[str, Any]:
    """The keyword arguments ConjectureData hands on to the provider."""
    return {"hints": tuple(hints)}
