// Textures by objects: what one is, and how a kernel reads it (CUDA C++ Programming Guide, "Texture Fetching").
#pragma once
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "../runtime.h"

namespace simt {
struct Texture {
  char* data;
  size_t width, height, depth, pitch;  // elements; bytes of a row
  cudaChannelFormatDesc format;
  cudaTextureDesc how;
};

// Of one element.
SIMT_UNSEEN inline size_t bytes_of(const cudaChannelFormatDesc& f) { return static_cast<size_t>(f.x + f.y + f.z + f.w) / 8; }

// Where a coordinate lies: -1 beyond a border.
SIMT_UNSEEN inline long wrapped(long i, long n, cudaTextureAddressMode mode) {
  switch (mode) {
    case cudaAddressModeWrap: return ((i % n) + n) % n;
    case cudaAddressModeMirror: i = ((i % (2 * n)) + 2 * n) % (2 * n); return i < n ? i : 2 * n - 1 - i;
    case cudaAddressModeBorder: return i < 0 || i >= n ? -1 : i;
    default: return std::clamp(i, 0l, n - 1);
  }
}

template <class E>
SIMT_INLINE E element_of(const char* at) { return *reinterpret_cast<const E*>(at); }  // an access of the kernel's

// One component as a float, or as it is.
template <class R>
SIMT_INLINE R component(const Texture& t, const char* at, int bits) {
  bool normalized = t.how.readMode == cudaReadModeNormalizedFloat;
  if (t.format.f == cudaChannelFormatKindFloat) return static_cast<R>(bits == 32 ? element_of<float>(at) : 0.0f);
  if (t.format.f == cudaChannelFormatKindSigned) {
    long v = bits == 8 ? element_of<signed char>(at) : bits == 16 ? element_of<short>(at) : element_of<int>(at);
    return normalized ? static_cast<R>(std::max(-1.0f, v / (bits == 8 ? 127.0f : 32767.0f))) : static_cast<R>(v);
  }
  unsigned long v = bits == 8 ? element_of<unsigned char>(at) : bits == 16 ? element_of<unsigned short>(at) : element_of<unsigned>(at);
  return normalized ? static_cast<R>(v / (bits == 8 ? 255.0f : 65535.0f)) : static_cast<R>(v);
}

template <class T, class = void>
struct Parts {
  using Part = T;
  static constexpr int count = 1;
};
template <class T>
struct Parts<T, std::void_t<decltype(T::x)>> {
  using Part = decltype(T::x);
  static constexpr int count = sizeof(T) / sizeof(Part);
};

template <class T>
SIMT_INLINE T texel(const Texture& t, long x, long y, long z) {
  using P = Parts<T>;
  typename P::Part parts[4] = {};
  T made{};
  x = wrapped(x, t.width, t.how.addressMode[0]), y = wrapped(y, t.height, t.how.addressMode[1]);
  z = wrapped(z, t.depth, t.how.addressMode[2]);
  if (x < 0 || y < 0 || z < 0) return made;
  const int bits[4] = {t.format.x, t.format.y, t.format.z, t.format.w};
  const char* at = t.data + (z * t.height + y) * t.pitch + x * bytes_of(t.format);
  for (int i = 0; i < P::count && i < 4 && bits[i]; at += bits[i++] / 8) parts[i] = component<typename P::Part>(t, at, bits[i]);
  __builtin_memcpy(&made, parts, sizeof made);
  return made;
}

template <class T>
SIMT_INLINE T fetched(unsigned long long object, float x, float y, float z, int dimensions) {
  const Texture& t = *reinterpret_cast<const Texture*>(object);
  if (t.how.normalizedCoords) x *= t.width, y *= t.height, z *= t.depth;
  if (dimensions < 2) y = 0.5f;
  if (dimensions < 3) z = 0.5f;
  using P = Parts<T>;
  if constexpr (std::is_floating_point_v<typename P::Part>) {
    if (t.how.filterMode == cudaFilterModeLinear) {
      // Of eight neighbours, by fractions of 8 bits, as the hardware has them.
      float at[3] = {x - 0.5f, y - 0.5f, z - 0.5f}, share[3];
      long low[3];
      for (int i = 0; i < 3; ++i) low[i] = static_cast<long>(floorf(at[i])), share[i] = rintf((at[i] - low[i]) * 256.0f) / 256.0f;
      float sums[4] = {};
      for (int corner = 0; corner < 1 << dimensions; ++corner) {
        float weight = 1.0f;
        for (int i = 0; i < dimensions; ++i) weight *= corner >> i & 1 ? share[i] : 1.0f - share[i];
        if (weight == 0.0f) continue;
        T one = texel<T>(t, low[0] + (corner & 1), low[1] + (corner >> 1 & 1), low[2] + (corner >> 2 & 1));
        typename P::Part parts[4];
        __builtin_memcpy(parts, &one, sizeof one);
        for (int i = 0; i < P::count; ++i) sums[i] += weight * static_cast<float>(parts[i]);
      }
      typename P::Part parts[4];
      for (int i = 0; i < P::count; ++i) parts[i] = sums[i];
      T made;
      __builtin_memcpy(&made, parts, sizeof made);
      return made;
    }
  }
  return texel<T>(t, static_cast<long>(floorf(x)), static_cast<long>(floorf(y)), static_cast<long>(floorf(z)));
}
}  // namespace simt

template <class T>
SIMT_INLINE T tex1Dfetch(cudaTextureObject_t t, int x) { return simt::texel<T>(*reinterpret_cast<const simt::Texture*>(t), x, 0, 0); }
template <class T>
SIMT_INLINE T tex1D(cudaTextureObject_t t, float x) { return simt::fetched<T>(t, x, 0, 0, 1); }
template <class T>
SIMT_INLINE T tex2D(cudaTextureObject_t t, float x, float y) { return simt::fetched<T>(t, x, y, 0, 2); }
template <class T>
SIMT_INLINE T tex3D(cudaTextureObject_t t, float x, float y, float z) { return simt::fetched<T>(t, x, y, z, 3); }
