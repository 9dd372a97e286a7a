#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_unaligned, fp16, 256)
