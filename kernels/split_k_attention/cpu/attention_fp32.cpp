#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_fp32() { return {partial<float>, merge<float>}; }

}  // namespace kbtool::cpu
