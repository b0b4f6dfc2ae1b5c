"""Subjects in Cupy: the name is reserved, the loader is still to come."""

from kernels.backend import Reserved


class CupyLoader(Reserved):
    """Reserved."""

    name = "cupy"
    packages = ("cupy",)


LOADER = CupyLoader()
