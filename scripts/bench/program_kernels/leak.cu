// planted: leak
int main() {
  int *x, *y;
  cudaMalloc(&x, 100);
  cudaMalloc(&y, 200);
  cudaFree(x);
#ifndef PLANTED
  cudaFree(y);
#endif
}
