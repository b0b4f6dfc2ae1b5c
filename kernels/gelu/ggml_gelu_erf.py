"""ggml_gelu_erf; GGML's other form takes tanh from a table of float16 numbers, which no claim describes."""

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32", "float16")


def run(out, x, *, approximate):
    if approximate != "none":
        raise NotImplementedError("ggml takes gelu with tanh from a table of float16 numbers")
    compute("gelu_erf", out, x)
