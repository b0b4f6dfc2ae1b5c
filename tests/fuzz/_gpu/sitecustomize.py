"""A stand-in for a GPU in every process: kernels in CUDA C++ run in one order of threads, and nothing is judged there.

What a GPU lets pass in silence, it lets pass, too: races, reads out of bounds, memory that nobody has written.
"""

from kernel_assay.kernels.backend_registry import on_gpu
from kernel_assay.kernels.backends.cuda import CudaLoader
from kernel_assay.kernels.backends.cuda_support import driver, gpu_memory
from kernel_assay.kernels.backends.simt.toolchain import Mode
from kernel_assay.kernels.boundary import devices


class StandIn(CudaLoader):
    """Runs kernels as they stand, one warp after the other."""

    def prepare(self, seed, run, *, contracted=False):
        del seed, run, contracted

    def unavailable(self):
        return ""

    @property
    def modes(self):
        return (Mode.FAST,)


driver.device_count = gpu_memory.device_count = devices.device_count = lambda: 1
on_gpu()["cuda"] = StandIn()
