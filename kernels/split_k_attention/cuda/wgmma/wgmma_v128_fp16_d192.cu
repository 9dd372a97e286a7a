#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma_v128, fp16, 192)
