"""Plain pytest: a test for each dtype, attribute and round shape, normal values of one seed, assert_allclose.

Tolerances are those most people write: rtol and atol 1e-2, of float32 and wider 1e-4 (as KernelBench has them). More
seconds change nothing: the tests are what they are.
"""

import sys

import _problem
import numpy as np
import pytest
from _problem import ROUND, Clock, Form, Found, Problem, always, main

WIDE = ("float32", "float64")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    forms = [form for extent in ROUND for form in _problem.asked[0].forms(always(extent))]
    metafunc.parametrize("form", forms, ids=str)
    _problem.asked[1].begin()  # what pytest takes to begin is no search


def test_kernel(form: Form) -> None:
    """Compare the kernel with its reference."""
    problem, clock = _problem.asked
    if clock.over:
        pytest.skip("the time is up")
    clock.tests += 1
    with np.errstate(all="ignore"):
        for _, got, due in problem.compared(form, problem.draw(form, 0)):
            tolerance = 1e-4 if due.dtype.name in WIDE else 1e-2
            numbers = got.astype(np.float64), due.astype(np.float64)
            np.testing.assert_allclose(*numbers, rtol=tolerance, atol=tolerance)


class Failures:
    """What the first test that failed has said."""

    said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.said = self.said or report.longreprtext.strip().splitlines()[-1]


def search(problem: Problem, random: object, clock: Clock) -> None:
    """Run this file's tests of the kernel, as pytest does, up to the first that fails."""
    del random
    failures, _problem.asked = Failures(), (problem, clock)
    alone = ["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:kernel_assay", "-c", "/dev/null"]
    pytest.main([*alone, "--rootdir", sys.path[0], __file__], plugins=[failures])
    if failures.said:
        raise Found(failures.said)


if __name__ == "__main__":
    main(search)
