#include "ragged.cuh"

KBTOOL_DEFINE_INSTANCE(ragged, fp16, 64)
