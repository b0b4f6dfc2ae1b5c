"""libggml-python 0.20.2 (CPU): ggml_argmax forgets at a NaN what it has seen before. GGML is called by this package."""

from _seen import needed, tell

with needed():
    import numpy as np

    from kernel_assay.kernels.backends.support.ggml_library import compute

    got = np.empty(1, np.int32)
    compute("argmax", got, np.array([[1, np.nan, 0]], np.float32))
tell(got[0] == 2, f"argmax of [1, nan, 0] is {got[0]}")
