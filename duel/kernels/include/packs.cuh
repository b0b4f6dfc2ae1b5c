// As many elements as one load or store of a thread takes.
#pragma once
#include <stdint.h>

template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

__device__ inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
