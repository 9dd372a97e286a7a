#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_bf16(KvType kv) { return kernels<BFloat16>(kv); }

}  // namespace kbtool::cpu
