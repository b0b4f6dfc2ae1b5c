"""tinygrad 0.14.0 (device PYTHON): logsumexp is NaN where all is -Inf, or something Inf."""

import math
import os

from _seen import needed, tell

os.environ["DEV"] = "PYTHON"

with needed():
    from tinygrad import Tensor

low, high = Tensor([-math.inf, -math.inf]).logsumexp().item(), Tensor([math.inf, 1.0]).logsumexp().item()
wrong = low != -math.inf or high != math.inf
tell(wrong, f"{low} for -inf, {high} for inf")
