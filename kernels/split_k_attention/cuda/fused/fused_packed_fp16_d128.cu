#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_packed, fp16, 128)
