// Included before every kernel by NVRTC: what nvcc's own first headers define.
#pragma once
#include "cfloat"
#include "cstdint"
#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
#ifndef NAN
#define NAN (__int_as_float(0x7fffffff))
#endif
#define HUGE_VALF INFINITY
#define HUGE_VAL (__longlong_as_double(0x7ff0000000000000LL))
