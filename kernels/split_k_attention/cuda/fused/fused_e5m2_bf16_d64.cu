#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_e5m2, bf16, 64)
