"""Subjects that call GGML's C library on numpy arrays (kernels/ggml.py), on the CPU."""

from importlib import metadata

from kernels.ggml import missing
from kernels.loaders.numpy import NumpyLoader


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
