// Allocations, copies and sets of the runtime API. Each is done at once; what is asynchronous is only judged so.
#include <stdlib.h>
#include <string.h>

#include "streams.h"
#include "textures.h"
#include "watch.h"

using namespace simt;

namespace {
cudaError_t give(void** to, size_t bytes, Kind kind, const char* name, uintptr_t pc) {
  LOCKED;
  if (!to) return told(cudaErrorInvalidValue, name, pc, "null");
  if (cudaError_t stands = told(cudaSuccess, name, pc)) return stands;
  *to = nullptr;
  if (!bytes) return cudaSuccess;
  if (bytes > device_memory() - allocated() || !(*to = allocate(bytes, kind, pc)))
    return told(cudaErrorMemoryAllocation, name, pc, "more than the device's memory");
  return cudaSuccess;
}

// In a stream; null: the host waits, and the default stream does it.
using In = const cudaStream_t*;
void begin(In stream, const char* name) { begin_work(stream ? *stream : nullptr, name, calls_here()); }

cudaError_t take_back(void* at, bool of_host, const char* name, uintptr_t pc, In stream = nullptr) {
  LOCKED;
  if (cudaError_t stands = told(cudaSuccess, name, pc)) return stands;
  Memory m = memory_at(reinterpret_cast<uintptr_t>(at));
  if (!stream) host_waits_for_all();
  else if (begin(stream, name); m.kind == Kind::device && !m.freed && !m.offset) judge_copy(at, m.bytes, true, name, pc);
  Open opened;
  return release(at, of_host, pc);  // its finding says more than the error does
}

bool is_plain(const Memory& m, const void* at) {
  return m.kind == Kind::none && at && !is_registered(at) && !in_library(reinterpret_cast<uintptr_t>(at));  // perhaps a variable that a macro made
}

// Whether the memory is where the direction says.
const char* misdirected(const void* to, const void* from, cudaMemcpyKind kind, bool of_symbol) {
  Memory t = memory_at(reinterpret_cast<uintptr_t>(to)), f = memory_at(reinterpret_cast<uintptr_t>(from));
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) return nullptr;
  if (kind < 0 || kind > cudaMemcpyDefault) return "no direction";
  if (to_device && (is_plain(t, to) || (!of_symbol && is_of_host(to)))) return "the target is memory of the host";
  if (from_device && (is_plain(f, from) || (!of_symbol && is_of_host(from)))) return "the source is memory of the host";
  if (!to_device && t.kind == Kind::device) return "the target is memory of the device";
  if (!from_device && f.kind == Kind::device) return "the source is memory of the device";
  return nullptr;
}

struct Block {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch, width, height;
};

cudaError_t copy(const Block& b, cudaMemcpyKind kind, In stream, const char* name, uintptr_t pc) {
  LOCKED;
  if (cudaError_t stands = told(cudaSuccess, name, pc)) return stands;
  if (stream && !is_stream(*stream)) return told(cudaErrorInvalidResourceHandle, name, pc, "no stream");
  begin(stream, name);
  bool waits = !stream || is_plain(memory_at(reinterpret_cast<uintptr_t>(b.to)), b.to);
  bool any = b.width && b.height;
  if (any && (!b.to || !b.from)) return told(cudaErrorInvalidValue, name, pc, "null");
  if (b.height > 1 && (b.width > b.to_pitch || b.width > b.from_pitch)) return told(cudaErrorInvalidPitchValue, name, pc, "");
  if (const char* why = any ? misdirected(b.to, b.from, kind, strstr(name, "Symbol")) : nullptr)
    return told(strncmp(why, "no", 2) ? cudaErrorInvalidValue : cudaErrorInvalidMemcpyDirection, name, pc, why);
  Open opened;
  for (size_t row = 0; any && row < b.height; ++row) {
    auto* to = static_cast<char*>(b.to) + row * b.to_pitch;
    auto* from = static_cast<const char*>(b.from) + row * b.from_pitch;
    if (!judge_copy(to, b.width, true, name, pc) || !judge_copy(from, b.width, false, name, pc)) return cudaErrorInvalidValue;
    if (memory_at(reinterpret_cast<uintptr_t>(to)).kind != Kind::device) host_reads(from, b.width);
    memmove(to, from, b.width);
    copy_states(to, from, b.width);
    cross(to, from, b.width);
  }
  if (waits) host_waits(stream ? *stream : nullptr);
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, In stream, const char* name, uintptr_t pc) {
  return copy({to, bytes, from, bytes, bytes, 1}, kind, stream, name, pc);
}

