// The device, its streams and events: everything in the order of the calls.
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <map>
#include <set>

#include "launch.h"
#include "streams.h"
#include "watch.h"

using namespace simt;

// The program may hold three quarters of the machine's memory, besides what its device's is reserved for.
void simt::limit_memory() {
  unsigned long long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (!f) return;
  if (fscanf(f, "%*u %*u %*u %*u %*u %llu", &pages) == 1) {
    rlimit most{pages * 4096 + device_memory() / 2 * 3, RLIM_INFINITY};
    setrlimit(RLIMIT_DATA, &most);
  }
  fclose(f);
}

namespace {
std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;

// An H100 of fewer multiprocessors, as the rest of the emulator.
int attribute(cudaDeviceAttr attr) {
  static const std::map<int, int> known{
      {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, 0x7fffffff}, {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10}, {cudaDevAttrTotalConstantMemory, 64 << 10},
      {cudaDevAttrWarpSize, 32}, {cudaDevAttrMaxRegistersPerBlock, 65536}, {cudaDevAttrClockRate, 1980000},
      {cudaDevAttrMultiProcessorCount, processors}, {cudaDevAttrComputeCapabilityMajor, 9}, {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048}, {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10}, {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrManagedMemory, 1}, {cudaDevAttrConcurrentManagedAccess, 1}, {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrCanMapHostMemory, 1}, {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32}, {cudaDevAttrMemoryPoolsSupported, 1}, {cudaDevAttrGlobalMemoryBusWidth, 5120},
      {cudaDevAttrMemoryClockRate, 2619000}, {cudaDevAttrL2CacheSize, 50 << 20}, {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrStreamPrioritiesSupported, 1}, {cudaDevAttrHostRegisterSupported, 1}, {cudaDevAttrComputePreemptionSupported, 1}};
  auto at = known.find(attr);
  return at == known.end() ? 0 : at->second;
}

double milliseconds(const timespec& from, const timespec& to) {
  return static_cast<double>(to.tv_sec - from.tv_sec) * 1e3 + static_cast<double>(to.tv_nsec - from.tv_nsec) * 1e-6;
}
}  // namespace

bool simt::is_stream(cudaStream_t s) { return reinterpret_cast<uintptr_t>(s) <= 2 || streams.count(s); }

