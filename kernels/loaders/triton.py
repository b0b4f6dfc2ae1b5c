"""Subjects in Triton: the name is reserved, the loader is still to come."""

from kernels.backend import Reserved


class TritonLoader(Reserved):
    """Reserved."""

    name = "triton"
    packages = ("triton",)


LOADER = TritonLoader()
