#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_packed, bf16, 256)
