"""The words that a person types to run this program where they are."""

import sys
from functools import cache


@cache
def program() -> str:
    """`python -m fuzz` for whoever has typed that, in a checkout, and `kassay` for everybody else."""
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return "python -m fuzz" if started and started.name.split(".")[0] == "fuzz" else "kassay"
