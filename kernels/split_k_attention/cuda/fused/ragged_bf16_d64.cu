#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged, bf16, 64)
