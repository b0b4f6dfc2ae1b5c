"""Subjects in plain Python and numpy."""

from kernel_assay.kernels.backends.support.base import PythonLoader


class NumpyLoader(PythonLoader):
    """Numpy arrays in, numpy arrays out."""

    name = "numpy"
    walled = True
    packages = ("numpy", "ml_dtypes")


LOADER = NumpyLoader()
