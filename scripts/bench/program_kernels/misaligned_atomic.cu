// planted: misaligned
__global__ void count(char* bytes) {
#ifdef PLANTED
  atomicAdd((int*)(bytes + 2), 1);
#else
  atomicAdd((int*)(bytes + 4), 1);
#endif
}
int main() {
  char* bytes;
  cudaMalloc(&bytes, 64);
  cudaMemset(bytes, 0, 64);
  count<<<2, 32>>>(bytes);
  cudaDeviceSynchronize();
  cudaFree(bytes);
}
