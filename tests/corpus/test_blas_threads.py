"""Small matrices are multiplied in one thread, and larger ones by as many as before."""

import numpy as np
import pytest

from kernel_assay.corpus.process import blas_threads


def test_one_thread_for_a_while() -> None:
    """The number is 1 inside, and afterwards what it was."""
    np.zeros((2, 2)) @ np.zeros((2, 2))
    asked = [get for get, _ in blas_threads._controls()]
    if not asked:
        pytest.skip("numpy multiplies by another library than OpenBLAS here")
    before = [get() for get in asked]
    with blas_threads.one_blas_thread():
        assert {get() for get in asked} == {1}
    assert [get() for get in asked] == before
