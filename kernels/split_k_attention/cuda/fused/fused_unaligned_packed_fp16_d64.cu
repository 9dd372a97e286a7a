#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_unaligned_packed, fp16, 64)
