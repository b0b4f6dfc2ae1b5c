"""Subjects in Triton on the CPU, by Triton's own interpreter as it is: its faults are shown as theirs."""

from kernel_assay.corpus.model.interpreter_mends import AS_IS
from kernel_assay.kernels.backends.triton import TritonLoader


class TritonAsIsLoader(TritonLoader):
    """Triton's interpreter, in which nothing is mended, checked or reversed, so that every version will do."""

    name = AS_IS
    judges = mended = False


LOADER = TritonAsIsLoader()
