// CCCL 3.5 wants no function of the C library to be a macro, which fmax and fmin are here.
#pragma once
#pragma push_macro("fmax")
#pragma push_macro("fmin")
#undef fmax
#undef fmin
#include_next <cuda/std/__host_stdlib/math.h>
#pragma pop_macro("fmax")
#pragma pop_macro("fmin")
