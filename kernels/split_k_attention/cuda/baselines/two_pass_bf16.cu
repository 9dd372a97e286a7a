#include "two_pass.cuh"

KBTOOL_DEFINE_BASELINE(partial, TileParams, bf16)
KBTOOL_DEFINE_BASELINE(reduce, SplitKParams, bf16)
