"""From the symptom to the remedy: what is found in a text, and in which order."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from kbtool.model.expression import found_in
from kbtool.model.symptom import KnownSymptom, Symptoms
from kbtool.runner.explain import blocks_of, matching, printed_by, seen
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]

TOOL = {
    "id": "tool",
    "title": "A tool",
    "symptoms": [
        {"id": "undefined", "title": "Undefined", "match": "undefined reference to",
         "example": "undefined reference to `f'", "source": "ld", "advice": "Link it."},
        {"id": "cudart", "title": "No runtime", "match": "undefined reference to `cudaMalloc",
         "example": "undefined reference to `cudaMalloc'", "source": "ld", "advice": "-lcudart"},
        {"id": "stopped", "title": "Stopped", "match": "build stopped", "role": "consequence",
         "example": "ninja: build stopped: subcommand failed.", "source": "ninja", "advice": "Up."},
        {"id": "hopper", "title": "Hopper", "match": "needs sm_90a or wgmma",
         "example": "needs sm_90a or wgmma", "source": "ptxas", "advice": "Compile for sm_90a.",
         "architectures": ["sm_90"]},
        {"id": "any", "title": "Any error", "match": "error:", "general": True,
         "example": "error: x", "source": "ld", "advice": "Read it."},
        {"id": "serial", "title": "Serial", "match": "wgmma serialised", "role": "warning",
         "example": "wgmma serialised", "source": "ptxas", "advice": "Do not call.",
         "architectures": ["sm_90"]},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> Symptoms:
    return Symptoms.model_validate(TOOL)


def names(text: str | bytes, tool: Symptoms, architectures: tuple[str, ...] = ()) -> list[str]:
    raw = text.encode() if isinstance(text, str) else text
    found = seen([], [tool], [raw], architectures)
    return [match.symptom.id for match in found.matches]


def test_causes_come_first_then_what_stands_first_then_what_says_more(tool):
    text = "ninja: build stopped\nwgmma serialised\nundefined reference to `cudaMalloc'\n"
    assert names(text, tool) == ["cudart", "undefined", "serial", "stopped"]


def test_a_cause_that_holds_for_many_messages_stands_behind_the_others(tool):
    text = "error: x\nninja: build stopped\nundefined reference to `f'\n"
    assert names(text, tool) == ["undefined", "any", "stopped"]


def test_advice_for_other_cards_than_the_text_names_is_left_out(tool):
    assert names("wgmma serialised", tool) == ["serial"]
    assert names("for sm_90a\nwgmma serialised", tool) == ["serial"]
    assert names("NVIDIA H100 80GB HBM3\nwgmma serialised", tool) == ["serial"]
    assert names("arch=compute_100,code=sm_100\nwgmma serialised", tool) == []
    assert names("on an RTX 4090: wgmma serialised", tool) == []
    assert names("wgmma serialised", tool, ("sm_89",)) == []
    assert names("sm_80\nwgmma serialised for 'sm_90a'", tool) == ["serial"]


def test_a_line_of_one_tool_is_no_general_message_of_another(tool):
    other = Symptoms.model_validate(
        {"id": "ld", "title": "A linker", "prints": "^ld: ",
         "symptoms": [{"id": "failed", "title": "Failed", "match": "error:", "general": True,
                       "example": "ld: error: x", "source": "ld", "advice": "Read it."}]}
    )  # fmt: skip

    def found(text):
        return [match.name for match in seen([], [tool, other], [text]).matches]

    assert found(b"ld: error: x") == ["ld/failed"]
    assert found(b"as: error: x") == ["ld/failed", "tool/any"]
    assert found(b"ld: error: undefined reference to `f'") == ["tool/undefined", "ld/failed"]


def test_a_general_warning_is_left_out_where_another_tool_names_the_cause(tool):
    other = Symptoms.model_validate(
        {"id": "torch", "title": "A library",
         "symptoms": [{"id": "failed", "title": "Failed", "match": "Error:", "general": True,
                       "role": "warning", "example": "Error: x", "source": "torch",
                       "advice": "Read it."}]}
    )  # fmt: skip
    text = b"Error: undefined reference to `f'\nError: y"
    assert [match.name for match in seen([], [tool, other], [text]).matches] == ["tool/undefined"]
    assert [match.name for match in seen([], [tool, other], [b"Error: y"]).matches] == [
        "torch/failed"
    ]


CAUSES = {
    "id": "disk", "title": "No room", "match": "write failed", "example": "write failed: 9",
    "source": "ld", "advice": "Look at the disk.", "values": {"code": {"after": "failed: "}},
    "causes": [
        {"sign": "(?i)quota", "advice": "Code ${code}: a quota.", "command": "quota -s"},
        {"sign": "in a container", "advice": "Mount a volume."},
        {"sign": "write failed: 28", "advice": "It is full."},
        {"sign": "inode", "advice": "Too many files."},
    ],
}  # fmt: skip


def told(text: str) -> list[tuple[str, str]]:
    tool = Symptoms.model_validate({"id": "ld", "title": "A linker", "symptoms": [CAUSES]})
    (match,) = seen([], [tool], [text.encode()]).matches
    return [(one.cause.sign, one.part) for one in match.causes]


def test_causes_are_told_apart_by_what_else_the_text_has():
    assert told("write failed: 9") == []
    assert told("we run in a container\n\nwrite failed: 9") == [
        ("in a container", "we run in a container")
    ]
    # In the order of the record, and no more than three.
    assert [sign for sign, _ in told("inode\nin a container\nQuota\nwrite failed: 28")] == [
        "(?i)quota", "in a container", "write failed: 28"
    ]  # fmt: skip
    # Far from the beginning, only lines that report an error count, and the one that matched.
    late = "\n" * 300 + "in a container\nfatal: quota is used up\nwrite failed: 28"
    assert [sign for sign, _ in told(late)] == ["(?i)quota", "write failed: 28"]


def test_people_s_words_count_only_where_a_card_is_named(tool):
    said = Symptoms.model_validate(
        {"id": "words", "title": "Words", "in_words": True,
         "symptoms": [{"id": "slower", "title": "Slower", "match": "is slower than",
                       "example": "the kernel is slower than cuBLAS", "source": "people",
                       "advice": "Compare."}]}
    )  # fmt: skip
    assert names("the scan is slower than before", said) == []
    assert names("the scan is slower than thrust's, on CUDA", said) == ["slower"]
    assert names("the scan is slower than before\nNVIDIA H100 80GB HBM3", said) == ["slower"]
    assert names("my CUDA program\n\nthe scan is slower than before", said) == ["slower"]
    assert names("on a GeForce GTX 1080\nthe scan is slower than before", said) == ["slower"]
    late = "\n" * 50 + "my CUDA program"
    assert names("the scan is slower than before" + late, said) == []
    assert names("build stopped", tool) == ["stopped"]  # a tool's own wording needs no card


def test_nul_bytes_bytes_that_are_no_text_and_colours_do_not_hide_a_message(tool):
    assert names(b"\0\xff\xfe build stopped \0", tool) == ["stopped"]
    assert names("\x1b[01;31m\x1b[Kundefined\x1b[m\x1b[K reference to `f'", tool) == ["undefined"]
    assert names("50 %\rundefined reference to `f'\r", tool) == ["undefined"]


@pytest.mark.slow
def test_one_line_of_ten_megabytes_is_searched_to_its_end(tool):
    text = b"x" * 9_000_001 + b"undefined reference to `f'" + b"y" * 1_000_000
    found = seen([], [tool], blocks_of(io.BytesIO(text)))
    (match,) = found.matches
    assert match.number == found.lines == 1
    assert "undefined reference to `f'" in match.part
    assert len(match.part) < 300


@pytest.mark.slow
@pytest.mark.parametrize("place", [4090, (1 << 20) - 5, (2 << 20) - 9, (3 << 20) + 4090])
def test_a_message_at_the_edge_of_a_piece_or_a_block_is_found(tool, place):
    text = b"x" * place + b"undefined reference to `f'" + b"y" * (5 << 20)
    assert len(seen([], [tool], blocks_of(io.BytesIO(text))).matches) == 1


def test_numbers_of_lines_go_on_over_blocks(tool):
    text = b"a line of a log\n" * 300_000 + b"build stopped\n"
    (match,) = seen([], [tool], blocks_of(io.BytesIO(text))).matches
    assert match.number == 300_001


@pytest.mark.slow
def test_a_figure_of_a_profile_is_named_with_its_kernel_and_its_unit():
    table = """\
