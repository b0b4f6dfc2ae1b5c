// NVIDIA's, which every file has; the names without underscores are for who includes it (again, which C++ allows).
#include_next <cuda_fp16.h>
#ifndef CUDA_NO_HALF
typedef __half half, __nv_half, nv_half;
typedef __half2 half2, __nv_half2, nv_half2;
#endif
