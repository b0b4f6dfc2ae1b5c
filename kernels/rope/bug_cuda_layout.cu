/*
Bug: the second element of a pair is half a head away, whatever the style.
---
op = "rope"
entry = "rope<{T}, Style::{style}>"
choices = { style = ["interleaved", "neox"] }
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "cos", "sin", "heads", "width", "pairs"]
dims = { heads = "x.shape[1]", width = "x.shape[2]", pairs = "x.shape[2] // (2 * part)" }
requires = ["theta > 0", "offset >= 0"]  # whatever they are: the tables say it all
grid = "x.shape[0]"
block = 256
planted = "mismatch"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

enum class Style { interleaved, neox };  // a pair is two neighbours, or two elements half the rotated part apart

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

// width: of a head; pairs: that are rotated, in each head.
template <typename T, Style style>
__global__ void __launch_bounds__(256) rope(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ cosines,
                                            const T* __restrict__ sines, int heads, int width, int pairs) {
  using W = Wide<T>;
  const size_t token = blockIdx.x;
  out += token * heads * width, x += token * heads * width;
  cosines += token * pairs, sines += token * pairs;

  for (int i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
    const int head = i / pairs, pair = i % pairs;
    const int first = head * width + pair;
    const int second = first + pairs;
    const W a = static_cast<W>(x[first]), b = static_cast<W>(x[second]);
    const W c = static_cast<W>(cosines[pair]), s = static_cast<W>(sines[pair]);
    out[first] = static_cast<T>(a * c - b * s);
    out[second] = static_cast<T>(a * s + b * c);
  }

  const int rest = width - 2 * pairs;
  for (int i = threadIdx.x; i < heads * rest; i += blockDim.x) {
    const int at = i / rest * width + 2 * pairs + i % rest;
    out[at] = x[at];
  }
}
