#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma_packed, fp16, 256)
