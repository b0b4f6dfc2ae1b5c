// As cuda_fp16.h.
#include_next <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef CUDA_NO_BFLOAT16
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#endif
