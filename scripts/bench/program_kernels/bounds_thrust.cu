// planted: out-of-bounds
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
__global__ void twice(int* x, int n) {
#ifdef PLANTED
  if (threadIdx.x <= n) x[threadIdx.x] *= 2;
#else
  if (threadIdx.x < n) x[threadIdx.x] *= 2;
#endif
}
int main() {
  thrust::device_vector<int> v(100);
  thrust::sequence(v.begin(), v.end());
  twice<<<1, 128>>>(thrust::raw_pointer_cast(v.data()), 100);
  return thrust::reduce(v.begin(), v.end()) != 9900;  // waits for the kernel
}
