"""Subjects in CUDA C++ (.cu files): the name is reserved, the loader is still to come."""

from kernels.backend import Reserved


class CudaLoader(Reserved):
    """Reserved."""

    name = "cuda"


LOADER = CudaLoader()
