// Calls a launch function of instances.h that the build may not have.
#pragma once

#include <cuda_runtime_api.h>

namespace kbtool::cuda {

constexpr cudaError_t NOT_IN_THIS_BUILD = cudaErrorSymbolNotFound;

template <class... Parameters, class... Arguments>
cudaError_t run_instance(cudaError_t (*launch)(Parameters...), const Arguments&... arguments) {
  return launch == nullptr ? NOT_IN_THIS_BUILD : launch(arguments...);
}

}  // namespace kbtool::cuda
