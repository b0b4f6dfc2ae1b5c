// planted: race
#include <cstdio>
#define CHECK(call)                                                          \
  do {                                                                       \
    cudaError_t error = (call);                                              \
    if (error != cudaSuccess) {                                              \
      printf("%s, line %d\n", cudaGetErrorString(error), __LINE__);          \
      return 1;                                                              \
    }                                                                        \
  } while (0)
#define LAUNCH(kernel, grid, block, ...) \
  kernel<<<grid, block>>>(__VA_ARGS__);  \
  CHECK(cudaGetLastError())
template <class T, int Step>
__global__ void smooth(const T* from, T* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[i] = from[i] + from[(i + Step) % n];
}
template <typename T>
int run(T* a, T* b, int n) {
  LAUNCH((smooth<T, 2>), dim3((n + 31) / 32, 1, 1), 32, a, b, n);
  smooth<T, (3 > 2 ? 1 : 2)>
      <<<dim3(4),
         dim3(32, 1)>>>(a,
                        b, n);
  return 0;
}
int main() {
  double *a, *b;
  CHECK(cudaMalloc(&a, 100 * sizeof(double)));
  CHECK(cudaMalloc(&b, 100 * sizeof(double)));
  double host[100];
  for (int i = 0; i < 100; ++i) host[i] = i;
  CHECK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
#ifdef PLANTED
  run(a, a, 100);
#else
  run(a, b, 100);
#endif
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
}
