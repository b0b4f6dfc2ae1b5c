"""Subjects that call GGML's C library on numpy arrays (kernels/backends/support/ggml_library.py), on the CPU."""

from importlib import metadata

from kernel_assay.kernels.backends.numpy import NumpyLoader
from kernel_assay.kernels.backends.support.ggml_library import missing


class GgmlLoader(NumpyLoader):
    """Numpy arrays in, numpy arrays out; the library is loaded when it is first called."""

    name = "ggml"

    def unavailable(self) -> str:
        """Needs the wheel with the shared libraries."""
        return missing() or super().unavailable()

    def versions(self) -> dict[str, str]:
        """The wheel's, which is named after the version of GGML."""
        return {} if missing() else {"libggml-python": metadata.version("libggml-python")}


LOADER = GgmlLoader()
