// The primitives; cuda::pipeline has a header of its own.
#pragma once
#include "cuda_pipeline_primitives.h"
