#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_options, bf16, 256)
