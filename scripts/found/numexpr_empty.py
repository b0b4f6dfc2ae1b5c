"""numexpr 2.14.2: a sum over an axis leaves the axis in place where the array is empty."""

from _seen import needed, tell

with needed():
    import numexpr
    import numpy as np

x = np.zeros((2, 0))
got, right = numexpr.evaluate("sum(x, axis=1)").shape, np.sum(x, axis=1).shape
tell(got != right, f"the shape is {got}, right is {right}")
