// planted: host-memory
#include <vector>
__global__ void fill(int* x) { x[threadIdx.x] = 1; }
int main() {
  std::vector<int> host(32);
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
#ifdef PLANTED
  fill<<<1, 32>>>(host.data());
#else
  fill<<<1, 32>>>(x);
  cudaHostRegister(host.data(), 32 * sizeof(int), cudaHostRegisterDefault);
  fill<<<1, 32>>>(host.data());
  cudaDeviceSynchronize();
  cudaHostUnregister(host.data());
#endif
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  cudaFree(x);
}
