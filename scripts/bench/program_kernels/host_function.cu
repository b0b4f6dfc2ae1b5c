// planted: host-address
using Operation = float (*)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ Operation held = twice;
struct Step {
  int count;
  Operation of;
};
__global__ void apply(float* x, const Step* step) {
  for (int i = 0; i < step->count; ++i) x[threadIdx.x] = step->of(x[threadIdx.x]);
}
int main() {
  float* x;
  Step step{2, twice}, *on_device;
#ifndef PLANTED
  cudaMemcpyFromSymbol(&step.of, held, sizeof step.of);
#endif
  cudaMalloc(&x, 32 * sizeof(float));
  cudaMalloc(&on_device, sizeof step);
  cudaMemset(x, 0, 32 * sizeof(float));
  cudaMemcpy(on_device, &step, sizeof step, cudaMemcpyHostToDevice);
  apply<<<1, 32>>>(x, on_device);
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(on_device);
}
