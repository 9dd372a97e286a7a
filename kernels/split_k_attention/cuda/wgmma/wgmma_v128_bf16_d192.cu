#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma_v128, bf16, 192)
