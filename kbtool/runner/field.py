"""Whether a text is about GPU kernels and their tools, and which tool it may be of.

Only what resembles a text is held to this; an expression that matches a line needs no more.
"""

from __future__ import annotations

import re

FIELD = re.compile(
    r"""(?x)
    (?:\b|_|lib|py|\d)(?i:
        cuda|cudnn|cublas|cufft|cusparse|cusolver|curand|cutlass|cupti|cupy|cudart|cudafe|nvcc|nvrtc
      | nvlink|nvidia|nvjitlink|nvtx|nvrm|nvml|nvprof|nvvm|nvptx|nccl|nsys|nsight|ptxas|cubin|fatbin
      | nvshmem|cuobjdump|torch|xformers|flash_?attn|flash-attn|flashattention|deepspeed|mmcv
      | bitsandbytes|detectron2|onnxruntime|tensorrt|trtexec|jaxlib|numba|cext|megatron|vllm|apex
    )
  | (?<![A-Za-z])(?i:
        gpus?|ptx|cute|thrust|cub|triton|inductor|dynamo|ncu|warps?|smem|compute-sanitizer|racecheck
      | memcheck|cuda-gdb|bf16|bfloat16|fp16|fp8|wgmma|tma|cpp_extension|load_inline|xid
      | tvm|xla|onednn|cmake|ninja|collect2|cc1plus|cicc|vcvarsall|msbuild|sm_\d\d\w*
      | allreduce|all_reduce|torchrun|cudaError\w*
    )(?![A-Za-z])
  | (?i:\bkernels?\b(?!\ of\b|:))
  | __(?:host|device|global|shared|constant)__|\.cuh?\b|transformer.engine|torch_extensions
  | (?i:\bnvhpc\b|nvc\+\+|\bld:)
  | \bcl\.exe|\bLNK\d{4}\b|\bMSB\d{4}\b|\bCU_|\bcu[A-Z][A-Za-z]+|\bGLIBC(?:XX)?_
  | \bCXXABI_|\bg(?:cc|\+\+)-?\d*\b
  | (?i:\b(?:shared|local|global|constant)\ memory|bank\ conflicts?|spill\w*
        |illegal\ memory\ access)
    """
)
"""What the field is known by: a name or a part of one. A text without any of it is about something
else."""

ELSEWHERE = re.compile(
    r"\b(?:HIP|ROCm|MPS backend|Vulkan|OpenCL|SYCL|amdgpu|xpu)\b|\bhip(?:Error|cc|[A-Z])|\bgfx\d{3}"
)
"""What another platform than CUDA is named by; its messages may have the same words."""

_SIGNS = {
    "nvcc": r"nvcc|\.cuh?\b|cudafe|cuda|\bcicc\b|__(?:global|device|host)__|thrust|\bcub\b|cutlass",
    "ptxas": r"ptx|cubin|\bsass\b|register|wgmma|tcgen|spill",
    "linker": r"\bld\b|link|undefined|unresolved|\.so\b|\.a\b|symbol|cannot find -l",
    "host-compiler": r"g\+\+|\bgcc|clang|\bcl\.exe|\bC\d{4}\b|error:|header|\.hp*\b|\.cpp|cc1plus",
    "ninja": r"ninja|\bmake|build",
    "cmake": r"cmake|could not find|configur|find_package",
    "pip": r"\bpip|wheel|conda|mamba|\buv\b|requirement|distribution|setup\.py|no module"
    r"|numpy|python",
    "torch-extension": r"torch|extension|import|\.so\b|\bdll|undefined symbol|GLIBC|cuda|onnx"
    r"|tensorrt",
    "torch": r"torch|RuntimeError|tensor|autograd|backward|\bamp\b|scaler",
    "torch-compile": r"dynamo|inductor|compile|fake|\bfx\b|\baot|export|opcheck|schema",
    "triton": r"triton|@jit|\btl\.|ttir|mlir",
    "nccl": r"nccl|distributed|rank|all_?-?reduce|process ?group|c10d|gloo|\bmpi|elastic|torchrun",
    "cuda-runtime": r"cuda|\bcu[A-Z]\w+|gpu|nvidia|NVRM|\bXid|cublas|cudnn|cusparse|driver|device",
    "compute-sanitizer": r"=====|sanitizer|memcheck|racecheck|hazard|gdb",
    "profile": r"\bncu|nsys|nsight|nvprof|==(?:ERROR|PROF|WARNING)|profil|cupti|sectors|occupancy"
    r"|bank conflict|throughput",
    "numerics": r"nan\b|\binf|toleran|close|mismatch|assert|diff|norm|precision|wrong|expected"
    r"|equal",
    "attention": r"flash|attention|attn|sdpa|xformers|vllm|sglang|deep_?gemm"
    r"|bitsandbytes|inference",
    "containers": r"docker|podman|container|kube|slurm|srun|singularity|apptainer|enroot|\boci\b",
    "cuda-gdb": r"gdb|core dump|coredump|memcheck|sigsegv|sigtrap|cuda_exception",
    "cuda-libraries": r"cu(?:blas|dnn|sparse|solver|fft|rand|tensor)|nvrtc|\bnpp|xla|tensorrt"
    r"|nvjpeg",
    "cutlass": r"cutlass|\bcute|tma\b|tensor ?map|descriptor",
    "driver": r"nvidia-smi|nvrm|\bxid|driver|\bmig\b|\bmps\b|nvml|persistenced|dkms|modprobe"
    r"|fabric",
    "memory": r"memory|alloc|\boom\b",
    "build-time": r"compil|build|slow|minutes|hours",
}
_OF = {tool: re.compile(f"(?i){signs}") for tool, signs in _SIGNS.items()}


def is_of_the_field(text: str) -> bool:
    """Whether a text is about GPUs, their kernels and the tools that build and run them."""
    return FIELD.search(text) is not None and not ELSEWHERE.search(text)


def may_be_of(tool: str, text: str) -> bool:
    """Whether a text has a sign of a tool of the catalogue; one that is not known may have it."""
    signs = _OF.get(tool)
    return signs is None or signs.search(text) is not None
