"""tinygrad 0.14.0: sort loses a NaN, and gives another element twice."""

import math
import os

os.environ["DEV"] = "PYTHON"

from tinygrad import Tensor

got = Tensor([3.0, math.nan, 2.0, 1.0]).sort()[0].tolist()
wrong = sum(map(math.isnan, got)) != 1
print("seen" if wrong else "not in this version", f"[3, nan, 2, 1] sorted is {got}", sep=": ")
