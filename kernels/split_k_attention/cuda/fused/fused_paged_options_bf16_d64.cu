#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_options, bf16, 64)
