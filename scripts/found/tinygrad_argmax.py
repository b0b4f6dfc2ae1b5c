"""tinygrad 0.14.0: argmax of NaN alone is a place behind the end."""

import os

os.environ["DEV"] = "PYTHON"

from tinygrad import Tensor

got = Tensor([float("nan")] * 3).argmax().item()
print("seen" if got > 2 else "not in this version", f"argmax of 3 elements is {got}", sep=": ")
