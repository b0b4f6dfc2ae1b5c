"""A stand-in for a GPU in every process: kernels in CUDA C++ run in one order of threads, and nothing is judged there.

What a GPU lets pass in silence, it lets pass, too: races, reads out of bounds, memory that nobody has written.
"""

from kernels import gpu, gpu_loaders, places
from kernels.loaders.cuda import CudaLoader
from kernels.simt.toolchain import Mode


class StandIn(CudaLoader):
    """Runs kernels as they stand, one warp after the other."""

    def prepare(self, seed, run, *, contracted=False):
        del seed, run, contracted

    def unavailable(self):
        return ""

    @property
    def modes(self):
        return (Mode.FAST,)


gpu.device_count = gpu_loaders.device_count = places.device_count = lambda: 1
gpu_loaders.ON_GPU["cuda"] = StandIn()
