// planted: host-address
#include <new>
struct Op {
  __device__ virtual float of(float x) const = 0;
};
struct Scale : Op {
  float by;
  __host__ __device__ explicit Scale(float by) : by(by) {}
  __device__ float of(float x) const override { return by * x; }
};
__global__ void rebuild(Scale* op) { new (op) Scale(op->by); }
__global__ void use(const Op* op, float* x) { x[threadIdx.x] = op->of(threadIdx.x); }
int main() {
  Scale made(3), *op;
  float* x;
  cudaMalloc(&op, sizeof made);
  cudaMalloc(&x, 32 * sizeof(float));
  cudaMemcpy(op, &made, sizeof made, cudaMemcpyHostToDevice);
#ifndef PLANTED
  rebuild<<<1, 1>>>(op);
#endif
  use<<<1, 32>>>(op, x);
  cudaDeviceSynchronize();
  cudaFree(op);
  cudaFree(x);
}
