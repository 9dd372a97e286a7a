"""Compiling CUDA sources without a card: resources and errors are reported."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kbtool.cli.main import run
from kbtool.gpu import toolchain
from kbtool.gpu.compile import Usage, parse_usage
from kbtool.model.errors import MachineError

pytestmark = pytest.mark.slow

try:
    toolchain.find_nvcc()
    WITHOUT_NVCC = ""
except MachineError as error:
    WITHOUT_NVCC = str(error)

needs_nvcc = pytest.mark.skipif(bool(WITHOUT_NVCC), reason=WITHOUT_NVCC or "there is nvcc")

MANIFEST = """\
id: twice
title: Twice
summary: It doubles.
namespace: twice
harness: harness.py
targets:
  cpu: {sources: [twice.cpp]}
  cuda:
    sources: [twice.cpp, sub/host.cpp, sub/twice.cu, sub/other.cu]
    headers: [twice.h]
    architectures: [sm_80, sm_90a]
    architecture_sources: {sm_90a: [sub/hopper.cu]}
case_fields:
  n: {type: int, help: how many}
case_sets:
  small: {title: Small ones, cases: [{n: 1}]}
"""

TWICE = """\
#include "../twice.h"
__global__ void twice(float* x) {
  __shared__ float kept[SIZE];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[SIZE - 1 - threadIdx.x];
}
"""
OTHER = """\
namespace other {
template <int N>
__global__ void keeps_an_array(float* x, int i) {
  float local[N];
  for (int j = 0; j < N; ++j) local[j] = x[j];
  for (int j = 0; j < N; ++j) local[(j * i) & (N - 1)] += local[j];
  for (int j = 0; j < N; ++j) x[j] = local[j];
}
template __global__ void keeps_an_array<64>(float*, int);
}
"""
HOPPER = """\
#if !defined(KBTOOL_ARCH_SM_90A)
#error "for sm_90a alone"
#endif
__global__ void waits() { asm volatile("wgmma.fence.sync.aligned;"); }
"""

PATTERN = """\
id: P01
number: 1
title: Shared memory is small
summary: It recurs.
stated_status: operational
problem: Something goes wrong.
solution: Do otherwise.
when_to_use: [always]
when_not: [never]
symptoms:
  - id: too-much
    match: uses too much shared data
    example: uses too much shared data (0x20000 bytes, 0xc000 max)
    advice: Ask for it when the kernel is launched.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "sessions/.keep": "",
        "patterns/P01.yaml": PATTERN,
        "kernels/twice/kernel.yaml": MANIFEST,
        "kernels/twice/twice.h": "#define SIZE 256\n",
        "kernels/twice/twice.cpp": "this is no C++ and must not be compiled here\n",
        "kernels/twice/sub/host.cpp": "int of_the_cuda_target_alone() { return 1; }\n",
        "kernels/twice/sub/twice.cu": TWICE,
        "kernels/twice/sub/other.cu": OTHER,
        "kernels/twice/sub/hopper.cu": HOPPER,
    }
    for name, text in files.items():
        path = tmp_path / "base" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "base"


def compile_lines(err: str) -> list[str]:
    return sorted(line.partition("compile ")[2] for line in err.splitlines() if "] compile" in line)


