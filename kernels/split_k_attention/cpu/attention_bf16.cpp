#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_bf16() { return {scratch_numel, partial<BFloat16>, merge<BFloat16>}; }

}  // namespace kbtool::cpu
