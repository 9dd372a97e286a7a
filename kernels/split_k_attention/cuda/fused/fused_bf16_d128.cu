#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused, bf16, 128)
