"""Decide whether one version of a kernel is slower than another, from times of both that were measured in turns.

The rule, for times a (before) and b (now) that belong together in pairs, one pair a round:

1. d = log(b / a). What slows both in a round (drift, a clock that changes, a neighbour) cancels.
2. Independent samples are made of the d: one a launch of new processes, if there are enough (11 at 1 in 1,000), as a
   process is some per cent faster or slower than its twin for as long as it lives: where its memory lies, which core it
   is on. Whatever wanders within a launch, or comes in runs, is in one sample. Fewer launches: one a block of
   successive rounds, and the interval is widened by 5 % (`ALONE`) for what a process is by chance. Each sample is the
   Hodges-Lehmann centre of its d, which no outlier moves.
3. The interval of the ratio is that of Wilcoxon's signed-rank test on these samples, exact, at level `false_alarm`. In
   an A/A measurement every sample is as likely to have one sign as the other, as the order within each round and
   launch is drawn at random; so no model of the noise is needed: heavy tails, two modes and drift keep the level.
   A clock too coarse for the times widens it by one of its steps.
4. SLOWER if the interval lies above 1.01 (`least`), FASTER if below 1 / 1.01; SAME if within 1.02 and 1 / 1.02; else
   UNSURE. A change below 1 % is nobody's regression, and the margin takes up what a random order cannot.
5. `detects` is the smallest slowdown that this noise lets be found in 99 of 100: log(1 + least) + half the interval +
   2.33 standard errors. UNSURE says so, and how many samples would find 3 %.

Sources: Hollander, Wolfe, Chicken, Nonparametric Statistical Methods (3rd ed.), 3.1 to 3.3; Kalibera and Jones,
Rigorous Benchmarking in Reasonable Time (ISMM 2013), on launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.timing import Change, Comparison

FALSE_ALARM, LEAST, WANTED = 1e-3, 0.01, 0.03
"""How often A/A may be told apart; the smallest change that counts; the slowdown that is to be found."""
ALONE = 0.05
"""By how much a process may be slower than its twin, as a part of its time; launches show it, where there are some."""
_BLOCKS = 32
"""Of rounds in one launch, at most."""
_QUANTILE = NormalDist().inv_cdf
_FOUND = _QUANTILE(0.99)

Floats = NDArray[np.float64]
_NOTHING: Floats = np.empty(0)


def compare(
    before: Sequence[float],
    now: Sequence[float],
    *,
    launches: Sequence[int] = (),
    false_alarm: float = FALSE_ALARM,
    least: float = LEAST,
    widen: float = 0.0,
) -> Comparison:
    """Compare paired times by the rule above.

    before, now: seconds, one of each a round, in the order of measurement. launches: the launch of each round; none:
    all in one. least: the smallest change that counts. widen: added to both ends of the interval, as a part of 1, for
    what the samples cannot show, such as another day. Raises InternalError for times that are none, or not in pairs.
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (before, now))
    if a.shape != b.shape or a.ndim != 1 or not all(np.isfinite(side).all() and (side > 0).all() for side in (a, b)):
        raise InternalError("times to compare must be finite, above 0, and in pairs")
    d, names = np.log(b / a), np.unique(launches)
    many = len(names) >= least_samples(false_alarm)
    parts = [d[np.equal(launches, name)] for name in names] if many else np.array_split(d, min(len(d), _BLOCKS) or 1)
    samples = np.array([centre(part) for part in parts if len(part)])
    rank, grain = critical_rank(len(samples), false_alarm), _grain(np.concatenate([a, b]))
    if rank is None:
        few = f"{len(samples)} independent samples are too few to tell anything"
        return unsure(f"{few}: {least_samples(false_alarm)} are needed", false_alarm, samples)
    if math.isinf(grain):
        return unsure("all times are equal: the clock is too coarse for them", false_alarm, samples)
    sums = walsh(samples)
    slack = math.log1p(widen) + grain + (0.0 if many else math.log1p(ALONE))
    low, high = sums[rank] - slack, sums[-1 - rank] + slack
    said = _decided(float(np.median(sums)), low, high, len(samples), false_alarm, math.log1p(least))
    if said.change is not Change.UNSURE or (many and not widen):
        return said
    why = (
        "they were measured apart"
        if widen
        else f"{len(names)} launches are few, {least_samples(false_alarm)} are enough"
    )
    missed = f"a slowdown below {said.detects - 1:.0%} may be missed"
    return said.but(reason=f"{why}: {missed if said.detects < _NOISY else 'they are too noisy to tell anything'}")


_NOISY = 2.0
"""A slowdown that would hardly be found: others need not be told."""


def unsure(reason: str, false_alarm: float = FALSE_ALARM, samples: Floats = _NOTHING) -> Comparison:
    """Say that nothing could be told; reason: why, in a sentence."""
    return Comparison(
        change=Change.UNSURE,
        ratio=math.exp(centre(samples)) if len(samples) else 1.0,
        low=0.0,
        high=math.inf,
        samples=len(samples),
        detects=math.inf,
        false_alarm=false_alarm,
        reason=reason,
    )


def _decided(mid: float, low: float, high: float, samples: int, false_alarm: float, margin: float) -> Comparison:
    half = (high - low) / 2
    error = half / -_QUANTILE(false_alarm / 2)
    detects = margin + half + _FOUND * error
    change = (
        Change.SLOWER
        if low > margin
        else Change.FASTER
        if high < -margin
        else Change.SAME
        if max(-low, high) <= 2 * margin
        else Change.UNSURE
    )
    more = math.ceil(samples * ((detects - margin) / (math.log1p(WANTED) - margin)) ** 2)
    blurred = detects > math.log1p(WANTED)
    said = f"noise: a slowdown below {math.expm1(detects):.1%} may be missed, {more} samples would find {WANTED:.0%}"
    reason = said if blurred else f"it lies about the smallest change that counts, {math.expm1(margin):.0%}"
    return Comparison(
        change=change,
        ratio=math.exp(mid),
        low=math.exp(low),
        high=math.exp(high),
        samples=samples,
        detects=math.exp(detects),
        false_alarm=false_alarm,
        reason=reason if change is Change.UNSURE else "",
    )


def walsh(x: Floats) -> Floats:
    """All means of two, and of one, sorted: the values at which the signed-rank statistic steps."""
    i, j = _pairs(len(x))
    return np.sort((x[i] + x[j]) / 2)


@lru_cache(maxsize=8)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(n)


def centre(x: Floats) -> float:
    """The Hodges-Lehmann estimate of the centre: as sharp as the mean under normal noise, and deaf to outliers."""
    return float(np.median(walsh(x))) if len(x) > 2 else float(x.mean())


def _grain(times: Floats) -> float:
    """The step of the clock as a part of the time, if most times are met more than once, else 0; inf: all are equal."""
    values = np.unique(times)
    if len(values) > len(times) / 2:
        return 0.0
    return float(np.log1p(np.diff(values).min() / np.median(times))) if len(values) > 1 else math.inf


@lru_cache(maxsize=64)
def critical_rank(n: int, false_alarm: float) -> int | None:
    """The largest k of which P(T <= k) <= false_alarm / 2, T the signed-rank statistic of n; None: there is none."""
    chance = np.ones(1)
    for rank in range(1, n + 1):
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    k = int(np.searchsorted(np.cumsum(chance), false_alarm / 2, side="right")) - 1
    return k if k >= 0 else None


def least_samples(false_alarm: float = FALSE_ALARM) -> int:
    """Count the samples that can reject anything at all: 2 * 2**-n is at most the level."""
    return math.ceil(1 - math.log2(false_alarm))
