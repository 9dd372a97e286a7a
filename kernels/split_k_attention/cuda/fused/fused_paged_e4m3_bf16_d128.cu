#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_e4m3, bf16, 128)
