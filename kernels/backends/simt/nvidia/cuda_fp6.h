// As cuda_fp16.h.
#include_next <cuda_fp6.h>
#include <cuda_fp8.h>
