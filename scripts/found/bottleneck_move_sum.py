"""Bottleneck 1.6.0: move_sum never recovers from a large number, or an infinite one, that has left its window."""

import bottleneck
import numpy as np

large, infinite = (float(bottleneck.move_sum(np.array([x, 1, 1, 1, 1]), 2)[-1]) for x in (1e17, np.inf))
wrong = large != 2 or infinite != 2
print("seen" if wrong else "not in this version", f"1 + 1 is {large} after 1e17, {infinite} after inf", sep=": ")
