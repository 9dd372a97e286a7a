#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma, bf16, 64)
