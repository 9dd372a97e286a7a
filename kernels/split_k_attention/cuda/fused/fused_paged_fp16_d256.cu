#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged, fp16, 256)
