"""tinygrad 0.14.0 (device PYTHON): among numbers with a NaN, sort and topk lose some, and give others twice."""

import math
import os

from _seen import needed, tell

os.environ["DEV"] = "PYTHON"

with needed():
    from tinygrad import Tensor

x = Tensor([8.0, 2.0, 3.0, 5.0, math.nan, 6.0, 7.0, 1.0])
top, ordered = x.topk(3)[0].tolist(), x.sort()[0].tolist()
wrong = len(set(top)) < 3 or sum(map(math.isnan, ordered)) != 1
tell(wrong, f"the top three are {top}")