cudaError_t set(void* at, size_t pitch, int value, size_t width, size_t height, In stream, const char* name, uintptr_t pc) {
  LOCKED;
  if (cudaError_t stands = told(cudaSuccess, name, pc)) return stands;
  if (stream && !is_stream(*stream)) return told(cudaErrorInvalidResourceHandle, name, pc, "no stream");
  begin(stream, name);
  if (!width || !height) return cudaSuccess;
  if (is_plain(memory_at(reinterpret_cast<uintptr_t>(at)), at) || is_of_host(at) || !at)
    return told(cudaErrorInvalidValue, name, pc, at ? "memory of the host" : "null");
  Open opened;
  for (size_t row = 0; row < height; ++row) {
    char* to = static_cast<char*>(at) + row * pitch;
    if (!judge_copy(to, width, true, name, pc)) return cudaErrorInvalidValue;
    memset(to, value, width);
    copy_states(to, nullptr, width);
  }
  if (!stream && memory_at(reinterpret_cast<uintptr_t>(at)).kind != Kind::device) host_waits(nullptr);
  return cudaSuccess;
}

cudaError_t symbol(const void* at, size_t offset, size_t bytes, char** found, bool is_write, const char* name, uintptr_t pc) {
  Memory m = memory_at(reinterpret_cast<uintptr_t>(at));
  if (!in_library(reinterpret_cast<uintptr_t>(at))) return told(cudaErrorInvalidSymbol, name, pc, "no variable of the device");
  *found = static_cast<char*>(const_cast<void*>(at)) + offset;
  if (m.kind == Kind::none || offset + bytes <= m.bytes) return cudaSuccess;  // of a macro's nobody knows the size
  m.offset += static_cast<int64_t>(offset);
  report(Misuse::copied_beyond, pc, m, name, bytes, is_write);
  return cudaErrorInvalidValue;
}
}  // namespace

API cudaError_t cudaMalloc(void** to, size_t bytes) { return give(to, bytes, Kind::device, __func__, CALLER); }
API cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t) { return give(to, bytes, Kind::device, __func__, CALLER); }
API void* simt_allocate_ordered(size_t bytes) {
  LOCKED;
  return simt::allocate_ordered(bytes ? bytes : 1, CALLER);
}
API cudaError_t cudaMallocManaged(void** to, size_t bytes, unsigned) { return give(to, bytes, Kind::managed, __func__, CALLER); }
API cudaError_t cudaMallocHost(void** to, size_t bytes) { return give(to, bytes, Kind::pinned, __func__, CALLER); }
API cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) { return give(to, bytes, Kind::pinned, __func__, CALLER); }
API cudaError_t cudaMallocPitch(void** to, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return give(to, *pitch * height, Kind::device, __func__, CALLER);
}
API cudaError_t cudaMalloc3D(cudaPitchedPtr* to, cudaExtent e) {
  size_t pitch = (e.width + 511) / 512 * 512;
  *to = {nullptr, pitch, e.width, e.height};
  return give(&to->ptr, pitch * e.height * e.depth, Kind::device, __func__, CALLER);
}
API cudaError_t cudaFree(void* at) { return take_back(at, false, __func__, CALLER); }
API cudaError_t cudaFreeAsync(void* at, cudaStream_t s) { return take_back(at, false, __func__, CALLER, &s); }
API cudaError_t cudaFreeHost(void* at) { return take_back(at, true, __func__, CALLER); }

API cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  LOCKED;
  if (!at || !bytes) return TELL(cudaErrorInvalidValue, "nothing to register");
  register_host(at, bytes, CALLER);
  return FINE;
}
API cudaError_t cudaHostUnregister(void* at) {
  LOCKED;
  return unregister_host(at) ? FINE : TELL(cudaErrorHostMemoryNotRegistered, "");
}
API cudaError_t cudaHostGetDevicePointer(void** to, void* at, unsigned) {
  *to = at;
  return FINE;
}
API cudaError_t cudaMemGetInfo(size_t* free, size_t* whole) {
  LOCKED;
  *whole = device_memory(), *free = *whole - allocated();
  return FINE;
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* to, const void* at) {
  LOCKED;
  Kind kind = memory_at(reinterpret_cast<uintptr_t>(at)).kind;
  *to = {};
  to->type = kind == Kind::none ? cudaMemoryTypeUnregistered : kind == Kind::pinned ? cudaMemoryTypeHost
             : kind == Kind::managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
  to->devicePointer = kind == Kind::none ? nullptr : const_cast<void*>(at);
  to->hostPointer = kind == Kind::device ? nullptr : const_cast<void*>(at);
  return FINE;
}

API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind k) { return copy(to, from, n, k, nullptr, __func__, CALLER); }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t s) {
  return copy(to, from, n, k, &s, __func__, CALLER);
}
API cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
  return copy(to, from, n, cudaMemcpyDeviceToDevice, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s) {
  return copy(to, from, n, cudaMemcpyDeviceToDevice, &s, __func__, CALLER);
}
API cudaError_t cudaMemcpy2D(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, cudaMemcpyKind k) {
  return copy({to, tp, from, fp, w, h}, k, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t s) {
  return copy({to, tp, from, fp, w, h}, k, &s, __func__, CALLER);
}
API cudaError_t cudaMemset(void* at, int value, size_t n) { return set(at, n, value, n, 1, nullptr, __func__, CALLER); }
API cudaError_t cudaMemsetAsync(void* at, int value, size_t n, cudaStream_t s) { return set(at, n, value, n, 1, &s, __func__, CALLER); }
API cudaError_t cudaMemset2D(void* at, size_t pitch, int value, size_t w, size_t h) { return set(at, pitch, value, w, h, nullptr, __func__, CALLER); }
API cudaError_t cudaMemset2DAsync(void* at, size_t pitch, int value, size_t w, size_t h, cudaStream_t s) {
  return set(at, pitch, value, w, h, &s, __func__, CALLER);
}
API cudaError_t cudaMemset3D(cudaPitchedPtr at, int value, cudaExtent e) {
  return set(at.ptr, at.pitch, value, e.width, e.height * e.depth, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemset3DAsync(cudaPitchedPtr at, int value, cudaExtent e, cudaStream_t s) {
  return set(at.ptr, at.pitch, value, e.width, e.height * e.depth, &s, __func__, CALLER);
}
API cudaError_t cudaMallocFromPoolAsync(void** to, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return give(to, bytes, Kind::device, __func__, CALLER);
}
API cudaError_t cudaHostGetFlags(unsigned* to, void*) { return *to = cudaHostAllocDefault, FINE; }
// There is one pool, which gives back at once what is freed.
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* to, int) { return *to = reinterpret_cast<cudaMemPool_t>(1), FINE; }
API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* to, int device) { return cudaDeviceGetDefaultMemPool(to, device); }
API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return FINE; }
API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return FINE; }

#define TO_SYMBOL(NAME, STREAM, ...)                                                                                    \
  API cudaError_t NAME(const void* s, const void* from, size_t n, size_t offset, cudaMemcpyKind k __VA_ARGS__) {       \
    LOCKED;                                                                                                            \
    char* at;                                                                                                          \
    cudaError_t e = symbol(s, offset, n, &at, true, __func__, CALLER);                                                 \
    return e ? e : copy(at, from, n, k, STREAM, __func__, CALLER);                                                      \
  }
