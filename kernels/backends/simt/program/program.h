// What a program's files include first: CUDA C++ on the CPU, launches, and what nvcc declares of the runtime API.
#pragma once
#define SIMT_PROGRAM 1
#include "../simt.h"
#undef asm
#undef warpSize  // a device's properties have it, too
constexpr int warpSize = 32;


// libcu++ must not take this for nvcc, which programs are told it is.
#if __has_include(<cuda/std/__cccl/compiler.h>)
#include <cuda/std/__cccl/compiler.h>
#endif

#include "launch.h"
#include "legacy.h"
#include "textures.h"

namespace simt {
inline thread_local char program_anchor;

// Whether a call hands over the address of an object, as C++'s convention has it where copies are a constructor's work.
template <class T>
constexpr bool by_address = !std::is_trivially_destructible_v<T> ||
                            (std::is_copy_constructible_v<T> && !std::is_trivially_copy_constructible_v<T>) ||
                            (std::is_move_constructible_v<T> && !std::is_trivially_move_constructible_v<T>) ||
                            !(std::is_copy_constructible_v<T> || std::is_move_constructible_v<T>);
template <class T>
using Handed = std::conditional_t<by_address<T>, T*, T>;

// The type of a parameter without qualifiers of its own, g++'s __restrict__ among them.
template <class T>
T bare(T);
template <class T, bool = std::is_class_v<T> || std::is_union_v<T>>
struct Bare { using type = std::remove_cv_t<T>; };
template <class T>
struct Bare<T, false> { using type = decltype(bare(std::declval<T&>())); };

// A parameter as its bytes: the host has copied it, and what a thread gets are bytes, made and destroyed by nobody.
template <class T>
struct Bytes {
  alignas(T) unsigned char bytes[sizeof(T)];
  SIMT_UNSEEN explicit Bytes(const T& from) { memcpy(bytes, (const void*)std::addressof(from), sizeof(T)); }
  T& value() { return *reinterpret_cast<T*>(bytes); }
  SIMT_UNSEEN operator Handed<T>() {
    if constexpr (by_address<T>) return &value();
    else return std::move(value());
  }
};

// A kernel's body and its parameters, and what each thread calls with them.
template <size_t I, class T>
struct Value : Bytes<T> { using Bytes<T>::Bytes; };
template <class I, class F, class... A>
struct Call;
template <size_t... I, class F, class... A>
struct Call<std::index_sequence<I...>, F, A...> : Value<I, A>... {
  F body;
  SIMT_UNSEEN Call(F&& body, A&... parameters) : Value<I, A>(parameters)..., body(std::move(body)) {}
  static SIMT_UNSEEN void thread(const void* at) {
    auto& call = *static_cast<Call*>(const_cast<void*>(at));
    if constexpr (sizeof...(A) == 0) {
      Bytes<F>(call.body).value()();  // which may have captured some
    } else {
      auto* body = reinterpret_cast<void (*)(Handed<A>...)>(+call.body);
      __asm__("" : "+r"(body));  // a call by another type, which the compiler is not to see
      body(Bytes<A>(static_cast<Value<I, A>&>(call).value())...);
    }
  }
  static void destroy(const void* at) { delete static_cast<const Call*>(at); }
  // Zeroed, for nothing between parameters is a word that the host passes.
  static void* operator new(size_t bytes) {
    constexpr size_t align = alignof(Call) > 16 ? alignof(Call) : 16;
    return memset(aligned_alloc(align, (bytes + align - 1) / align * align), 0, bytes);
  }
  static void operator delete(void* at) { free(at); }
};

template <class T>
SIMT_UNSEEN const void* pointer_of(T* argument, int) { return (const void*)argument; }
template <class T>
SIMT_UNSEEN const void* pointer_of(const T&, long) { return nullptr; }

template <class... P, size_t... I>
cudaError_t launch_with(void (*k)(P...), const Config& how, void** arguments, bool cooperative, const char* name, Place at,
                        std::index_sequence<I...>) {
  Launching launching(name, at, how, cooperative);
  return k(*static_cast<std::decay_t<P>*>(arguments[I])...), run_launch();
}
}  // namespace simt

