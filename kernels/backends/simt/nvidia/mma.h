// nvcuda::wmma, which every file has; who includes it has `half` and the like, too.
#include "../matrices.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
