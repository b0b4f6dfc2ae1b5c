// planted: uninitialized
struct Item {
  char kind;
  double value;
};
__global__ void fill(Item* x, bool all) {
  x[threadIdx.x].kind = 1;
  if (all) x[threadIdx.x].value = 0.5;
}
__global__ void move(const Item* x, Item* y, double* z) {
  y[threadIdx.x] = x[31 - threadIdx.x];
  z[threadIdx.x] = x[threadIdx.x].value;
}
int main() {
  Item *x, *y;
  double* z;
  cudaMalloc(&x, 32 * sizeof(Item));
  cudaMalloc(&y, 32 * sizeof(Item));
  cudaMalloc(&z, 32 * sizeof(double));
#ifdef PLANTED
  fill<<<1, 32>>>(x, false);
#else
  fill<<<1, 32>>>(x, true);
#endif
  move<<<1, 32>>>(x, y, z);
  Item host[32];
  cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(x), cudaFree(y), cudaFree(z);
}