#define FROM_SYMBOL(NAME, STREAM, ...)                                                                                  \
  API cudaError_t NAME(void* to, const void* s, size_t n, size_t offset, cudaMemcpyKind k __VA_ARGS__) {               \
    LOCKED;                                                                                                            \
    char* at;                                                                                                          \
    cudaError_t e = symbol(s, offset, n, &at, false, __func__, CALLER);                                                \
    return e ? e : copy(to, at, n, k, STREAM, __func__, CALLER);                                                        \
  }
#define WITH_STREAM , cudaStream_t stream
TO_SYMBOL(cudaMemcpyToSymbol, nullptr)
TO_SYMBOL(cudaMemcpyToSymbolAsync, &stream, WITH_STREAM)
FROM_SYMBOL(cudaMemcpyFromSymbol, nullptr)
FROM_SYMBOL(cudaMemcpyFromSymbolAsync, &stream, WITH_STREAM)

API cudaError_t cudaGetSymbolAddress(void** to, const void* s) {
  LOCKED;
  char* at = nullptr;
  cudaError_t e = symbol(s, 0, 0, &at, false, __func__, CALLER);
  *to = at;
  host_learns(to, sizeof *to);
  return e ? e : FINE;
}
API cudaError_t cudaGetSymbolSize(size_t* to, const void* s) {
  LOCKED;
  char* at;
  *to = memory_at(reinterpret_cast<uintptr_t>(s)).bytes;
  cudaError_t e = symbol(s, 0, 0, &at, false, __func__, CALLER);
  return e ? e : FINE;
}

#if CUDART_VERSION >= 13000
#define LOCATION cudaMemLocation, unsigned
#define PLACE cudaMemLocation
#else
#define LOCATION int
#define PLACE int
#endif
// The form of CUDA 12 is in legacy.h.
API cudaError_t cudaMemPrefetchAsync(const void*, size_t, LOCATION, cudaStream_t) { return FINE; }
API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, PLACE) { return FINE; }

// ---- arrays and textures ---------------------------------------------------------------------------------------------

struct cudaArray {
  char* data;
  size_t width, height, depth, element;  // elements; bytes
  cudaChannelFormatDesc format;
};

// Kernels read them: what lies in this library is no access of theirs.
static struct {
  Texture texture;
  bool used;
} textures[4096];

API cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) { return {x, y, z, w, f}; }

static cudaError_t give_array(cudaArray_t* to, const cudaChannelFormatDesc& d, cudaExtent e, const char* name, uintptr_t pc) {
  LOCKED;
  size_t element = bytes_of(d), height = std::max<size_t>(e.height, 1), depth = std::max<size_t>(e.depth, 1);
  void* data;
  cudaError_t error = give(&data, e.width * height * depth * element, Kind::device, name, pc);
  *to = error ? nullptr : new cudaArray{static_cast<char*>(data), e.width, height, depth, element, d};
  return error;
}

