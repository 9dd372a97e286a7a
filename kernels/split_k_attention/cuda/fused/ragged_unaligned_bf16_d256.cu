#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged_unaligned, bf16, 256)
