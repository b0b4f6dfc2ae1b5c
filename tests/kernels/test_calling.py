"""A signature decides how a function is called, and what cannot be called is told what it must be."""

import functools

import pytest

from corpus.errors import UsageError
from kernels.calling import Interface, bind

PLAIN = Interface(("x",), ("out",), ())
GEMM = Interface(("a", "b"), ("out",), ())
NORM = Interface(("x", "w"), ("out",), ("eps",))
TWO = Interface(("x",), ("mean", "rest"), ())


class Callable:
    def __call__(self, out, x):
        return None

    def method(self, x):
        return None


@pytest.mark.parametrize(
    ("function", "face", "returns"),
    [
        (lambda x: 0, PLAIN, True),
        (lambda out, x: 0, PLAIN, False),
        (lambda y, /: 0, PLAIN, True),
        (lambda o, i, /: 0, PLAIN, False),
        (lambda *args: 0, PLAIN, False),
        (lambda out, *rest: 0, GEMM, False),
        (lambda x, out=None: 0, PLAIN, True),
        (lambda a, b: 0, GEMM, True),
        (lambda out, a, b: 0, GEMM, False),
        (lambda x, w, eps: 0, NORM, True),
        (lambda x, w, eps=1e-5: 0, NORM, True),
        (lambda out, x, w, eps: 0, NORM, False),
        (lambda out, x, w, *, eps: 0, NORM, False),
        (lambda x, w, **attrs: 0, NORM, True),
        (lambda out, x, w, **attrs: 0, NORM, False),
        (lambda *args, **attrs: 0, NORM, False),
        (lambda x, w, *, eps, mode="fast": 0, NORM, True),
        (lambda x: 0, TWO, True),
        (lambda mean, rest, x: 0, TWO, False),
        (Callable(), PLAIN, False),
        (Callable().method, PLAIN, True),
        (functools.partial(lambda k, x: 0, 3), PLAIN, True),
        (max, PLAIN, True),
    ],
)
def test_style(function, face, returns):
    bound = bind(function, face, "file.py:run")
    assert bound.returns is returns
    assert bound.call is function


def test_attributes_are_taken_by_name_wherever_they_stand():
    bound = bind(lambda x, eps, w: (x, w, eps), NORM, "f")
    assert bound.returns


@pytest.mark.parametrize(
    ("function", "face", "words"),
    [
        (lambda: 0, PLAIN, "takes 0 tensor arguments, but it must be run(out, x) or run(x)"),
        (lambda a, b, c: 0, PLAIN, "takes 3 tensor arguments, but it must be run(out, x) or run(x)"),
        (lambda a: 0, GEMM, "takes 1 tensor argument, but it must be run(out, a, b) or run(a, b)"),
        (lambda m, x: 0, TWO, "takes 2 tensor arguments, but it must be run(mean, rest, x) or run(x)"),
        (lambda x, w: 0, NORM, "does not take the attribute 'eps'; it must be run(out, x, w, *, eps)"),
        (lambda *args: 0, NORM, "does not take the attribute 'eps'"),
        (lambda x, *, mode: 0, PLAIN, "asks for 'mode', which the op does not have"),
    ],
)
def test_what_cannot_be_called_is_told_what_it_must_be(function, face, words):
    with pytest.raises(UsageError) as error:
        bind(function, face, "file.py:run")
    text = str(error.value)
    assert words in text
    assert text.startswith("file.py:run ")
    assert "\n" not in text


def test_an_attribute_that_cannot_be_passed_by_name_is_refused():
    with pytest.raises(UsageError):
        bind(lambda x, w, eps, /: 0, NORM, "f")


SCALED = Interface(("x",), ("out",), ("axis", "scale"), {"scale": 1.0})


def test_an_optional_attribute_may_be_left_out():
    def plain(x, *, axis):
        return x, axis

    bound = bind(plain, SCALED, "f")
    assert bound.fixed == {"scale": 1.0}
    assert bound.declines({"axis": 1, "scale": 1.0}) == ""
    assert bound.declines({"axis": 1, "scale": 2.0}) == "it takes no scale, so only scale=1.0 is tried"
    assert bound.call(7, **bound.attributes({"axis": 1, "scale": 1.0})) == (7, 1)


@pytest.mark.parametrize("function", [lambda x, *, axis, scale: x, lambda x, **attrs: x, lambda x, axis, scale=1.0: x])
def test_one_that_takes_it_is_given_it(function):
    bound = bind(function, SCALED, "f")
    assert bound.fixed == {}
    assert bound.declines({"axis": 1, "scale": 2.0}) == ""
    assert bound.attributes({"axis": 1, "scale": 2.0}) == {"axis": 1, "scale": 2.0}


def test_other_attributes_must_be_taken():
    with pytest.raises(UsageError, match="does not take the attribute 'axis'"):
        bind(lambda x, *, scale: x, SCALED, "f")
