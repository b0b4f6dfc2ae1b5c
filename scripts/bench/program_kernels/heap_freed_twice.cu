// planted: double-free
__global__ void scratch(int n) {
  int* mine = (int*)malloc(n * sizeof(int));
  if (threadIdx.x % 2) free(mine);
#ifdef PLANTED
  free(mine);
#else
  else free(mine);
#endif
}
int main() {
  scratch<<<1, 32>>>(4);
  cudaDeviceSynchronize();
}
