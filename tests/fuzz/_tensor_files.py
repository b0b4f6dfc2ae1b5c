"""Files of tensors for the tests of `compare`: a writer of safetensors that may lie, and comparisons of arrays."""

import json
import math

import numpy as np

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.fuzz.comparing.distance import Side, distance
from kernel_assay.fuzz.comparing.tensors import SAFETENSORS, Tensor

CODES = {name: code for code, name in SAFETENSORS.items()}
FLOATS = [name for name, fmt in FORMATS.items() if fmt.is_float]


def safetensors(path, tensors):
    """Write arrays of known types."""
    header, data = {"__metadata__": {"by": "a test"}}, b""
    for name, values in tensors.items():
        begin, data = len(data), data + np.ascontiguousarray(values).tobytes()
        entry = {"dtype": CODES[values.dtype.name], "shape": list(values.shape), "data_offsets": [begin, len(data)]}
        header[name] = entry
    return written(path, header, data)


def written(path, header, data=b""):
    """Write any header, JSON or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def side(values):
    """An array as a tensor that is read from a file."""
    flat = np.ascontiguousarray(values).reshape(-1)
    assert flat.size == math.prod(values.shape)
    return Side(Tensor("x", values.shape, values.dtype.name, lambda low, high: flat[low:high]), "a file")


def apart(a, b, **how):
    """The distance of two arrays."""
    return distance(side(a), side(b), **how)


def of_bits(bits, name):
    """Bit patterns as values of a format."""
    return np.asarray(bits).astype(FORMATS[name].carrier).view(FORMATS[name].dtype)
