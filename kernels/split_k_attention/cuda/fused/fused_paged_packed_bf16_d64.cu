#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_packed, bf16, 64)