@needs_nvcc
def test_every_source_compiles_for_every_architecture_once(root, kbtool):
    first = kbtool("kernel", "compile", "--json", root=root)
    assert first.code == 0, first.err
    assert compile_lines(first.err) == [
        "sub/hopper.cu for sm_90a",
        "sub/host.cpp",
        "sub/host.cpp",
        "sub/other.cu for sm_80",
        "sub/other.cu for sm_90a",
        "sub/twice.cu for sm_80",
        "sub/twice.cu for sm_90a",
    ]
    compiled = json.loads(first.out)["compiled"]
    usages = {(one["source"], one["architecture"]): one["functions"] for one in compiled}
    for architecture in ("sm_80", "sm_90a"):
        [twice] = usages["sub/twice.cu", architecture]
        assert twice["function"] in {"twice", "twice(float*)"}
        assert twice["shared_bytes"] == 256 * 4
        assert twice["registers"] > 0
        assert twice["local_bytes"] == 0
        [other] = usages["sub/other.cu", architecture]
        assert other["function"] == "other::keeps_an_array<64>"
        assert other["local_bytes"] == 64 * 4
        assert other["spill_store_bytes"] == 0
    assert "sub/other.cu: kernels use local memory, up to 256 bytes" in first.err
    assert "sub/twice.cu: kernels use" not in first.err
    assert not list((root / ".kbtool/build").rglob("*.so"))

    for path in (root / "kernels").rglob("*.*"):
        os.utime(path)  # content counts, not time
    again = kbtool("kernel", "compile", root=root)
    assert (again.code, compile_lines(again.err)) == (0, [])
    assert "64" in again.out

    header = root / "kernels/twice/twice.h"
    header.write_text("#define SIZE 128\n")
    edited = kbtool("kernel", "compile", "--architecture", "sm_80", "--json", root=root)
    assert compile_lines(edited.err) == ["sub/twice.cu for sm_80"]
    functions = {one["source"]: one["functions"] for one in json.loads(edited.out)["compiled"]}
    assert functions["sub/twice.cu"][0]["shared_bytes"] == 128 * 4
    header.write_text("#define SIZE 256\n")
    back = kbtool("kernel", "compile", root=root)
    assert compile_lines(back.err) == []


@needs_nvcc
@pytest.mark.parametrize("quick", [[], ["--quick"]], ids=["whole", "quick"])
def test_each_compile_error_is_shown_with_the_matching_pattern(root, kbtool, quick):
    (root / "kernels/twice/twice.h").write_text("#define SIZE 262144\n")
    (root / "kernels/twice/sub/other.cu").write_text("__global__ void f() { g(); }\n")
    done = kbtool("kernel", "compile", "--json", *quick, root=root)
    assert done.code == 1
    errors = {
        (one["source"], one["architecture"]): one["error"]
        for one in json.loads(done.out)["compiled"]
    }
    assert errors["sub/hopper.cu", "sm_90a"] is None
    for architecture in ("sm_80", "sm_90a"):
        error = errors["sub/twice.cu", architecture]
        assert error.startswith("ptxas error   : Entry function '_Z5twicePf' uses too much shared")
        assert (
            'other.cu(1): error: identifier "g" is undefined'
            in errors["sub/other.cu", architecture]
        )
    assert 'identifier "g" is undefined (for sm_80, sm_90a)' in done.err
    assert (
        "P01 Shared memory is small knows this error: Ask for it when the kernel is launched."
        in done.err
    )
    assert done.err.count("P01 Shared") == 2  # the cards have different limits, and so two errors
    assert "4 sources, 2 architectures, 7 objects: 4 failed" in done.err


@needs_nvcc
def test_objects_of_a_quick_compile_are_not_used_by_builds(root, kbtool):
    quick = kbtool("kernel", "compile", "--quick", "--json", root=root)
    assert quick.code == 0, quick.err
    cuda = [line for line in compile_lines(quick.err) if ".cu for sm_" in line]
    assert len(cuda) == 5
    assert [one["functions"] for one in json.loads(quick.out)["compiled"]] == [[]] * 7
    assert compile_lines(kbtool("kernel", "compile", "--quick", root=root).err) == []
    assert compile_lines(kbtool("kernel", "compile", root=root).err) == cuda


