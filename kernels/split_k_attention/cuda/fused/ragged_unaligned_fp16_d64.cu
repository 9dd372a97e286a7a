#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged_unaligned, fp16, 64)
