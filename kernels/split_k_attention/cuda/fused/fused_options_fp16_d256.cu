#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_options, fp16, 256)
