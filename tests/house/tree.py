"""The project's folders, as the tests of this folder see them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fuzz", "kernels", "oracles", "corpus", "reports")
MACHINERY = ("backends", "boundary", "sandbox", "worker", "nvidia", "recording", "debugging")
"""Folders of kernels/ that hold no implementations of an op."""


def is_subject(path):
    """kernels/<op>/*.py: a user's plain functions, without annotations."""
    inner = path.relative_to(ROOT).parts
    return inner[0] == "kernels" and len(inner) > 2 and inner[1] not in MACHINERY
