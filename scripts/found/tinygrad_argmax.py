"""tinygrad 0.14.0 (device PYTHON): argmax of NaN alone is a place behind the end."""

import os

from _seen import needed, tell

os.environ["DEV"] = "PYTHON"

with needed():
    from tinygrad import Tensor

got = Tensor([float("nan")] * 3).argmax().item()
tell(got > 2, f"argmax of 3 elements is {got}")
