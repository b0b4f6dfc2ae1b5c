"""Takes memory until there is none."""

import numpy as np

OP = "silu"
PLANTED = "out_of_memory"


def run(out, x):
    hoard = []
    while True:
        hoard.append(np.empty(1 << 20))
