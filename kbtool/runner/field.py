"""Whether a text is about GPU kernels and their tools.

Only what resembles a text is held to this; an expression that matches a line needs no more.
"""

from __future__ import annotations

import re

_CARDS = r"""
    (?:\b|_|lib|[Pp]y|\d)(?i:
        cuda|cudnn|cublas|cufft|cusparse|cusolver|curand|cutlass|cupti|cupy|cudart|cudafe|nvcc|nvrtc
      | nvlink|nvidia|nvjitlink|nvtx|nvrm|nvml|nvprof|nvvm|nvptx|nccl|nsys|nsight|ptxas|cubin|fatbin
      | nvshmem|cuobjdump|torch|xformers|flash_?attn|flash-attn|flashattention|deepspeed|mmcv
      | bitsandbytes|detectron2|onnxruntime|tensorrt|trtexec|jaxlib|numba|cext|megatron|vllm|sglang
      | lmdeploy|exllama|apex
    )
  | (?<![A-Za-z])(?i:
        gpus?|ptx|cute|thrust|cub|triton|inductor|dynamo|ncu|warps?|smem|compute-sanitizer|racecheck
      | memcheck|cuda-gdb|bf16|bfloat16|fp16|fp8|wgmma|tma|cpp_extension|load_inline|xid
      | tvm|xla|onednn|cicc|sm_\d\d\w*
      | allreduce|all_reduce|torchrun|multi-?gpus?|ddp|fsdp|cudaError\w*
      | vram|gemms?|ctas?|tflops|num_warps|sdpa|ttft|gptq|awq|load_in_[48]bit
      | non_blocking|pin_memory
    )(?![A-Za-z])
  | (?i:(?<!linux\ )(?<!jupyter\ )(?<!popcorn\ )\bkernels?\b
        (?!:|\ \d+\.\d
         |\ (?:of|panic|update|upgrade|headers?|log|oops|space|threads?|appears|died)\b))
  | __(?:host|device|global|shared|constant|launch_bounds)__|\.cuh?\b
  | (?i:\bcp[._]async|\bmbarriers?\b|\btcgen05|zero_optimization|flash[-\ ]attention
      | scaled_dot_product|\bdevice\ (?:code|lambdas?)\b|\b[345]0[5-9]0s\b)
  | transformer.engine|torch_extensions
  | (?i:\bnvhpc\b|nvc\+\+)
  | (?i:\b(?:geforce|quadro|jetson|dgx|hgx|g?[bh][1-3]00s?|[ah]800s?|a100s?|l40s?|h20
        |a[456]000|[pv]100s?|k80)\b)
  | (?i:\b[gr]tx[ -]?\d{3,4}|\btesla\ [kmpvt]\d+)
  | (?i:\b(?:\dx?|two|dual|single|my|an?|on|with)\ ?[345]0[5-9]0(?:\ ?ti)?s?\b)
  | (?i:\b(?:kepler|maxwell|pascal|volta|turing)\ (?:card|gpu))
  | (?i:\bon\ (?:hopper|blackwell|ampere)\b)
  | (?i:syncthreads|syncwarp)|显[存卡]
  | \bSMs?\b|\bHBM\d?|\d\ ?%\ (?:of\ )?SOL\b|\b(?:sm|smsp|dram|lts|l1tex)__\w+
  | (?i:\btensor[- ]cores?\b|\b(?:long|short)[ _]scoreboard|\bmio[ _]throttle|\bregister\ pressure
        |\b(?:achieved|theoretical)\ occupancy|\bstall[\ _](?:not|lg|wait|no)[\ _]
        |\bthreads\ per\ block|\bpinned\ memory|\btensor[\ -]parallel|\btok/s\b
        |\bbus\ ?(?:bw|bandwidth)\b|\bpower\ cap\b)
  | NCCL|\bTriton[A-Z]|\btl\.\w|\bc10\b|\baten::|\bautograd\b|\bgradcheck\b
  | \bCU_|\bcu[A-Z][A-Za-z]+
  | (?i:\b(?:shared|local|global|constant)[\ -]memory|bank\ conflicts?|spill\w*
        |illegal\ memory\ access)
"""
_BUILDS = r"""
    (?<![A-Za-z])(?i:cmake|ninja|collect2|cc1plus|vcvarsall|msbuild)(?![A-Za-z])
  | (?i:\bld:)|\bcl\.exe|\bLNK\d{4}\b|\bMSB\d{4}\b|\bGLIBC(?:XX)?_
  | \bCXXABI_|\bg(?:cc|\+\+)-?\d*\b
"""

