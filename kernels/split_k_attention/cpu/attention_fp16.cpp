#include "attention.h"

namespace kbtool::cpu {

Kernels kernels_fp16(KvType kv) { return kernels<Half>(kv); }

}  // namespace kbtool::cpu
