#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma_packed, bf16, 128)
