// What a program's own code and the host's side know of a launch.
#pragma once
#include <cuda_runtime_api.h>

#include "../runtime.h"

namespace simt {
struct Config {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
// What a launch's arguments point to, null where one is no pointer.
struct Pointers {
  const void* const* begin;
  size_t count;
};
// Runs thread(arguments) in every thread; the error that <<< >>> leaves behind.
SIMT_API cudaError_t launch_kernel(const char* kernel, Place at, const Config& how, void (*thread)(const void*),
                                   const void* arguments, size_t bytes, const void* anchor, bool cooperative, Pointers pointers);
SIMT_API const char* first_argument(const char* call);
}  // namespace simt
