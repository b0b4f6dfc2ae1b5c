"""Samples as torch's OpInfo has them: extents 5, 10, 20, 3, 1 and 0, make_tensor's values from -9 to 9, dense and not.

Judged by torch.testing.assert_close with its own tolerances of each dtype, NaN equal to NaN. When all samples are
through, they are drawn with another seed, as long as there is time.
"""

from random import Random

import numpy as np
import torch
from _problem import Clock, Form, Found, Inputs, Problem, always, main

from kernel_assay.kernels.backend_registry import loader_of

EXTENTS = (5, 10, 20, 3, 1, 0)
"""S, M, L and XS of torch's tests, and the extents of their edge cases."""


def sampled(problem: Problem, form: Form, seed: int, *, dense: bool) -> Inputs:
    """The inputs of one sample; what is no plain float is filled as the op wants it."""
    inputs = problem.draw(form, seed)
    for name, array in inputs.items():
        if problem.is_free(name, form):
            values = torch.testing.make_tensor(array.shape, dtype=torch.float32, device="cpu")
            plain = values.numpy().astype(array.dtype)
            inputs[name] = plain if dense or not plain.ndim else np.repeat(plain, 2, axis=-1)[..., ::2]
    return inputs


def search(problem: Problem, random: Random, clock: Clock) -> None:
    """Go through all samples, again and again."""
    wrap = loader_of("torch").wrap
    clock.begin()
    while not clock.over:
        seed = random.getrandbits(16)
        torch.manual_seed(seed)
        for extent in EXTENTS:
            for form in problem.forms(always(extent)):
                for dense in (True, False):
                    if clock.over:
                        return
                    clock.tests += 1
                    for name, got, due in problem.compared(form, sampled(problem, form, seed, dense=dense)):
                        try:
                            torch.testing.assert_close(wrap(np.array(got)), wrap(due), equal_nan=True)
                        except AssertionError as error:
                            raise Found(f"{name}, extent {extent}: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    main(search)
