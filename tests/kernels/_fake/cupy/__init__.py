"""What the subjects and the loader use of cupy, on numpy: memory of its own, and no mixing with numpy's arrays.

What cupy has not, or does otherwise, is refused: a test of formulas must not pass with what fails on a GPU.
"""

import functools
from types import SimpleNamespace

import numpy as np

LAUNCHED = []
"""What synchronizing finds out: errors, one for each call; the last of them for good if it is named `sticky`."""


class CUDARuntimeError(RuntimeError):
    """As that of cupy_backends."""


class Pointer:
    """A place in the memory of an array of bytes."""

    def __init__(self, room, offset):
        self.room, self.offset = room, offset

    def __add__(self, more):
        return Pointer(self.room, self.offset + more)

    @property
    def ptr(self):
        return self.room.__array_interface__["data"][0] + self.offset


class ndarray(np.ndarray):  # noqa: N801  cupy's name
    """An array that only its own kind and numbers may be combined with."""

    def __new__(cls, shape, dtype=float, memptr=None, strides=None):
        if memptr is None:
            memptr = Pointer(np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xCD, np.uint8), 0)
        return super().__new__(cls, shape, dtype, memptr.room, memptr.offset, strides)

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **kwargs):
        foreign = [x for x in (*inputs, *out) if type(x) is np.ndarray and x.ndim]
        if foreign or kwargs.keys() - {"axis", "keepdims", "dtype"}:
            raise TypeError(f"Unsupported type or argument for {ufunc.__name__}: {foreign or kwargs}")
        named = {"out": tuple(x.view(np.ndarray) for x in out)} if out else {}
        with np.errstate(all="ignore"):
            found = getattr(ufunc, method)(*map(_plain, inputs), **named, **kwargs)
        return out[0] if out else _ours(found)

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError(f"numpy.{function.__name__} is not for arrays of cupy")

    def __setitem__(self, index, value):
        if type(value) is np.ndarray:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        with np.errstate(all="ignore"):
            self.view(np.ndarray)[index] = _plain(value)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def astype(self, dtype, copy=True):
        with np.errstate(all="ignore"):
            return _ours(self.view(np.ndarray).astype(dtype, copy=copy))

    @property
    def data(self):
        room = self.view(np.ndarray)
        while isinstance(room.base, np.ndarray):
            room = room.base
        start = room.__array_interface__["data"][0]
        return Pointer(room.view(np.ndarray), self.__array_interface__["data"][0] - start)

    def set(self, host):
        assert type(host) is np.ndarray
        assert host.dtype == self.dtype
        assert host.flags.c_contiguous
        assert self.flags.c_contiguous
        self.view(np.ndarray)[...] = host

    def get(self, out):
        assert out.dtype == self.dtype
        assert out.shape == self.shape
        out[...] = self.view(np.ndarray)


def _plain(x):
    return x.view(np.ndarray) if isinstance(x, ndarray) else x


def _ours(x):
    """Results of nothing but one number are arrays too."""
    array = np.asarray(x)
    found = ndarray(array.shape, array.dtype)
    found.view(np.ndarray)[...] = array
    return found


def _of_numpy(name, *allowed):
    """numpy's function on arrays of ours, with no other keywords than cupy's."""
    function = getattr(np, name)

    @functools.wraps(function)
    def call(*args, **kwargs):
        assert kwargs.keys() <= set(allowed), f"cupy.{name} has no such argument"
        assert not any(type(x) is np.ndarray for x in args), f"cupy.{name} takes no array of numpy"
        with np.errstate(all="ignore"):
            return _ours(function(*map(_plain, args), **kwargs))

    return call


for _name in (
    *("abs", "cos", "exp", "isnan", "rint", "sin", "sqrt", "tanh"),
    *("matmul", "clip", "where", "arange", "zeros"),
):
    globals()[_name] = _of_numpy(_name, "dtype")
for _name in ("max", "min", "sum"):
    globals()[_name] = _of_numpy(_name, "axis", "dtype", "keepdims")
for _name in ("argmax", "take", "take_along_axis"):
    globals()[_name] = _of_numpy(_name, "axis")
ascontiguousarray = _of_numpy("ascontiguousarray")
uint8, int8, int32 = np.uint8, np.int8, np.int32
float16, float32, float64, finfo = np.float16, np.float32, np.float64, np.finfo


def concatenate(arrays, axis=0):
    assert all(isinstance(a, ndarray) for a in arrays), "cupy.concatenate takes arrays of cupy"
    return _ours(np.concatenate([_plain(a) for a in arrays], axis=axis))


def empty(shape, dtype=float):
    return ndarray((shape,) if isinstance(shape, int) else shape, dtype)


def asnumpy(array):
    return np.array(array.view(np.ndarray), order="C")


def _synchronize():
    if LAUNCHED:
        error = LAUNCHED[0] if "sticky" in LAUNCHED[0] else LAUNCHED.pop(0)
        raise CUDARuntimeError(error)


class Stream:
    """One of its own."""

    ptr = 7

    def __init__(self, *, non_blocking):
        assert non_blocking

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def synchronize(self):
        _synchronize()


_runtime = SimpleNamespace(deviceSynchronize=_synchronize, CUDARuntimeError=CUDARuntimeError)
cuda = SimpleNamespace(Stream=Stream, runtime=_runtime)
