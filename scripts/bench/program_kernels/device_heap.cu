// planted: uninitialized
__global__ void heap(int* out) {
  int* mine = (int*)malloc(4 * sizeof(int));
  int* more = new int[2];
#ifdef PLANTED
  for (int i = 0; i < 3; ++i) mine[i] = i;
#else
  for (int i = 0; i < 4; ++i) mine[i] = i;
#endif
  more[0] = more[1] = 2;
  out[threadIdx.x] = mine[3] + more[0] + more[1];
  free(mine);
  delete[] more;
}
int main() {
  int* out;
  cudaMalloc(&out, 32 * sizeof(int));
  heap<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  cudaFree(out);
}
