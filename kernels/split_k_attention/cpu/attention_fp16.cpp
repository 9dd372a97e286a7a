#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_fp16() { return {scratch_numel, partial<Half>, merge<Half>}; }

}  // namespace kbtool::cpu
