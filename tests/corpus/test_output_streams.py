"""What is said to nobody, or to a full disk."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.output_streams import outlive_readers
outlive_readers()
try:
    print("much" * 10000, flush=True)
except UsageError as error:
    print(error, file=sys.stderr)
print("more", flush=True)
"""
PROGRAM = [sys.executable, "-c", CODE]


def test_a_full_disk_is_told_once():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(PROGRAM, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "what it says cannot be written (No space left on device)\n")


def test_nobody_reads():
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        one.stdout.close()
        assert (one.stderr.read(), one.wait()) == ("", 0)
