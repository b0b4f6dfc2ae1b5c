// planted: host-access
// Algorithms over memory of cudaMalloc are the device's by their policy or their pointers' type, and else the host's.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
__global__ void fill(int* x) { x[threadIdx.x] = 63 - threadIdx.x; }
int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof(int));
  fill<<<1, 64>>>(x);
#ifdef PLANTED
  thrust::sort(x, x + 64);
#else
  thrust::sort(thrust::device, x, x + 64);
#endif
  thrust::device_ptr<int> p(x);
  int sum = thrust::reduce(p, p + 64), last = p[63];
  cudaFree(x);
  return sum != 2016 || last != 63;
}
