"""Memory that a program registers is judged as pinned memory is, by byte, and what lies beside it is not."""

import pytest
from _programs import compiled, ran

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """#include <cstdio>
#include <vector>
__global__ void fills(int* x) { x[threadIdx.x] = threadIdx.x; }
int main(int count, char**) {
  bool waits = count < 2;
  std::vector<int> all(96);
  int *mine = all.data() + 33, *x;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMalloc(&x, 128);
  fills<<<1, 32, 0, stream>>>(x);
  cudaMemcpyAsync(mine, x, 128, cudaMemcpyDeviceToHost, stream);
  mine[0] = 1;  // a copy to memory that is not registered has waited
  cudaHostRegister(mine, 128, cudaHostRegisterDefault);
  fills<<<1, 32, 0, stream>>>(mine);
  all[32] = all[65];  // beside it
  if (waits) cudaStreamSynchronize(stream);
  printf("%d ", mine[3]);  // READ
  cudaDeviceSynchronize();
  cudaMemcpyAsync(mine, x, 128, cudaMemcpyDeviceToHost, stream);
  if (waits) cudaStreamSynchronize(stream);
  printf("%d ", mine[31]);  // COPIED
  cudaDeviceSynchronize();
  cudaMemcpyAsync(x, mine, 128, cudaMemcpyHostToDevice, stream);
  if (waits) cudaStreamSynchronize(stream);
  mine[1] = 7;  // REUSED
  cudaMemset(mine, 0, 4);
  fills<<<1, 32, 0, stream>>>(mine);
  while (*(volatile int*)(mine + 31) != 31) {
  }
  printf("%d", mine[31]);  // polled: it has waited
  fills<<<1, 32, 0, stream>>>(mine);
  cudaHostUnregister(mine);
  mine[0] = 2;
  cudaStreamDestroy(stream), cudaFree(x);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("registered"), PROGRAM)


def test_a_host_that_waits_may_access_registered_memory(program, tmp_path):
    found, printed = ran(program, tmp_path)
    assert not found.findings
    assert printed == "3 31 31"


def test_a_host_that_does_not_wait_is_told_of_each_line(program, tmp_path):
    found, _ = ran(program, tmp_path, arguments=("too", "early"))
    lines = PROGRAM.splitlines()
    wanted = [
        n for mark in ("READ", "COPIED", "REUSED") for n, line in enumerate(lines, 1) if line.endswith(f"// {mark}")
    ]
    assert [(f.kind, f.place.line) for f in found.findings] == [("unsynchronized", n) for n in wanted]
    assert found.findings[0].message.startswith(
        f"the host reads mine (p.cu, line {wanted[0]}), while kernel fills (p.cu,"
    )
