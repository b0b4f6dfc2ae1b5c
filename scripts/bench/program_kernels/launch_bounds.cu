// planted: api-error
template <int ROWS>
__global__ void __launch_bounds__(32 * ROWS) fill(int* x) { x[threadIdx.x] = 1; }
int main() {
  int* x;
  cudaMalloc(&x, 1024 * sizeof(int));
#ifdef PLANTED
  fill<4><<<1, 256>>>(x);
#else
  fill<8><<<1, 256>>>(x);
#endif
  cudaDeviceSynchronize();
  cudaFree(x);
}