API cudaError_t cudaDeviceSynchronize() {
  LOCKED;
  host_waits_for_all();
  return FINE;
}
API cudaError_t cudaGetDeviceCount(int* to) { return *to = 1, FINE; }
API cudaError_t cudaGetDevice(int* to) { return *to = 0, FINE; }
API cudaError_t cudaSetDevice(int device) { return device ? TELL(cudaErrorInvalidDevice, "one device is emulated, 0") : FINE; }
API cudaError_t cudaSetDeviceFlags(unsigned) { return FINE; }
API cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return device ? TELL(cudaErrorInvalidDevice, "") : FINE; }
API cudaError_t cudaChooseDevice(int* to, const cudaDeviceProp*) { return *to = 0, FINE; }
API cudaError_t cudaDriverGetVersion(int* to) { return *to = CUDART_VERSION, FINE; }
API cudaError_t cudaRuntimeGetVersion(int* to) { return *to = CUDART_VERSION, FINE; }
API cudaError_t cudaDeviceGetAttribute(int* to, cudaDeviceAttr attr, int device) {
  *to = attribute(attr);
  return device ? TELL(cudaErrorInvalidDevice, "one device is emulated, 0") : FINE;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device) return TELL(cudaErrorInvalidDevice, "one device is emulated, 0");
  *p = {};
  snprintf(p->name, sizeof p->name, "Emulated on the CPU");
  p->totalGlobalMem = device_memory();
  p->sharedMemPerBlock = 48 << 10, p->sharedMemPerBlockOptin = 227 << 10, p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32, p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 64 << 10, p->memPitch = 0x7fffffff, p->major = 9, p->minor = 0, p->textureAlignment = 512;
  p->multiProcessorCount = processors, p->l2CacheSize = 50 << 20, p->memoryBusWidth = 5120, p->asyncEngineCount = 3;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->concurrentManagedAccess = 1;
  p->cooperativeLaunch = p->streamPrioritiesSupported = p->hostRegisterSupported = p->memoryPoolsSupported = 1;
  p->texturePitchAlignment = 32, p->maxTexture1D = 131072, p->maxTexture2D[0] = 131072, p->maxTexture2D[1] = 65536;
  return FINE;
}
API cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return FINE; }
API cudaError_t cudaDeviceGetLimit(size_t* to, cudaLimit) { return *to = 8 << 20, FINE; }
API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return FINE; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, FINE; }
API cudaError_t cudaDeviceCanAccessPeer(int* to, int, int) { return *to = 0, FINE; }
API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return TELL(cudaErrorPeerAccessUnsupported, "one device is emulated"); }
API cudaError_t cudaDeviceDisablePeerAccess(int) { return TELL(cudaErrorPeerAccessNotEnabled, "one device is emulated"); }
API cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* to) { return *to = cudaFuncCachePreferNone, FINE; }
API cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* to) { return *to = cudaSharedMemBankSizeFourByte, FINE; }
API cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return FINE; }
API cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) { return FINE; }
API cudaError_t cudaGetDeviceFlags(unsigned* to) { return *to = cudaDeviceScheduleAuto, FINE; }
API cudaError_t cudaSetValidDevices(int*, int) { return FINE; }
API cudaError_t cudaDeviceGetPCIBusId(char* to, int n, int) { return snprintf(to, n, "0000:00:00.0"), FINE; }
API cudaError_t cudaProfilerStart() { return FINE; }
API cudaError_t cudaProfilerStop() { return FINE; }

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned flags, int priority) {
  LOCKED;
  streams.insert(*to = new CUstream_st{flags, priority, number_of_stream(!(flags & cudaStreamNonBlocking))});
  return FINE;
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* to, unsigned flags) { return cudaStreamCreateWithPriority(to, flags, 0); }
API cudaError_t cudaStreamCreate(cudaStream_t* to) { return cudaStreamCreateWithPriority(to, 0, 0); }
API cudaError_t cudaStreamDestroy(cudaStream_t s) {
  LOCKED;
  if (!streams.erase(s)) return TELL(cudaErrorInvalidResourceHandle, "no stream");
  delete s;
  return FINE;
}
API cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  LOCKED;
  if (!is_stream(s)) return TELL(cudaErrorInvalidResourceHandle, "no stream");
  return host_waits(s), FINE;
}
API cudaError_t cudaStreamQuery(cudaStream_t s) {
  LOCKED;
  if (!is_stream(s)) return TELL(cudaErrorInvalidResourceHandle, "no stream");
  return host_waits(s), FINE;
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  LOCKED;
  if (!is_stream(s) || !events.count(e)) return TELL(cudaErrorInvalidResourceHandle, "no stream, or no event");
  return stream_knows(s, e->knows), FINE;
}
API cudaError_t cudaStreamGetPriority(cudaStream_t s, int* to) {
  LOCKED;
  if (!is_stream(s)) return TELL(cudaErrorInvalidResourceHandle, "no stream");
  return *to = streams.count(s) ? s->priority : 0, FINE;
}
API cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* to) {
  LOCKED;
  if (!is_stream(s)) return TELL(cudaErrorInvalidResourceHandle, "no stream");
  return *to = streams.count(s) ? s->flags : 0, FINE;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* to) { return *to = cudaStreamCaptureStatusNone, FINE; }
