// Jumps of the generator XORWOW.
#pragma once
#include "../runtime.h"

namespace simt {
SIMT_API void xorwow_skip(uint32_t state[5], uint64_t n, bool sequences);  // n numbers, or sequences of 2^67
}
