// What the kernels of this folder share. KERNEL(name, blocks, threads) is a pair: racy is false or true. All take the same:
//   out, flags   1024 zeros each, to read and to write       x       1024 numbers from 0 to 15
//   rows, cols   a graph of n vertices, in CSR form          n       512
#pragma once
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_pipeline_primitives.h>

#define KERNEL(name, blocks, threads) \
  template <bool racy>                \
  __global__ void name(int* out, int* flags, const int* x, const int* rows, const int* cols, int n)
#define ME (int)threadIdx.x
#define I (int)(blockIdx.x * blockDim.x + threadIdx.x)
#define ALL 0xffffffffu
#define BARRIER() \
  if (!racy) __syncthreads()
