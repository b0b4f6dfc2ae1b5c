// Jumps of XORWOW: its 160 bits are a linear function of those before, so a jump is a product with a matrix of bits.
#include "random.h"

#include <string.h>

#include <mutex>
#include <vector>

namespace simt {
namespace {
struct Matrix {
  uint32_t columns[160][5];  // what becomes of each bit
};

void apply(const Matrix& m, const uint32_t* from, uint32_t* to) {
  uint32_t made[5] = {};
  for (int bit = 0; bit < 160; ++bit)
    if (from[bit / 32] >> bit % 32 & 1)
      for (int i = 0; i < 5; ++i) made[i] ^= m.columns[bit][i];
  memcpy(to, made, sizeof made);
}

// By powers of two: the matrix of 2^k steps.
const Matrix& power(size_t k) {
  static auto& known = *new std::vector<Matrix*>;
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> locked(one_at_a_time);
  if (known.empty()) {
    auto* one = new Matrix{};
    for (int bit = 0; bit < 160; ++bit) {
      uint32_t v[5] = {}, t;
      v[bit / 32] = 1u << bit % 32;
      t = v[0] ^ v[0] >> 2;
      uint32_t next[5] = {v[1], v[2], v[3], v[4], (v[4] ^ v[4] << 4) ^ (t ^ t << 1)};
      memcpy(one->columns[bit], next, sizeof next);
    }
    known.push_back(one);
  }
  while (known.size() <= k) {
    auto* next = new Matrix;
    for (int bit = 0; bit < 160; ++bit) apply(*known.back(), known.back()->columns[bit], next->columns[bit]);
    known.push_back(next);
  }
  return *known[k];
}
}  // namespace

void xorwow_skip(uint32_t state[5], uint64_t n, bool sequences) {
  for (size_t k = sequences ? 67 : 0; n; n >>= 1, ++k)
    if (n & 1) apply(power(k), state, state);
}
}  // namespace simt
