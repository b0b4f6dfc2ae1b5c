"""Products of 8-bit floats with torch: both operands widened to float32, exactly, and multiplied there."""

BACKEND = "torch"
DTYPES = ("float8_e4m3fn", "float8_e5m2")


def run(a, b):
    return a.float() @ b.float()
