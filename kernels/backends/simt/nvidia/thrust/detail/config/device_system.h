// Thrust's device is a system of its own here: see thrust/system/cpp/detail/execution_policy.h.
#pragma once
#include_next <thrust/detail/config/device_system.h>
#ifdef SIMT_THRUST
#undef __THRUST_DEVICE_SYSTEM_NAMESPACE
#undef __THRUST_DEVICE_SYSTEM_ROOT
#define __THRUST_DEVICE_SYSTEM_NAMESPACE cuda
#define __THRUST_DEVICE_SYSTEM_ROOT thrust/system/cpp
#endif
