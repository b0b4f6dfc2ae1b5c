"""What a person types to run this program where they are."""

from functools import cache
from pathlib import Path

_FUZZ = Path(__file__).resolve().parent.parent / "fuzz" / "__main__.py"


@cache
def program() -> str:
    """`python -m fuzz` in a checkout of this project, and `kassay` anywhere else."""
    here = Path("fuzz/__main__.py")
    return "python -m fuzz" if here.is_file() and here.samefile(_FUZZ) else "kassay"
