#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_e4m3, fp16, 64)
