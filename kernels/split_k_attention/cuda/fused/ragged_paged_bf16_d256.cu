#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged_paged, bf16, 256)
