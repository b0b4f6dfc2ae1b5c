// planted: race
// What goes beyond a local array is one finding, and those behind it are found, too.
__global__ void rotate(int* x, int n) {
  int mine[4] = {n, n, n, n};
  mine[threadIdx.x % 4] = x[threadIdx.x];
  x[threadIdx.x] = mine[(threadIdx.x + 1) % n];
}
__global__ void shift(int* x) {
  __shared__ int tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
#ifndef PLANTED
  __syncthreads();
#endif
  x[threadIdx.x] = tile[31 - threadIdx.x];
}
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaMemset(x, 0, 32 * sizeof(int));
#ifdef PLANTED
  rotate<<<1, 32>>>(x, 5);
#else
  rotate<<<1, 32>>>(x, 4);
#endif
  shift<<<1, 32>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
