/*
Rotary embedding with computed angles, a block for each token, which keeps their sines and cosines in shared memory.

All heads of a token turn by the same angles, so each is computed once: (token + offset) * theta**(-pair / pairs).
Elements beyond the part of a head that is rotated are copied.
---
op = "rope"
entry = "rope<{T}, Style::{style}>"
choices = { style = ["interleaved", "neox"] }
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "theta", "offset", "heads", "width", "pairs"]
dims = { heads = "x.shape[1]", width = "x.shape[2]", pairs = "x.shape[2] // (2 * part)" }
requires = ["pairs <= 128"]
grid = "x.shape[0]"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

enum class Style { interleaved, neox };  // a pair is two neighbours, or two elements half the rotated part apart

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr int most = 128;  // pairs of a head

// width: of a head; pairs: that are rotated, in each head.
template <typename T, Style style>
__global__ void __launch_bounds__(256)
    rope(T* __restrict__ out, const T* __restrict__ x, Wide<T> theta, int offset, int heads, int width, int pairs) {
  using W = Wide<T>;
  __shared__ W cosines[most], sines[most];
  const size_t token = blockIdx.x;
  out += token * heads * width, x += token * heads * width;

  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    const W position = static_cast<W>(static_cast<int>(token) + offset);
    const W angle = position * pow(theta, -static_cast<W>(pair) / static_cast<W>(pairs));
    cosines[pair] = cos(angle);
    sines[pair] = sin(angle);
  }
  __syncthreads();  // threads go on with angles that others have computed

  for (int i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
    const int head = i / pairs, pair = i % pairs;
    const int first = head * width + (style == Style::interleaved ? 2 * pair : pair);
    const int second = first + (style == Style::interleaved ? 1 : pairs);
    const W a = static_cast<W>(x[first]), b = static_cast<W>(x[second]);
    out[first] = static_cast<T>(a * cosines[pair] - b * sines[pair]);
    out[second] = static_cast<T>(a * sines[pair] + b * cosines[pair]);
  }

  const int rest = width - 2 * pairs;
  for (int i = threadIdx.x; i < heads * rest; i += blockDim.x) {
    const int at = i / rest * width + 2 * pairs + i % rest;
    out[at] = x[at];
  }
}
