// As cuda_fp16.h.
#include_next <cuda_fp8.h>
#include <cuda_bf16.h>
