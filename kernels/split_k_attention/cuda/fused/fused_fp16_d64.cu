#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused, fp16, 64)
