#include "fused.cuh"

KBTOOL_DEFINE_INSTANCE(fused_paged_options, fp16, 256)
