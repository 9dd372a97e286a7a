#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_packed, fp16, 128)