CARDS = re.compile(f"(?xa){_CARDS}")
"""What cards, their kernels and the libraries for them are known by: a name or a part of one."""

FIELD = re.compile(f"(?xa){_CARDS}|{_BUILDS}")
"""What the field is known by: cards, or tools that build for them and for anything else. A text
without any of it is about something else."""

_TROUBLE = re.compile(
    r"""(?xi)
    \b(?:slow\w*|hang\w*|hung|stuck\w*|fr(?:ee|o)z\w*|crash\w*|errors?|fail\w*|wrong\w*|incorrect\w*
      |differ\w*|mismatch\w*|nans?|leak\w*|oom|killed|d(?:oes|id)\ ?n[o']?t|do\ ?n'?t|can(?:no|')?t
      |unable|why|issues?|problems?|bugs?|unexpected\w*|strange\w*|weird\w*|low(?:er)?|bottleneck\w*
      |idle|stall\w*|conflicts?|spill\w*|time[ds]?\ ?outs?|wait\w*|warning|exception|invalid|missing
      |garbage|corrupt\w*|unsupported|not\ (?:supported|found|work\w*|available|detected)
      |no\ (?:gpu|cuda|speed|improvement|effect)|overhead|gaps?|longer|worse|never|increas\w*
      |grow\w*|takes|bad|poor|expected|inconsistent|deadlock\w*|illegal|abort\w*|compared|normal
      |garbl\w*|identical|unresponsive|stop(?:s|ped)|lost|nothing|no\ sign|not\ as)\b
    | \d\ ?%
    """
)
_AT_WORK = re.compile(
    r"""(?xi)
    \b(?:train(?:ing|ed|s)?|infer\w*|run(?:s|ning)?|scripts?|programs?|process(?:es)?|code|models?
      |kernels?|batch\w*|epochs?|iterations?|tensors?|usage|utili[sz]\w+|nvidia-smi|docker
      |containers?|install\w*|compil\w*|import\w*|functions?|launch\w*|streams?|outputs?|results?
      |benchmark\w*|nodes?|implement\w*|test\w*|us(?:e|ing)|tr(?:ied|y\w*))\b
    | [a-z]_[a-z] | [a-z]\( | ::
    """
)
_NEWS = re.compile(r"(?i)\b(?:analysts?|investors?|revenue|trade show|shares (?:rose|fell|of))\b")

ELSEWHERE = re.compile(
    r"\b(?:HIP|ROCm|MPS backend|RADV|AMDVLK|OpenCL|SYCL|amdgpu|[xX][pP][uU]|IPEX|oneAPI)\b"
    r"|\b(?:DirectML|WebGPU)\b"
    r"|\bhip(?:Error|cc|[A-Z])|\bgfx\d{3}|\broc(?:BLAS|blas)|\bMIOpen|\bHSA_STATUS|\bUR_RESULT"
    r"|\bMI[1-3]\d{2}X?\b|\bRX ?\d{4}|\b[67]\d00 ?XTX?\b|\bRadeon\b|\bAdreno\b|\bMali-\w|\bi915\b"
    r"|\bArc A\d{3}|\bApple (?:M\d|MPS|Silicon|GPU)|\bM[1-5] (?:Max|Pro|Ultra|Mac)\b|\bmy M[1-5]\b"
    r"|\bIOGPU|\bMPS[A-Z]\w+"
    r"|\bMetal (?:Performance|Compiler|GPU|panic|backend)|\bon MPS\b|使用MPS"
    r"|\bMemory access fault by GPU node"
    r"|\bserver process \(PID \d+\)|\bworker process \d+ exited\b"
)
"""What another platform than CUDA, or a server without a card (PostgreSQL, nginx), is known by; its
messages may have the same words. Vulkan is none: it runs on NVIDIA's cards too."""


def is_of_the_field(text: str) -> bool:
    """Whether a text is about GPUs, their kernels and the tools that build and run them."""
    return FIELD.search(text) is not None and not ELSEWHERE.search(text)


def is_about_cards(text: str) -> bool:
    """Whether a text names a card, or what is made for one alone."""
    return CARDS.search(text) is not None


def tells_trouble(text: str) -> bool:
    """Whether a text says that something goes wrong, and what a computer was doing: prose on cards,
    such as news of their prices, seldom does both."""
    return (
        _TROUBLE.search(text) is not None
        and _AT_WORK.search(text) is not None
        and not _NEWS.search(text)
    )
