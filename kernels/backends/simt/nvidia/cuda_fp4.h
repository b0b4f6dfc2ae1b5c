// As cuda_fp16.h.
#include_next <cuda_fp4.h>
#include <cuda_fp8.h>
