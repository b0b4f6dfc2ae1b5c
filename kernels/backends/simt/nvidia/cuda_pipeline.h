// The primitives; cuda::pipeline itself is not emulated.
#pragma once
#include "cuda_pipeline_primitives.h"
