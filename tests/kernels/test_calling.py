"""A signature decides how a function is called, and what cannot be called is told what it must be."""

import functools
import json
from dataclasses import asdict

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.support.signature import Interface, Unfitted, bind, unbound
from kernel_assay.kernels.worker.exceptions import timed

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
        (lambda: 0, PLAIN, "takes (), but it must be run(out, x) or run(x)"),
        (lambda a, b, c: 0, PLAIN, "takes (a, b, c), but it must be run(out, x) or run(x)"),
        (lambda a: 0, GEMM, "takes (a), but it must be run(out, a, b) or run(a, b)"),
        (lambda b, a: 0, GEMM, "takes (b, a), but 'a' is passed where it has 'b'; it must be run(out, a, b)"),
        (lambda x, dim: 0, PLAIN, "takes (x, dim), but 'out' is passed where it has 'x'; it must be run(out, x)"),
        (lambda m, x: 0, TWO, "takes (m, x), but it must be run(mean, rest, x) or run(x)"),
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


def test_one_that_takes_it_is_given_the_plain_value_if_the_case_leaves_it_out():
    bound = bind(lambda x, *, axis, scale: (axis, scale), SCALED, "f")
    assert bound.attributes({"axis": 1}) == {"axis": 1, "scale": 1.0}


def test_other_attributes_must_be_taken():
    with pytest.raises(UsageError, match="does not take the attribute 'axis'"):
        bind(lambda x, *, scale: x, SCALED, "f")


MASKED = Interface(("x", "mask"), ("out",), ("scale",), {"scale": 1.0}, ("mask",))
TABLES = Interface(("x", "cos", "sin"), ("out",), (), extra=("cos", "sin"))


@pytest.mark.parametrize(
    ("function", "returns"),
    [
        (lambda x, mask=None: 0, True),
        (lambda x, *, mask=None: 0, True),
        (lambda out, x, mask=None, scale=1.0: 0, False),
        (lambda x, **given: 0, True),
        (lambda *tensors, **given: 0, False),
    ],
)
def test_an_optional_input_that_is_taken_may_be_there_or_not(function, returns):
    bound = bind(function, MASKED, "f")
    assert bound.returns is returns
    assert (bound.refused, bound.needed) == (frozenset(), frozenset())
    assert bound.declines({}, ["x", "mask"]) == bound.declines({}, ["x"]) == ""


@pytest.mark.parametrize("function", [lambda x: 0, lambda out, x, *, scale: 0, lambda *tensors: 0, max])
def test_an_optional_input_that_is_not_taken_is_declined(function):
    bound = bind(function, MASKED, "f")
    assert bound.refused == {"mask"}
    assert bound.declines({}, ["x", "mask"]) == "it takes no mask"
    assert bound.declines({}, ["x"]) == ""


@pytest.mark.parametrize("function", [lambda x, mask: 0, lambda out, x, mask: 0, lambda out, x, *, mask, scale=2.0: 0])
def test_an_optional_input_without_a_default_is_needed(function):
    bound = bind(function, MASKED, "f")
    assert bound.needed == {"mask"}
    assert bound.declines({}, ["x"]) == "it needs mask"
    assert bound.declines({}, ["x", "mask"]) == ""


def test_optional_inputs_are_taken_one_by_one():
    bound = bind(lambda out, x, cos: 0, TABLES, "f")
    assert (bound.needed, bound.refused) == ({"cos"}, {"sin"})
    assert bound.declines({}, ["x", "cos", "sin"]) == "it takes no sin"
    assert bound.declines({}, ["x"]) == "it needs cos"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, mask, /: 0, "takes 'mask' by position only, but optional inputs are passed by name"),
        (lambda x, scale, /: 0, "takes 'scale' by position only, but attributes are passed by name"),
        (
            lambda: 0,
            "takes (), but it must be run(out, x, *, mask=None, scale=1.0) or run(x, ",
        ),
        (lambda y, bias: 0, None),
        (lambda x, bias: 0, "takes (x, bias), but 'out' is passed where it has 'x'"),
        (lambda x, *, bias: 0, "asks for 'bias', which the op does not have"),
    ],
)
def test_what_takes_optional_inputs_in_another_way(function, words):
    """Two positional parameters of other names are an output and the input."""
    if words is None:
        assert not bind(function, MASKED, "f").returns
        return
    with pytest.raises(UsageError) as error:
        bind(function, MASKED, "f")
    assert words in str(error.value)


class Launched(Unfitted):
    """As a CUDA file: it knows its arguments by name only."""

    def __init__(self, *names):
        self.known = set(names)

    @property
    def names(self):
        return self.known

    def __call__(self, face):
        return lambda *tensors, **named: (tensors, named)


def test_a_subject_that_knows_its_arguments_by_name_needs_what_it_names():
    plain, masked = (bind(Launched("out", "x", *more), MASKED, "f") for more in ((), ("mask", "scale")))
    assert (plain.refused, plain.needed, plain.fixed, plain.returns) == ({"mask"}, set(), {"scale": 1.0}, False)
    assert (masked.refused, masked.needed, masked.fixed) == (set(), {"mask"}, {})
    assert masked.call(1, 2, mask=3) == ((1, 2), {"mask": 3})


def test_an_interface_can_be_sent():
    sent = json.loads(json.dumps(asdict(MASKED)))
    assert Interface.read(sent) == MASKED
    assert MASKED.always == ("x",)


def passes_on(*args, **named):
    return inner(*args, **named)


def inner(x):
    return x


def breaks(*args, **named):
    return passes_on(*args, **named)


def broken(out, x):
    inner(out, x)


@pytest.mark.parametrize(("function", "told"), [(passes_on, True), (np.dot, True), (breaks, False), (broken, False)])
def test_a_call_that_does_not_get_to_its_function_is_told_from_an_error_in_it(function, told):
    bound = bind(function, PLAIN, "f")
    with pytest.raises(TypeError) as error:
        timed(functools.partial(bound.call, *[np.zeros(2)] * (2 if function is broken else 4)))
    assert bool(unbound(bound, error.value)) is told
