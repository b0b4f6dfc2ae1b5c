// planted: double-free
int main() {
  int *x, *y;
  cudaMalloc(&x, 100);
  cudaMalloc(&y, 100);
  cudaFree(x);
#ifdef PLANTED
  cudaFree(x);
#endif
  cudaFree(y);
  cudaFree(nullptr);
}
