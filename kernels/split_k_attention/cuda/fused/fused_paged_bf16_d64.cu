#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged, bf16, 64)