@needs_nvcc
def test_an_architecture_that_nvcc_refuses_is_a_finding(root, kbtool):
    text = MANIFEST.replace("sm_80, sm_90a", "sm_10, sm_90a")
    (root / "kernels/twice/kernel.yaml").write_text(text)
    done = kbtool("kernel", "compile", "--architecture", "sm_10", root=root)
    assert done.code == 1
    assert "error: twice/sub/twice.cu: nvcc fatal   : Unsupported gpu architecture" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "there is no kernel 'none'; there is twice"),
        (["--target", "rocm"], "there is no target 'rocm'; there is cpu, cuda"),
        (["--architecture", "sm_75"], "no architecture 'sm_75'; there is sm_80, sm_90a"),
    ],
)
@needs_nvcc
def test_an_unknown_kernel_target_or_architecture_exits_2(root, kbtool, arguments, said):
    done = kbtool("kernel", "compile", *arguments, root=root)
    assert done.code == 2
    assert said in done.err


@needs_nvcc
def test_a_broken_manifest_is_not_left_out_in_silence(root, kbtool):
    (root / "kernels/other").mkdir()
    (root / "kernels/other/kernel.yaml").write_text("id: other\n")
    done = kbtool("kernel", "compile", root=root)
    assert done.code == 2
    assert "kernels/other/kernel.yaml:1: schema: " in done.err
    assert kbtool("kernel", "compile", "twice", "--architecture", "sm_80", root=root).code == 0
    done = kbtool("kernel", "compile", "twice", "--target", "cpu", root=root)
    assert done.code == 0
    assert "no target lists CUDA sources" in done.err


def test_without_nvcc_compile_exits_3_or_skips_if_asked(root, monkeypatch, capsys):
    monkeypatch.setattr(toolchain.shutil, "which", lambda *a, **k: None)
    assert run(["--root", str(root), "kernel", "compile"]) == 3
    assert "no nvcc: install the CUDA toolkit" in capsys.readouterr().err
    assert run(["--root", str(root), "kernel", "compile", "--skip-without-nvcc"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "pip install 'kbtool[nvcc]'" in said.err


def test_nvcc_is_found_among_the_packages_last(tmp_path, monkeypatch):
    def nvcc(place: str, version: str) -> Path:
        path = tmp_path / place / "nvcc"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho 'release {version}, V{version}.1'\n")
        path.chmod(0o755)
        return path

    package = nvcc("site/nvidia/cu13/bin", "13.0")
    real = shutil.which
    usual = "/usr/local/cuda/bin"
    monkeypatch.setattr(
        toolchain.shutil,
        "which",
        lambda name, path=None: None if path == usual else real(name, path=path),
    )
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda _: str(tmp_path / "site"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    if shutil.which("nvcc") in (None, str(package)):
        assert toolchain.find_nvcc() == (package, "13.0.1")
    on_path = nvcc("bin", "12.9")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert toolchain.find_nvcc() == (on_path, "12.9.1")
    at_home = nvcc("home/bin", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert toolchain.find_nvcc() == (at_home, "12.8.1")


def test_the_runtime_of_a_toolkit_and_of_a_package(tmp_path):
    assert toolchain.cuda_runtime(tmp_path) == (tmp_path / "lib64", "-lcudart")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudart.so.13").touch()
    assert toolchain.cuda_runtime(tmp_path) == (tmp_path / "lib", "-l:libcudart.so.13")
    (tmp_path / "lib64").mkdir()
    assert toolchain.cuda_runtime(tmp_path) == (tmp_path / "lib64", "-lcudart")


PTXAS = """\
x.cu(3): warning #177-D: variable "y" was declared but never referenced
ptxas info    : 24 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_90a'
ptxas info    : Function properties for _Z1aPf
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 288.446 ms
ptxas info    : Function properties for _Z6calledf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z1bv' for 'sm_90a'
ptxas info    : Function properties for _Z1bv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers
"""


def test_registers_and_spills_are_read_from_ptxas_output():
    assert parse_usage(PTXAS) == [
        Usage("_Z1aPf", 255, 4096, 24, 16, 24),
        Usage("_Z1bv", 4, 0, 0, 0, 0),
    ]
