// planted: out-of-bounds
#include <vector>
struct Matrix {
  float* data;
  int rows, columns;
  __host__ __device__ float& at(int r, int c) const { return data[r * columns + c]; }
};
__global__ void scale(Matrix m, float by) {
  for (int c = threadIdx.x; c < m.columns; c += blockDim.x) m.at(blockIdx.x, c) *= by;
}
int main() {
  Matrix m{nullptr, 12, 33};
  std::vector<float> host(m.rows * m.columns, 1.0f);
  cudaMalloc(&m.data, host.size() * sizeof(float));
  cudaMemcpy(m.data, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
#ifdef PLANTED
  scale<<<m.rows + 1, 32>>>(m, 3.0f);
#else
  scale<<<m.rows, 32>>>(m, 3.0f);
#endif
  cudaMemcpy(host.data(), m.data, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(m.data);
  return host[5] == 3.0f ? 0 : 1;
}
