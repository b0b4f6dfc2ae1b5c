// For NVRTC, which has no headers of C++.
#pragma once
#include <cuda/std/climits>
