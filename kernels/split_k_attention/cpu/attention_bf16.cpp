#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_bf16() { return {partial<BFloat16>, merge<BFloat16>}; }

}  // namespace kbtool::cpu
