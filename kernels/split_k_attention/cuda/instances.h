// The one list of variants and of the kernel instances that are compiled, each in a source of its own so that
// they compile in parallel. Enumerations, declarations and dispatch are made from it (launch.h,
// common/fused_params.h, baselines/tile_params.h); tests/kernels/test_instances.py holds the sources and
// kernel.yaml to it.
//
// A new kernel: a row here and the sources FOLDER/KERNEL_TYPE_dWIDTH.cu. A source that a build leaves out
// (a specialisation, another architecture) is a null function: see run_instance.
#pragma once

// X(variant), as users name it; simplest first
#define KBTOOL_VARIANTS(X) X(fa1) X(two_pass) X(fused) X(wgmma)

// X(kernel, element type, head dimension that it is compiled for)
#define KBTOOL_TYPES_AND_WIDTHS(X, kernel)                       \
  X(kernel, fp16, 64) X(kernel, fp16, 128) X(kernel, fp16, 256) \
  X(kernel, bf16, 64) X(kernel, bf16, 128) X(kernel, bf16, 256)

// F(X, kernel). _unaligned: some row of k or v cannot be copied 16 bytes at a time. _paged: k and v lie in pages.
// _options: the call has a window, softcap or tree mask, which fused_unaligned takes too. _packed: the call has packed
// queries, and _e4m3, _e5m2: k and v have 8 bits; those of fused all take the options. fused_unaligned and its _packed form
// take 8 bits too. wgmma_v128: k has 129 to 192 columns, and v up to 128.
#define KBTOOL_KERNELS(F, X)                                    \
  F(X, fused) F(X, fused_unaligned) F(X, fused_paged)           \
  F(X, fused_options) F(X, fused_paged_options)                 \
  F(X, fused_packed) F(X, fused_unaligned_packed)               \
  F(X, fused_paged_packed)                                      \
  F(X, fused_e4m3) F(X, fused_paged_e4m3)                       \
  F(X, fused_e5m2) F(X, fused_paged_e5m2)                       \
  F(X, ragged) F(X, ragged_unaligned) F(X, ragged_paged)        \
  F(X, wgmma) F(X, wgmma_packed)

#define KBTOOL_INSTANCES(X) \
  KBTOOL_KERNELS(KBTOOL_TYPES_AND_WIDTHS, X) X(wgmma_v128, fp16, 192) X(wgmma_v128, bf16, 192)

// X(kernel, its parameters, element type). fa1, and the two passes of two_pass.
#define KBTOOL_BASELINES(X)                                            \
  X(fa1, TileParams, fp16) X(fa1, TileParams, bf16)                   \
  X(partial, TileParams, fp16) X(partial, TileParams, bf16)           \
  X(reduce, SplitKParams, fp16) X(reduce, SplitKParams, bf16)

// Weak, so that it is null where the build has no such source; hidden, so that no other library
// in the process can fill the place.
#define KBTOOL_INSTANCE __attribute__((weak, visibility("hidden")))

#define KBTOOL_ENUMERATOR(name) name,
#define KBTOOL_KERNEL_ENUMERATOR(X, kernel) kernel,

#define KBTOOL_DECLARE_INSTANCE(kernel, type, width)           \
  KBTOOL_INSTANCE cudaError_t launch_##kernel##_##type##_d##width( \
      const FusedParams& fp, int row_units, cudaStream_t stream);
#define KBTOOL_DECLARE_BASELINE(kernel, Params, type) \
  KBTOOL_INSTANCE cudaError_t launch_##kernel##_##type(const Params& p, cudaStream_t stream);

// All of an instance's source: the launch function, by the kernel's template of the same name.
#define KBTOOL_DEFINE_INSTANCE(kernel, type, width)                                      \
  cudaError_t kbtool::cuda::launch_##kernel##_##type##_d##width(                         \
      const FusedParams& fp, int row_units, cudaStream_t stream) {                       \
    return launch_##kernel<type, width>(fp, row_units, stream);                          \
  }
#define KBTOOL_DEFINE_BASELINE(kernel, Params, type)                                     \
  cudaError_t kbtool::cuda::launch_##kernel##_##type(const Params& p, cudaStream_t stream) { \
    return launch_##kernel<type>(p, stream);                                             \
  }