API cudaError_t cudaMalloc3DArray(cudaArray_t* to, const cudaChannelFormatDesc* d, cudaExtent e, unsigned) {
  return give_array(to, *d, e, __func__, CALLER);
}
API cudaError_t cudaMallocArray(cudaArray_t* to, const cudaChannelFormatDesc* d, size_t width, size_t height, unsigned) {
  return give_array(to, *d, {width, height, 0}, __func__, CALLER);
}
API cudaError_t cudaFreeArray(cudaArray_t array) {
  LOCKED;
  if (!array) return FINE;
  cudaError_t error = take_back(array->data, false, __func__, CALLER);
  delete array;
  return error;
}
API cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t w, size_t h, cudaMemcpyKind k) {
  size_t row = to->width * to->element;
  return copy({to->data + y * row + x, row, from, pitch, w, h}, k, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t w, size_t h, cudaMemcpyKind k) {
  size_t row = from->width * from->element;
  return copy({to, pitch, from->data + y * row + x, row, w, h}, k, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t w, size_t h,
                                         cudaMemcpyKind k, cudaStream_t s) {
  size_t row = to->width * to->element;
  return copy({to->data + y * row + x, row, from, pitch, w, h}, k, &s, __func__, CALLER);
}
API cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t w, size_t h,
                                           cudaMemcpyKind k, cudaStream_t s) {
  size_t row = from->width * from->element;
  return copy({to, pitch, from->data + y * row + x, row, w, h}, k, &s, __func__, CALLER);
}
API cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t n, cudaMemcpyKind k) {
  return copy(to->data + y * to->width * to->element + x, from, n, k, nullptr, __func__, CALLER);
}
API cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t n, cudaMemcpyKind k) {
  return copy(to, from->data + y * from->width * from->element + x, n, k, nullptr, __func__, CALLER);
}
API cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* to, cudaArray_const_t array) { return *to = array->format, FINE; }
API cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* size, unsigned* flags, cudaArray_t array) {
  if (format) *format = array->format;
  if (size) *size = {array->width, array->height, array->depth};
  if (flags) *flags = 0;
  return FINE;
}
static cudaError_t copy_3d(const cudaMemcpy3DParms* p, In stream, const char* name, uintptr_t pc) {
  LOCKED;
  bool from_array = p->srcArray, to_array = p->dstArray;
  size_t element = from_array ? p->srcArray->element : to_array ? p->dstArray->element : 1, width = p->extent.width * element;
  auto side = [&](cudaArray_t array, const cudaPitchedPtr& plain, const cudaPos& at, size_t& pitch, size_t& slice) {
    pitch = array ? array->width * element : plain.pitch;
    slice = pitch * (array ? array->height : plain.ysize);
    return (array ? array->data : static_cast<char*>(plain.ptr)) + at.z * slice + at.y * pitch + at.x * (array ? element : 1);
  };
  size_t tp, ts, fp, fs;
  char *to = side(p->dstArray, p->dstPtr, p->dstPos, tp, ts), *from = side(p->srcArray, p->srcPtr, p->srcPos, fp, fs);
  for (size_t z = 0; z < p->extent.depth; ++z)
    if (cudaError_t e = copy({to + z * ts, tp, from + z * fs, fp, width, p->extent.height}, p->kind, stream, name, pc)) return e;
  return cudaSuccess;
}
API cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) { return copy_3d(p, nullptr, __func__, CALLER); }
API cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t s) { return copy_3d(p, &s, __func__, CALLER); }

API cudaError_t cudaCreateTextureObject(cudaTextureObject_t* to, const cudaResourceDesc* r, const cudaTextureDesc* t, const cudaResourceViewDesc*) {
  LOCKED;
  Texture made{};
  if (r->resType == cudaResourceTypeArray) {
    const cudaArray& a = *r->res.array.array;
    made = {a.data, a.width, a.height, a.depth, a.width * a.element, a.format, *t};
  } else if (r->resType == cudaResourceTypeLinear) {
    const auto& l = r->res.linear;
    made = {static_cast<char*>(l.devPtr), l.sizeInBytes / bytes_of(l.desc), 1, 1, l.sizeInBytes, l.desc, *t};
  } else if (r->resType == cudaResourceTypePitch2D) {
    const auto& p = r->res.pitch2D;
    made = {static_cast<char*>(p.devPtr), p.width, p.height, 1, p.pitchInBytes, p.desc, *t};
  } else
    return TELL(cudaErrorNotSupported, "textures of mipmapped arrays are not emulated");
  for (auto& place : textures) {
    if (place.used) continue;
    place = {made, true};
    *to = reinterpret_cast<cudaTextureObject_t>(&place.texture);
    return FINE;
  }
  return TELL(cudaErrorMemoryAllocation, "more than 4096 textures");
}
API cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  LOCKED;
  for (auto& place : textures)
    if (reinterpret_cast<cudaTextureObject_t>(&place.texture) == object) place.used = false;
  return FINE;
}
