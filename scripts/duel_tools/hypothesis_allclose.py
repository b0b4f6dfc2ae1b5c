"""Hypothesis: shapes and values are drawn, the tolerance is that of plain pytest; no deadline, and no database."""

from random import Random

import numpy as np
from _problem import Clock, Form, Found, Problem, main
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pytest_allclose import WIDE

from kernel_assay.corpus.formats import format_of
from kernel_assay.oracles.spec.axes import shape_of

MOST = 64
"""Extent, at most: Hypothesis makes its values one by one."""
BATCH = 200
"""Examples before the time is looked at."""


@st.composite
def tests(draw: st.DrawFn, problem: Problem) -> tuple[Form, dict[str, np.ndarray]]:
    """A test: extents and a seed for what is no plain float; floats up to 100 in magnitude, as people limit them."""
    extents = {name: draw(st.integers(1, MOST)) for name in problem.contract.dims}
    form = draw(st.sampled_from(list(problem.forms(extents.__getitem__))))
    inputs = problem.draw(form, draw(st.integers(0, 999)))
    for name in inputs:
        if problem.is_free(name, form):
            shape = shape_of(problem.contract.inputs[name].axes, form.dims, form.attrs)
            floats = st.floats(-100, 100, width=32, allow_subnormal=False)
            drawn = draw(arrays.arrays(np.float32, shape, elements=floats, fill=st.floats(-1, 1, width=32)))
            inputs[name] = drawn.astype(format_of(form.dtypes[name]).dtype)
    return form, inputs


def search(problem: Problem, random: Random, clock: Clock) -> None:
    """Draw tests until one fails; shrinking is left out: only whether something is found counts."""

    def check(test: tuple[Form, dict[str, np.ndarray]]) -> None:
        if clock.over:
            return
        clock.tests += 1
        form, inputs = test
        for name, got, due in problem.compared(form, inputs):
            tolerance = 1e-4 if due.dtype.name in WIDE else 1e-2
            numbers = got.astype(np.float64), due.astype(np.float64)
            if not np.allclose(*numbers, tolerance, tolerance, equal_nan=True):
                raise Found(f"{name} is not close, {dict(form.dims)} {dict(form.dtypes)}")

    quiet = settings(
        max_examples=BATCH, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    clock.begin()
    while not clock.over:
        seed(random.getrandbits(32))(quiet(given(tests(problem))(check)))()


if __name__ == "__main__":
    main(search)
