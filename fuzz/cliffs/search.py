"""The search: sizes are timed along each dimension, jumps are followed to two neighbours, confirmed, and explained.

What is compared is always the time of one size with that of another, in rounds in which both are timed. A larger size
may cost more by as much as it has more work, a smaller one may not cost more at all. Costs that only grow, however
quickly, have no two neighbours that differ by more: caches that get full, n log n, and launches are no cliffs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Protocol

import numpy as np
from hypothesis.internal.conjecture.shrinking import Integer

from kernel_assay.corpus.model.findings import Cliff
from kernel_assay.fuzz.cliffs.patterns import Rule, centers, rule_of
from kernel_assay.fuzz.cliffs.probes import WINDOW, Line, log_work
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract, Reals

FACTOR = 1.3
"""How many times its neighbour a size must cost to be reported."""
SCAN, LOOK, RULE, SURE = 7, 11, 15, 31
"""Rounds: of all sizes, of two that may be a cliff, of sizes around one, and of each of two measurements in fresh
processes, in which one round in five may be disturbed by whatever else runs there."""
SHARE, CALLS = 3, 500
"""The share of the time that is left that the sizes of a dimension may take at first, and how many calls of the largest
size take as long as all of those."""
SUSPECT = 0.8
"""The share of the logarithm of that factor from which on a jump is looked at."""
MORE = 2
"""How often so many rounds are added, where the noise lets nobody tell."""
ALPHA = 1e-3
"""Probability that one of these measurements alone says of a smaller factor that it is this large."""
NEAR = 2
"""Neighbours on either side of other sizes at which a rule is tried."""
MOST_AT_LINE = 6
"""Cliffs that are told of one dimension with one choice of the others."""


class Clock(Protocol):
    """A clock for one kernel."""

    def __call__(self, shapes: Sequence[Dims], rounds: int, *, fresh: bool = False) -> Reals:
        """Time shapes in rounds, each once a round in a shuffled order: seconds, an array [shapes, rounds].

        fresh: in a process that has timed nothing before. A shape that cannot be timed has NaN.
        """


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sizes that were timed together: what the larger cost is by, and between what limits that surely lies."""

    slow: int
    fine: int
    logs: Reals
    """Logarithm of the factor between them in each round, less what additional work explains."""
    seconds: Reals
    """Of the slow size and of the other, an array [2, rounds]."""

    @property
    def jump(self) -> float:
        """The median."""
        return float(np.median(self.logs))

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of its confidence interval, by order statistics: for any noise, if rounds are independent."""
        from scipy.stats import binom  # noqa: PLC0415  half a second, which every command would wait

        ordered, rank = np.sort(self.logs), int(binom.ppf(ALPHA, len(self.logs), 0.5))
        return (float(ordered[rank - 1]), float(ordered[-rank])) if rank else (-math.inf, math.inf)

    def joined(self, other: Pair) -> Pair:
        """Both, which are of the same sizes."""
        logs, seconds = np.concatenate([self.logs, other.logs]), np.concatenate([self.seconds, other.seconds], axis=1)
        return replace(self, logs=logs, seconds=seconds)

    def undecided(self, line: float) -> bool:
        """Whether the factor may be on either side of one, given as its logarithm."""
        return self.limits[0] <= line <= self.limits[1]

    @property
    def noise(self) -> float:
        """Median deviation from the median, as a standard deviation."""
        return 1.4826 * float(np.median(np.abs(self.logs - self.jump)))


def explained(contract: Contract, slow: Dims, fine: Dims) -> float:
    """Logarithm of the factor between two costs that more work explains; less work explains none."""
    return max(0.0, log_work(contract, slow) - log_work(contract, fine))


@dataclass
class Search:
    """One kernel whose cliffs are looked for."""

    contract: Contract
    clock: Clock
    baseline: Clock | None = None
    baseline_name: str = ""
    factor: float = FACTOR
    deadline: float = math.inf
    seed: int = 0
    on_line: Callable[[Line, int], object] = lambda *_: None
    """Told about each dimension when its sizes have been timed."""
    searched: dict[str, int] = field(default_factory=dict)
    """Dimension -> sizes that were timed along it."""
    complete: bool = True
    notes: list[str] = field(default_factory=list)
    """Jumps that the baseline has, too, and dimensions that take too long, in a sentence each."""

    def run(self, lines: Sequence[Line]) -> Iterator[Cliff]:
        """Yield cliffs as they are confirmed; a rule that is known from an earlier line is not reported again."""
        known: dict[str, list[Rule]] = {}
        for number, line in enumerate(lines):
            if self.expired():
                self.complete = False
                return
            rules = known.setdefault(line.axis, [])
            yield from self._along(line, Random(f"{self.seed}:{line.axis}:{number}"), rules)

    def expired(self) -> bool:
        """Whether time is over."""
        return time.monotonic() >= self.deadline

    def _along(self, line: Line, random: Random, rules: list[Rule]) -> Iterator[Cliff]:
        line = self._shortened(line)
        sizes = line.sizes(random)
        costs = self._costs(line, sizes, SCAN)
        self.searched[line.axis] = self.searched.get(line.axis, 0) + len(sizes)
        self.on_line(line, len(sizes))
        reported = 0
        for slow, fine in self._suspects(line, costs):
            if any(rule.explains(fine, slow) for rule in rules):
                continue
            if self.expired():
                self.complete = False
                return
            found = self._followed(line, slow, fine)
            if found is None or any(rule.explains(found.fine, found.slow) for rule in rules):
                continue
            confirmed, other = self._confirmed(line, found)
            if confirmed is None:
                continue
            rule = self._rule(line, confirmed, costs)
            if rule is None:
                continue
            rules.append(rule)
            yield self._cliff(line, confirmed, rule, other)
            reported += 1
            if reported == MOST_AT_LINE:
                return

    def _shortened(self, line: Line) -> Line:
        """The line as far as there is time to time its sizes; their number hardly depends on where it ends."""
        room = (self.deadline - time.monotonic()) / SHARE
        while True:
            seconds = float(np.median(self.clock([line.at(line.high)], 1)))
            if not seconds > room / CALLS or line.high < 4 * line.low:
                return line
            said = f"{line.axis} is searched up to {line.high // 2}: a call at {line.high} takes {seconds:.2g} s"
            self.notes = [*(note for note in self.notes if not note.startswith(f"{line.axis} is s")), said]
            line = replace(line, high=line.high // 2 // line.step * line.step)

    def _costs(self, line: Line, sizes: Sequence[int], rounds: int) -> dict[int, float]:
        """Logarithms of the median seconds of sizes; those that cannot be timed are left out."""
        seconds = np.median(self.clock([line.at(n) for n in sizes], rounds), axis=1)
        return {n: math.log(s) for n, s in zip(sizes, seconds.tolist(), strict=True) if s > 0}

    def _suspects(self, line: Line, costs: dict[int, float]) -> list[tuple[int, int]]:
        """Sizes between which the cost jumps, the largest jump first: the slow one and the fine one."""
        found = []
        for a, b in pairwise(sorted(costs)):
            slow, fine = (b, a) if costs[b] >= costs[a] else (a, b)
            jump = costs[slow] - costs[fine] - explained(self.contract, line.at(slow), line.at(fine))
            if jump > SUSPECT * math.log(self.factor):
                found.append((jump, slow, fine))
        return [(slow, fine) for _, slow, fine in sorted(found, reverse=True)]

    def _pair(self, line: Line, slow: int, fine: int, rounds: int = LOOK) -> Pair | None:
        """Two sizes timed together; None: they cannot be."""
        return self._by(self.clock, line, slow, fine, rounds, fresh=False)

    def _by(self, clock: Clock, line: Line, slow: int, fine: int, rounds: int, *, fresh: bool) -> Pair | None:
        seconds = clock([line.at(slow), line.at(fine)], rounds, fresh=fresh)
        if not np.all(seconds > 0):
            return None
        extra = explained(self.contract, line.at(slow), line.at(fine))
        return Pair(slow, fine, np.log(seconds[0] / seconds[1]) - extra, seconds)

    def _anew(self, line: Line, slow: int, fine: int) -> Pair | None:
        """Two sizes timed in a fresh process, in more rounds while the noise lets nobody tell."""
        found = self._by(self.clock, line, slow, fine, SURE, fresh=True)
        for _ in range(MORE):
            if found is None or not found.undecided(math.log(self.factor)):
                break
            more = self._pair(line, slow, fine, SURE)
            found = more and found.joined(more)
        return found

    def _jumps(self, line: Line, slow: int, fine: int, least: float) -> bool:
        pair = self._pair(line, slow, fine)
        return pair is not None and pair.jump > least

    def _followed(self, line: Line, slow: int, fine: int) -> Pair | None:
        """The neighbours between two sizes at which the cost jumps; None: it does not, or grows little by little.

        Hypothesis' shrinker makes the distance to the fine size as small as it can while the other is still slow.
        """
        seen = self._pair(line, slow, fine)
        if seen is None or seen.jump < SUSPECT * math.log(self.factor):
            return None
        away = line.step if slow > fine else -line.step
        near = _least(
            abs(slow - fine) // line.step,
            lambda m: m > 0 and self._jumps(line, fine + m * away, fine, seen.jump / 2),
        )
        slow = fine + near * away
        pair = self._pair(line, slow, slow - away)
        return pair if pair is not None and pair.jump > SUSPECT * math.log(self.factor) else None

    def _confirmed(self, line: Line, pair: Pair) -> tuple[Pair | None, float]:
        """The pair timed again, twice, in fresh processes, and the logarithm of the baseline's factor.

        None: once it was not surely a cliff, or the baseline has it, too, and what is left is none.
        """
        least = math.log(self.factor)
        first, second = (self._anew(line, pair.slow, pair.fine) for _ in range(2))
        if first is None or second is None or min(first.limits[0], second.limits[0]) <= least:
            return None, 0.0
        whole, other = first.joined(second), None
        if self.baseline is not None:
            other = self._by(self.baseline, line, pair.slow, pair.fine, SURE, fresh=True)
        theirs = max(0.0, other.jump) if other is not None else 0.0
        if whole.jump - theirs > least:
            return whole, theirs
        both_have = f"{math.exp(whole.jump):.2g}x, and {math.exp(theirs):.2g}x of {self.baseline_name}"
        self.notes.append(f"not counted, as the baseline has it, too: {line.axis} = {pair.slow} costs {both_have}")
        return None, theirs

    def _rule(self, line: Line, pair: Pair, costs: dict[int, float]) -> Rule | None:
        """The rule that tells which sizes around a cliff are slow, told from some more that are timed.

        None: among those the slow one is not slow, so that something else than its size made it so.
        """

        def beside(middle: int, reach: int) -> list[int]:
            return line.fitting((middle // line.step + i) * line.step for i in range(-reach, reach + 1))

        windows = [beside(pair.slow, WINDOW), beside(pair.slow, NEAR)]
        away = (WINDOW + NEAR) * line.step
        windows += [beside(n, NEAR) for n in centers(pair.slow, pair.fine) if abs(n - pair.slow) > away]
        sizes, timed = sorted({n for window in windows for n in window}), dict[int, float]()
        for _ in range(2):  # once more if nothing agrees: what is disturbed is slower, and never faster
            again = self._costs(line, sizes, RULE)
            timed = {n: min(cost, timed.get(n, cost)) for n, cost in again.items()}
            among = timed.get(pair.slow, -math.inf) - timed.get(pair.fine, math.inf)
            if among - explained(self.contract, line.at(pair.slow), line.at(pair.fine)) < pair.jump / 2:
                return None
            work = {n: log_work(self.contract, line.at(n)) for n in {*timed, *costs}}
            growth = _growth([(work[n], c) for n, c in costs.items() if pair.slow / 2 <= n <= 2 * pair.slow])
            flat = [{n: timed[n] - growth * work[n] for n in window if n in timed} for window in windows]
            rule = rule_of(line.axis, pair.slow, pair.fine, flat, pair.jump)
            if rule.pattern != "at":
                break
        return rule

    def _cliff(self, line: Line, pair: Pair, rule: Rule, theirs: float) -> Cliff:
        return Cliff(
            axis=line.axis,
            slow=pair.slow,
            fine=pair.fine,
            others=dict(line.others),
            pattern=rule.pattern,
            where=rule.where,
            factor=math.exp(pair.jump),
            least=math.exp(pair.limits[0]),
            asked=self.factor,
            noise=pair.noise,
            shown=self._shown(line, pair),
            baseline=self.baseline_name if self.baseline is not None else "",
            baseline_factor=math.exp(theirs),
            seconds_slow=tuple(pair.seconds[0].tolist()),
            seconds_fine=tuple(pair.seconds[1].tolist()),
        )

    def _shown(self, line: Line, pair: Pair) -> dict[str, int]:
        """The least extent of each other dimension with which it shows, as Hypothesis' shrinker finds it."""
        found = {}
        for name, extent in line.others.items():
            dim = self.contract.dims[name]
            step, least = dim.multiple, max(1, dim.least // dim.multiple)

            def shows(m: int, name: str = name, step: int = step, least: int = least) -> bool:
                if m < least or self.expired():
                    return False
                smaller = replace(line, others={**line.others, name: m * step})
                return self._jumps(smaller, pair.slow, pair.fine, math.log(self.factor))

            found[name] = _least(extent // step, shows) * step
        return found


def _least(start: int, holds: Callable[[int], bool]) -> int:
    """The smallest number that Hypothesis' shrinker comes to from one for which something holds."""
    found: int = Integer.shrink(start, holds)  # type: ignore[no-untyped-call]
    return found


def _growth(points: Sequence[tuple[float, float]]) -> float:
    """The exponent by which costs grow with work, from logarithms of both, whatever a part of them does."""
    from scipy.stats import theilslopes  # noqa: PLC0415  as above

    if len({work for work, _ in points}) < 3:
        return 1.0
    work, costs = zip(*points, strict=True)
    return float(np.clip(theilslopes(costs, work)[0], 0.0, 1.0))