API cudaError_t cudaStreamGetDevice(cudaStream_t, int* to) { return *to = 0, FINE; }
API cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* to) { return *to = reinterpret_cast<uintptr_t>(s), FINE; }
API cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return FINE; }
API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* with) {
  host_waits(s);
  f(with);
  return FINE;
}
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* with, unsigned) {
  host_waits(s);
  f(s, cudaSuccess, with);
  return FINE;
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned flags) {
  LOCKED;
  events.insert(*to = new CUevent_st{flags, false, {}, {}});
  return FINE;
}
API cudaError_t cudaEventCreate(cudaEvent_t* to) { return cudaEventCreateWithFlags(to, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t e) {
  LOCKED;
  if (!events.erase(e)) return TELL(cudaErrorInvalidResourceHandle, "no event");
  delete e;
  return FINE;
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  LOCKED;
  if (!events.count(e) || !is_stream(s)) return TELL(cudaErrorInvalidResourceHandle, "no event, or no stream");
  e->recorded = true;
  e->knows = recorded_in(s);
  clock_gettime(CLOCK_MONOTONIC, &e->at);
  return FINE;
}
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }
API cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  LOCKED;
  if (!events.count(e)) return TELL(cudaErrorInvalidResourceHandle, "no event");
  return host_knows(e->knows), FINE;
}
API cudaError_t cudaEventQuery(cudaEvent_t e) { return cudaEventSynchronize(e); }
API cudaError_t cudaEventElapsedTime(float* to, cudaEvent_t from, cudaEvent_t until) {
  LOCKED;
  if (!events.count(from) || !events.count(until)) return TELL(cudaErrorInvalidResourceHandle, "no event");
  if (!from->recorded || !until->recorded) return TELL(cudaErrorInvalidResourceHandle, "an event was never recorded");
  if ((from->flags | until->flags) & cudaEventDisableTiming) return TELL(cudaErrorInvalidResourceHandle, "an event without times");
  return *to = static_cast<float>(milliseconds(from->at, until->at)), FINE;
}

API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute what, int value) {
  LOCKED;
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return FINE;
  if (value < 0 || value > 227 << 10) return TELL(cudaErrorInvalidValue, "a block has up to 227 KB of shared memory");
  most_dynamic_shared = std::max<size_t>(most_dynamic_shared, value);
  return FINE;
}
API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return FINE; }
// The threads that a block of a kernel may have; 0 if it is no kernel. Asked, a kernel returns before it reads a parameter.
static int most_threads(const void* f) {
  if (!in_library(reinterpret_cast<uintptr_t>(f))) return 0;
  Launching asking("", {"", 0}, {}, false, true);
  reinterpret_cast<void (*)()>(const_cast<void*>(f))();
  return !asking.called ? 0 : static_cast<int>(asking.most_threads ? std::min(asking.most_threads, 1024ull) : 1024);
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, const void* f) {
  LOCKED;
  *to = {};
  to->maxThreadsPerBlock = most_threads(f), to->numRegs = 32, to->binaryVersion = to->ptxVersion = 90;
  to->sharedSizeBytes = static_shared(), to->maxDynamicSharedSizeBytes = static_cast<int>(most_dynamic_shared);
  return to->maxThreadsPerBlock ? FINE : TELL(cudaErrorInvalidDeviceFunction, "no kernel");
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* to, const void* f, int threads, size_t shared, unsigned) {
  LOCKED;
  if (threads < 1) return TELL(cudaErrorInvalidValue, "blocks of no threads");
  *to = threads > most_threads(f) ? 0 : static_cast<int>(blocks_at_once(threads, shared + static_shared()));
  return FINE;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* to, const void* f, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to, f, threads, shared, 0);
}
API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* to, const void*, int blocks, int threads) {
  if (blocks < 1 || threads < 1) return TELL(cudaErrorInvalidValue, "no blocks, or blocks of no threads");
  return *to = std::min<size_t>(48 << 10, (228 << 10) / blocks - static_shared()), FINE;
}

namespace {
struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named names[] = {
#include "errors.h"
};
const Named& named(cudaError_t error) {
  static constexpr Named unknown{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  for (const Named& n : names)
    if (n.error == error) return n;
  return unknown;
}
}  // namespace
API const char* cudaGetErrorName(cudaError_t error) { return named(error).name; }
API const char* cudaGetErrorString(cudaError_t error) { return named(error).text; }
