// CUDA C++ on the CPU: included before a kernel's file, which is compiled as it stands.
#pragma once
#include "keywords.h"

#include "assembly.h"
#include "atomics.h"
#include "half.h"
#include "integers.h"
#include "memory.h"
#include "packed.h"
#include "reals.h"
#include "sync.h"
#include "warp.h"

#include "entry.h"

#define fminf simt_fminf
#define fmaxf simt_fmaxf
#define fmin simt_fmin
#define fmax simt_fmax

// In check mode each of them is a call, which the checker sees.
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset

// Each that is written is another barrier, though a line may have several.
#define __syncthreads() __syncthreads(simt::numbered(__COUNTER__ + 1))

// Last: what chooses code for the device. NVIDIA's headers above must not see it, they would choose assembly.
#define __CUDA_ARCH__ 900
#define asm SIMT_UNSUPPORTED_asm

// What programs include by name is there already, so that their macros may be called as anything in it.
#include "matrices.h"
#include "nvidia/cooperative_groups.h"
#include "nvidia/cuda/pipeline"
#include "nvidia/cuda_pipeline.h"
#include "nvidia/curand_kernel.h"
