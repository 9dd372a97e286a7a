"""CUDA sources of the attention kernel, compiled for the host and loaded."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from attention_rule import FOLDER

from kbtool.gpu.toolchain import cuda_home, find_nvcc
from kbtool.model.errors import MachineError

HOST_CUDA = Path(__file__).parent / "host_cuda"


def library_on_host(source: Path, *flags: str) -> ctypes.CDLL:
    """A C++ source that includes CUDA's headers, as a library beside it. Skips the test where
    there are none."""
    try:
        home = cuda_home(find_nvcc()[0])
    except MachineError as error:
        pytest.skip(f"CUDA's headers are needed: {error}")
    built = source.with_suffix(".so")
    subprocess.run(
        ["c++", "-std=c++17", "-fPIC", "-shared", *flags, f"-isystem{home / 'include'}",
         str(source), "-o", str(built)],
        check=True, timeout=300,
    )  # fmt: skip
    return ctypes.CDLL(str(built))


def kernel_on_host(folder: Path, source: Path, optimised: str = "-O1") -> ctypes.CDLL:
    """``source`` beside a copy of the kernel in ``folder``, which ``host_cuda.h`` has run."""
    kernel = folder / "kernel"
    shutil.copytree(FOLDER, kernel)
    for path in [*kernel.rglob("*.h"), *kernel.rglob("*.cuh")]:
        path.write_text(for_the_host(path.read_text(encoding="utf-8")), encoding="utf-8")
    copy = shutil.copy(source, kernel)
    return library_on_host(
        Path(copy), optimised, "-D__forceinline__=inline", f"-I{kernel}", f"-I{HOST_CUDA}"
    )


def for_the_host(source: str) -> str:
    """CUDA source as ``host_cuda.h`` has it run: launches are calls, shared memory is static."""
    for device, host in (
        ("return launch_kernel(", "return host_cuda::launch("),
        ("extern __shared__", "extern"),
        ("__shared__", "static"),
        ("defined(__CUDACC__)", "1"),
        ("cudaFuncSetAttribute", "host_cuda::set_attribute"),
        ("cudaGetDevice(", "host_cuda::get_device("),
        ("cudaDeviceGetAttribute(", "host_cuda::get_attribute("),
    ):
        source = source.replace(device, host)
    return source
