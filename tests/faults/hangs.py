"""Never comes back."""

import sys

OP = "silu"
PLANTED = "timeout"


def run(out, x):
    while True:
        pass
