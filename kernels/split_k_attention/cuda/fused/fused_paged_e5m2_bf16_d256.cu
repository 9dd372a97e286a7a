#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_e5m2, bf16, 256)