"ID","Kernel Name","CC","Metric Name","Metric Unit","Metric Value"
"0","gemm","9.0","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","12.00"
"1","decode","9.0","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","100"
"2","decode","9.0","launch__waves_per_multiprocessor","","7.5"
"""
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    found = seen([], catalogue, [table.encode()])
    assert [(match.name, match.number, match.part) for match in found.matches] == [(
        "profile/memory-bound", 3,
        "kernel decode: dram__throughput.avg.pct_of_peak_sustained_elapsed = 100 %",
    )]  # fmt: skip
    assert (found.architectures, found.lines) == ({"90"}, 4)


def test_each_pattern_is_named_once_by_its_best_symptom():
    patterns = [entry.record for entry in KnowledgeBase(ROOT).patterns.values()]
    found = matching(patterns, "undefined symbol: c10::x\nundefined reference to `f'")
    assert [(match.name, match.number) for match in found] == [("P08/undefined-symbol", 1)]


def own_general(base: KnowledgeBase) -> dict[str, KnownSymptom]:
    return {
        f"{tool.id}/{symptom.id}": symptom
        for tool in base.catalogue.values()
        for symptom in tool.symptoms
        if symptom.general
    }


@pytest.mark.slow
def test_the_catalogue_of_this_repository_is_sound():
    base = KnowledgeBase(ROOT)
    assert base.catalogue.keys() == base.symptoms.keys()
    assert base.findings == []
    known = [symptom for tool in base.catalogue.values() for symptom in tool.symptoms]
    assert len(known) >= 150
    own = {symptom.example: f"{tool.id}/{symptom.id}"
           for tool in base.catalogue.values() for symptom in tool.symptoms}  # fmt: skip
    missed = [
        name
        for example, name in own.items()
        if name not in {m.name for m in matching([], example, base.catalogue.values())}
    ]
    assert missed == []
    hidden = [
        name
        for name, symptom in own_general(base).items()
        if (printed := printed_by(base.catalogue.values(), symptom.example))
        and name.split("/")[0] not in printed
    ]
    assert hidden == []  # a general symptom is shown for no line that only other tools print
    field = re.compile(r" (command|words|patterns): ['\[]")
    assert [s.title for s in known if field.search(s.advice)] == []  # no field has become advice


@pytest.mark.parametrize(
    "text",
    [
        "======================= short test summary info =======================\n"
        "================== 1 failed, 63 passed in 4.92s ==================",
        "thread 'parser::tests::nested' panicked at src/parser.rs:88:9:",
        "W: GPG error: https://packages.example.org stable InRelease: NO_PUBKEY 1234567890ABCDEF",
        "dpkg: error processing package nginx (--configure):",
        "==4711== Invalid read of size 4\n==4711==    at 0x10915E: main (list.c:9)",
        "==4711==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010",
        "error: failed to run custom build command for `openssl-sys v0.9.93`\n"
        "  process didn't exit successfully: `build/openssl-sys-4f/build-script-build`",
        "panic: runtime error: invalid memory address or nil pointer dereference\n"
        "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x48f0a5]",
        "# A fatal error has been detected by the Java Runtime Environment:\n"
        "#  SIGSEGV (0xb) at pc=0x00007f2c6a1b, pid=123, tid=456",
        "ValueError: Input X contains NaN.",
        "LOG:  server process (PID 4211) was terminated by signal 11: Segmentation fault",
        "[alert] worker process 812 exited on signal 11 (core dumped)",
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=2)) after connection broken",
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711",
        "Error: Could not acquire lock for state file terraform.tfstate",
        "ValueError: the two shapes must have the same rank",
    ],
)
def test_lines_of_programs_without_a_card_are_none_of_its_tools(text):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    assert printed_by(catalogue, text) == set()
    assert seen([], catalogue, [text.encode()]).matches == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fatal: Signal 11 (SIGSEGV) received by PID 4711", "cuda-runtime/segfault"),
        ("*** SIGSEGV received at time=1700000000 on cpu 3 ***", "cuda-runtime/segfault"),
        ("exit code: SIGSEGV", "cuda-runtime/segfault"),
        ("ValueError: logits contains NaN", "numerics/nan-difference"),
        ("ValueError: hidden_states contain nans", "numerics/nan-difference"),
        ("Segmentation fault (core dumped)", "cuda-runtime/segfault"),
        ("llama.cpp: Vulkan device 0 failed, ggml_vulkan: error", "serving/llama-vulkan"),
        ("failed to run custom build command for `cudarc`", "host-compiler/rust-build-script"),
        ("Unable to find libclang: couldn't find any valid", "host-compiler/rust-libclang"),
    ],
)  # fmt: skip
def test_the_same_words_of_a_program_with_a_card_are_known(text, name):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    assert name in [match.name for match in seen([], catalogue, [text.encode()]).matches]


@pytest.mark.parametrize(
    "wording",
    [
        "NVRM: Xid (PCI:0000:01:00): {}, pid=1234, name=python3, Ch 00000008",
        "my training died with Xid {}",
        "GPU-0 XID error {} reported",
    ],
)
def test_each_xid_is_known_in_each_wording_by_its_own_number(wording):
    driver = KnowledgeBase(ROOT).catalogue["driver"]
    xids = {one.id: one.match for one in driver.symptoms if one.id.startswith("xid-")}
    found = {
        number: {id_ for id_, match in xids.items() if found_in(match, wording.format(number))}
        for number in range(1, 175)
    }
    assert [number for number, ids in found.items() if "xid-other" not in ids] == []
    assert {len(ids) for ids in found.values()} == {1, 2}  # the general one, and one of its own
    own = {
        13: "xid-13", 31: "xid-31", 64: "xid-63", 70: "xid-70", 79: "xid-79", 120: "xid-119",
        126: "xid-70", 130: "xid-70", 135: "xid-70", 136: "xid-74", 165: "xid-162",
        42: "xid-68", 92: "xid-92", 107: "xid-106", 168: "xid-48",
    }  # fmt: skip
    assert {number: found[number] - {"xid-other"} for number in own} == {
        number: {id_} for number, id_ in own.items()
    }


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("x.h:78:2: error: #error The version of CUB in your include path is not compatible with"
         " this release of Thrust.", "nvcc/cub-thrust-version"),
        ("nvcc fatal   : Cannot compile in the 32-bit mode when the host compiler targets aarch64.",
         "nvcc/bitness"),
        ('arm_neon.h(56): error: identifier "__Int8x8_t" is undefined', "nvcc/arm-headers"),
        ("BIN2C-NOTFOUND: bin2c not found", "cmake/bin2c"),
        ("nvlink warning : SM Arch ('sm_52') not found in 'k.cu.o'", "linker/nvlink-arch-missing"),
        ("CUDA_nvrtc_LIB-NOTFOUND", "cmake/variable-not-found"),
        ("-- Could NOT find torch (missing: TORCH_LIBRARY)", "cmake/torch-not-found"),
        ("error C3688: invalid literal suffix", "host-compiler/source-encoding"),
        ("manifest for nvidia/cuda:11.3.0-devel-ubuntu20.04 not found", "containers/image-tag"),
        ("cc1plus: error: bad value ('native') for '-march=' switch", "host-compiler/march"),
        ("k.cu:1:10: fatal error: hip/hip_runtime.h: No such file or directory",
         "host-compiler/other-platform"),
    ],
)  # fmt: skip
def test_a_message_of_a_build_is_known_by_its_cause(line, name):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    assert name in [match.name for match in seen([], catalogue, [line.encode()]).matches]


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "CMake Warning at torch/share/cmake/Torch/TorchConfig.cmake:22 (message):",
        "AssertionError: TritonKernel.indexing assumes YBLOCK divides max_block",
    ],
)
def test_a_path_a_library_or_a_name_is_no_cause_of_its_own(line):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    names = {match.name for match in seen([], catalogue, [line.encode()]).matches}
    assert not names & {
        "host-compiler/cuda-header", "cmake/torch-not-found", "triton/triton-mlir",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line", ["==4711== NVPROF is profiling process 4711, command: ./a.out",
             "==4711== Warning: ERR_NVGPUCTRPERM - The user does not have permission"],
)  # fmt: skip
def test_lines_of_nvprof_are_of_the_profiler(line):
    assert printed_by(KnowledgeBase(ROOT).catalogue.values(), line) == {"profile"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my CUDA kernel gives different results each run", "behaviour/run-to-run"),
        ("after the CUDA graph replay the output is still the old value",
         "behaviour/graph-python-side"),
        ("all my ranks run on the same GPU", "behaviour/same-card"),
        ("matmul in fp32 is less precise on an RTX 4090", "behaviour/tf32-by-example"),
        ("my CUDA kernel is correct only for sizes that are multiples of 32",
         "behaviour/only-some-sizes"),
        ("the CUDA kernel is missing a __syncthreads() in the loop", "behaviour/barrier-in-words"),
        ("pip install of the CUDA extension gets killed", "behaviour/killed-in-words"),
        ("the GPU stops working and needs a reboot", "behaviour/card-stops"),
        ("GPU 0 uses more memory than the others", "behaviour/uneven-cards"),
        ("the model does not fit on my GPU", "behaviour/larger-than-card"),
        ("the first inference on the GPU takes 30 seconds", "performance/first-call"),
        ("cudaMemcpyAsync blocks the host", "performance/copy-blocks"),
        ("the kernel is 3x slower in the model than in the benchmark",
         "performance/timed-otherwise"),
        ("higher occupancy, but the kernel is slower", "performance/launch-bounds"),
        ("vLLM is idle and a CPU core is at 100%", "performance/idle-busy"),
        ("nvidia-smi shows CUDA 12.4 but nvcc another version", "install/smi-version"),
        ("Triton autotune: wrong results at the first run", "triton/autotune-in-place"),
        ("which line of my CUDA kernel is it?", "compute-sanitizer/line-numbers"),
        ("GPU utilization is 100% but power is low", "performance/small-power"),
        ("multi-node training hangs, GPU utilization is 100%", "nccl/hangs"),
        ("training on one GPU is fine, with 2 GPUs it gets stuck", "nccl/several-stuck"),
        ("why is the program slower on the GPU than on the CPU?", "performance/slower-than-cpu"),
        ("why is the result on Hopper nondeterministic?", "behaviour/not-deterministic"),
        ("only one of my 8 A100 GPUs is used", "questions/one-card-used"),
        ("nsys does not show the kernels of the child processes", "questions/nsys-children"),
        ("the CUDA kernel gives other results in Debug and Release", "questions/debug-build"),
        ("it does not work on my RTX 5090", "questions/newer-card"),
        ("flash_attn has been building for 3 hours", "questions/parallel-build"),
        ("llama-cpp-python does not use my GPU", "serving/llama-cpp-cpu"),
        ("no CUDA events in the trace of the profiler", "profile/cupti-unavailable"),
        ("how to build vllm from source for my RTX 4090", "questions/build-from-source"),
        ("my kernel needs more than 48 KB of shared memory", "questions/dynamic-shared"),
    ],
)  # fmt: skip
def test_a_question_in_people_s_words_finds_its_class(text, name):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    found = [match.name for match in seen([], catalogue, [text.encode()]).matches]
    assert name in found[:3]


@pytest.mark.parametrize(
    "text",
    [
        "the GPU kernel on my Radeon RX 7900 XTX gives different results each run",
        "the training on the GPU is very slow\non an Apple M2",
        "the Linux kernel hangs",
        "Metal: no speedup on the GPU of my M2",
        "the webpack build uses only one core and takes hours",
        "the Rust release build crashes but the debug build works",
        "TypeError: render() got an unexpected keyword argument 'status'",
    ],
)
def test_words_about_another_platform_find_nothing(text):
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    assert seen([], catalogue, [text.encode()]).matches == []


def test_no_advice_is_the_opposite_of_the_remedy():
    catalogue = KnowledgeBase(ROOT).catalogue.values()

    def first_three(text: str) -> list[str]:
        return [match.name for match in seen([], catalogue, [text.encode()]).matches][:3]

    too_little = first_three(
        "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than"
        " desired GPU memory utilization (0.9, 19.84 GiB)."
    )
    assert "memory/memory-at-start" in too_little
    assert "memory/kv-cache" not in too_little  # which says to raise it
    assert "install/repository-broken" not in first_three("Failed to fetch CUDA devices.")


def test_a_binding_of_one_language_is_not_named_for_another():
    text = "numba.cuda.cudadrv.driver.CudaAPIError: [34] Call to cuInit results in an error"
    catalogue = KnowledgeBase(ROOT).catalogue.values()
    names = [match.name for match in seen([], catalogue, [text.encode()]).matches]
    assert names  # Julia's CUDAdrv differs from Numba's cudadrv in capitals alone
    assert not any(name.startswith("bindings/julia") for name in names)


def test_a_log_of_ten_megabytes_takes_a_moment():
    base = KnowledgeBase(ROOT)
    catalogue = list(base.catalogue.values())
    lines = (
        b"[%d/900] nvcc -gencode arch=compute_90,code=sm_90 -O3 -c kernel_%d.cu -o kernel_%d.o\n"
        b'kernel_%d.cu(3): warning #177-D: variable "x" was declared but never referenced\n'
    )
    text = b"".join(lines % (n, n, n, n) for n in range(62_000))
    assert len(text) > 10_000_000
    started = time.process_time()
    found = seen(
        [], catalogue, [text, b"fatal error: torch/extension.h: No such file or directory"]
    )
    assert time.process_time() - started < 3  # a slow machine; `make bench` tells the figure
    assert [match.name for match in found.matches] == [
        "host-compiler/torch-include",
        "host-compiler/header-not-found",
        "nvcc/front-end-warning",
    ]
