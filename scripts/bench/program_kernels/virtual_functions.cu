// planted: race
#include <new>
struct Op {
  __device__ virtual float of(float x) const = 0;
};
struct Twice : Op {
  __device__ float of(float x) const override { return 2 * x; }
};
__global__ void make(Op** made) { *made = new Twice(); }
__global__ void use(Op** made, float* out) {
  __shared__ alignas(16) char raw[sizeof(Twice)];
  if (threadIdx.x == 0) new (raw) Twice();
#ifndef PLANTED
  __syncthreads();
#endif
  out[threadIdx.x] = (*made)->of(threadIdx.x) + reinterpret_cast<Op*>(raw)->of(1);
}
__global__ void end(Op** made) { delete static_cast<Twice*>(*made); }
int main() {
  Op** made;
  float* out;
  cudaMalloc(&made, sizeof *made);
  cudaMalloc(&out, 64 * sizeof *out);
  make<<<1, 1>>>(made);
  use<<<1, 64>>>(made, out);
  end<<<1, 1>>>(made);
  cudaDeviceSynchronize();
  cudaFree(made);
  cudaFree(out);
}
