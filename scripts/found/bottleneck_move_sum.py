"""Bottleneck 1.6.0: move_sum never recovers from a large number, or an infinite one, that has left its window."""

from _seen import needed, tell

with needed():
    import bottleneck
    import numpy as np

large, infinite = (float(bottleneck.move_sum(np.array([x, 1, 1, 1, 1]), 2)[-1]) for x in (1e17, np.inf))
wrong = large != 2 or infinite != 2
tell(wrong, f"1 + 1 is {large} after 1e17, {infinite} after inf")
