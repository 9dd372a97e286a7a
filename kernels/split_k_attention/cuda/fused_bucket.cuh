// Which of the fused kernel's configurations a call of one type and bucket of the head dimension has.
#pragma once

#include "fused.cuh"

namespace kbtool::cuda {

// launch(C{}) for the call's configuration C.
template <class Element, int D, class Launch>
cudaError_t with_fused_config(const FusedParams& fp, int row_warps, const Launch& launch) {
  const auto with_rows = [&](auto rows) {
    constexpr int ROW_WARPS = decltype(rows)::value;
    return fp.copy_width == 16 ? launch(FusedConfig<Element, D, ROW_WARPS, true>{})
                               : launch(FusedConfig<Element, D, ROW_WARPS, false>{});
  };
  switch (row_warps) {
    case 1:
      return with_rows(std::integral_constant<int, 1>{});
    case 2:
      return with_rows(std::integral_constant<int, 2>{});
    default:
      return with_rows(std::integral_constant<int, 4>{});
  }
}

template <class Element, int D>
cudaError_t launch_fused_bucket(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return with_fused_config<Element, D>(fp, row_warps, [&](auto config) {
    using C = decltype(config);
    return launch_blocks<C, fused_kernel<C>>(fp, stream);
  });
}

}  // namespace kbtool::cuda
