// Launch functions that a build may leave out (a specialisation) are weak: null then. Hidden,
// so that no other library that is loaded can fill the place.
#pragma once

#include <cuda_runtime_api.h>

#define KBTOOL_INSTANCE __attribute__((weak, visibility("hidden")))

namespace kbtool::cuda {

// What a call is answered with whose kernel the build has not.
constexpr cudaError_t NOT_IN_THIS_BUILD = cudaErrorSymbolNotFound;

// Runs `launch`, if it is there.
template <class... Parameters, class... Arguments>
cudaError_t run_instance(cudaError_t (*launch)(Parameters...), const Arguments&... arguments) {
  return launch == nullptr ? NOT_IN_THIS_BUILD : launch(arguments...);
}

}  // namespace kbtool::cuda
