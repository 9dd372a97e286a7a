#include "wgmma.cuh"

KBTOOL_DEFINE_INSTANCE(wgmma, fp16, 64)
