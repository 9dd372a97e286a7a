#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_unaligned, bf16, 128)
