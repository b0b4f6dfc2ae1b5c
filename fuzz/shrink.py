"""Make a failing case smaller: `python -m fuzz.shrink FINDING`, the same as `python -m fuzz shrink FINDING`."""

import sys

from kernel_assay.corpus.process.output_streams import outlive_readers
from kernel_assay.fuzz.__main__ import main

if __name__ == "__main__":
    outlive_readers()
    sys.exit(main(["shrink", *sys.argv[1:]]))
