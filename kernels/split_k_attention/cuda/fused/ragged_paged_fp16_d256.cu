#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged_paged, fp16, 256)
