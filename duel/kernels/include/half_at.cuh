// A scale of a block, which is aligned to 2 bytes.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(p)));
}
