// What CUDA 13 has taken away, and programs still ask for.
#pragma once
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000
// Fields of a device's properties that are attributes now.
struct simt_DeviceProp : cudaDeviceProp {
  int clockRate, memoryClockRate, deviceOverlap, kernelExecTimeoutEnabled, computeMode, singleToDoublePrecisionPerfRatio;
  int cooperativeMultiDeviceLaunch, maxTexture1DLinear;
};
inline cudaError_t cudaGetDeviceProperties(simt_DeviceProp* to, int device) {
  *to = {};
  to->clockRate = 1980000, to->memoryClockRate = 2619000, to->deviceOverlap = 1, to->singleToDoublePrecisionPerfRatio = 2;
  to->maxTexture1DLinear = 1 << 28;
  return ::cudaGetDeviceProperties(static_cast<cudaDeviceProp*>(to), device);
}
#define cudaDeviceProp simt_DeviceProp

inline cudaError_t cudaMemPrefetchAsync(const void* at, size_t bytes, int device, cudaStream_t stream = nullptr) {
  return ::cudaMemPrefetchAsync(at, bytes, cudaMemLocation{cudaMemLocationTypeDevice, device}, 0u, stream);
}
inline cudaError_t cudaMemAdvise(const void* at, size_t bytes, cudaMemoryAdvise what, int device) {
  return ::cudaMemAdvise(at, bytes, what, cudaMemLocation{cudaMemLocationTypeDevice, device});
}
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
inline cudaError_t cudaThreadSetLimit(cudaLimit limit, size_t value) { return cudaDeviceSetLimit(limit, value); }
inline cudaError_t cudaThreadGetLimit(size_t* to, cudaLimit limit) { return cudaDeviceGetLimit(to, limit); }
inline cudaError_t cudaThreadSetCacheConfig(cudaFuncCache how) { return cudaDeviceSetCacheConfig(how); }
#endif
