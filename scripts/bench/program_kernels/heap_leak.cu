// planted: leak
__device__ int* kept;
__global__ void take(int* out) {
  kept = (int*)malloc(4 * sizeof(int));
  kept[0] = 1;
  out[0] = kept[0];
}
__global__ void drop() { free(kept); }
int main() {
  int* out;
  cudaMalloc(&out, sizeof(int));
  take<<<1, 1>>>(out);
#ifndef PLANTED
  drop<<<1, 1>>>();
#endif
  cudaDeviceSynchronize();
  cudaFree(out);
}
