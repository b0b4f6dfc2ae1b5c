"""How each program here ends: 0 if it has seen the defect, 3 if it cannot be seen here, 2 if its library is missing."""

import sys
from contextlib import contextmanager


@contextmanager
def needed():
    """Import a library, or call it through one; without it the program ends with one sentence."""
    try:
        yield
    except (ImportError, NotImplementedError) as error:
        print(f"this program needs a library that is not here: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def tell(seen, said, lacks=""):
    """Print what was seen, and end; lacks: what this processor would need for it to be seen, and does not have."""
    unseen = f"not on this processor, which has no {lacks}" if lacks else "not in this version"
    print("seen" if seen else unseen, said, sep=": ")
    raise SystemExit(0 if seen else 3)