// What a launch and a kernel's definition are rewritten to (syntax.py).
SIMT_UNSEEN inline simt::Launching simt_launch(const char* kernel, dim3 grid, dim3 block, size_t shared = 0,
                                               cudaStream_t stream = nullptr, simt::Place at = simt::here()) {
  return {kernel, at, {grid, block, shared, stream}};
}
inline void simt_run() { simt::run_launch(); }
inline bool simt_is_asked() { return simt::is_asked(); }
template <class F, class... A>
SIMT_UNSEEN void simt_kernel(F body, A&... parameters) {
  auto* launching = simt::launch_of_call();
  if (!launching) return;
  using Call = simt::Call<std::index_sequence_for<A...>, F, typename simt::Bare<A>::type...>;
  launching->pointers = {simt::pointer_of(parameters, 0)...};
  launching->call = new Call(std::move(body), const_cast<typename simt::Bare<A>::type&>(parameters)...);
  launching->bytes = sizeof(Call), launching->thread = Call::thread, launching->destroy = Call::destroy;
  simt::program_anchor = 1;
  launching->anchor = &simt::program_anchor;
}

#define SIMT_BY_POINTER(NAME, COOPERATIVE)                                                                              \
  template <class... P>                                                                                                 \
  cudaError_t NAME(const char* call, void (*k)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,       \
                   cudaStream_t stream = nullptr, simt::Place at = simt::here()) {                                      \
    return simt::launch_with(k, {grid, block, shared, stream}, arguments, COOPERATIVE, simt::first_argument(call), at,  \
                             std::index_sequence_for<P...>{});                                                          \
  }
SIMT_BY_POINTER(simt_cudaLaunchKernel, false)
SIMT_BY_POINTER(simt_cudaLaunchCooperativeKernel, true)

// What cuda_runtime.h has for nvcc only. A call is the user's, so each is inlined.
#define SIMT_SYMBOL(NAME, PARAMETERS, ...) \
  template <class T>                       \
  SIMT_INLINE cudaError_t NAME PARAMETERS { return ::NAME(__VA_ARGS__); }
SIMT_SYMBOL(cudaMemcpyToSymbol, (const T& s, const void* from, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyHostToDevice),
            (const void*)&s, from, n, offset, k)
SIMT_SYMBOL(cudaMemcpyToSymbolAsync, (const T& s, const void* from, size_t n, size_t offset = 0,
            cudaMemcpyKind k = cudaMemcpyHostToDevice, cudaStream_t stream = nullptr), (const void*)&s, from, n, offset, k, stream)
SIMT_SYMBOL(cudaMemcpyFromSymbol, (void* to, const T& s, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyDeviceToHost),
            to, (const void*)&s, n, offset, k)
SIMT_SYMBOL(cudaMemcpyFromSymbolAsync, (void* to, const T& s, size_t n, size_t offset = 0,
            cudaMemcpyKind k = cudaMemcpyDeviceToHost, cudaStream_t stream = nullptr), to, (const void*)&s, n, offset, k, stream)
SIMT_SYMBOL(cudaGetSymbolAddress, (void** to, const T& s), to, (const void*)&s)
SIMT_SYMBOL(cudaGetSymbolSize, (size_t* to, const T& s), to, (const void*)&s)
SIMT_SYMBOL(cudaFuncSetAttribute, (T* f, cudaFuncAttribute what, int value), (const void*)f, what, value)
SIMT_SYMBOL(cudaFuncGetAttributes, (cudaFuncAttributes* to, T* f), to, (const void*)f)
SIMT_SYMBOL(cudaFuncSetCacheConfig, (T* f, cudaFuncCache how), (const void*)f, how)

inline void __prof_trigger(int) {}
#define __auto_type auto
#define __assume(...) ((void)0)
#define __CUDACC__ 1
#ifndef THRUST_DEVICE_SYSTEM
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define SIMT_THRUST
#endif
extern "C" SIMT_API void* simt_allocate_ordered(size_t bytes);
extern "C" SIMT_API void simt_algorithm_begins(const char* name, cudaStream_t stream);
extern "C" SIMT_API void simt_algorithm_ends(cudaStream_t stream, bool waits);
#define cudaLaunchKernel(...) simt_cudaLaunchKernel(#__VA_ARGS__, __VA_ARGS__)
#define cudaLaunchCooperativeKernel(...) simt_cudaLaunchCooperativeKernel(#__VA_ARGS__, __VA_ARGS__)
#define cudaLaunchKernelEx(...) (_Pragma("GCC error \"cudaLaunchKernelEx is not emulated\"") cudaSuccess)
#define asm SIMT_UNSUPPORTED_asm;  // which ends the statement: operands behind a colon would be the first complaint
