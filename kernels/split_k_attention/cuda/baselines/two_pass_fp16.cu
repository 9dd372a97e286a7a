#include "two_pass.cuh"

KBTOOL_DEFINE_BASELINE(partial, TileParams, fp16)
KBTOOL_DEFINE_BASELINE(reduce, SplitKParams, fp16)
