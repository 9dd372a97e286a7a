#include "fa1.cuh"

KBTOOL_DEFINE_BASELINE(fa1, TileParams, bf16)
