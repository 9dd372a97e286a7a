#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_fp32() { return {scratch_numel, partial<float, float>, merge<float>}; }

}  // namespace kbtool::cpu
