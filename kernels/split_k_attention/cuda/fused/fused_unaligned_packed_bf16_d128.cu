#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_unaligned_packed, bf16, 128)
