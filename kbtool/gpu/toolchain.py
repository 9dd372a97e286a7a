"""Find compilers, ninja and torch without importing torch. Errors say how to install each."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from kbtool.model.errors import MachineError


@functools.cache
def find_compiler() -> tuple[str, str]:
    """The C++ compiler and its version: ``CXX``, else c++, g++ or clang++.

    Raises:
        MachineError: none was found.
    """
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["c++", "g++", "clang++"]:
        program = shlex.split(candidate)[0] if candidate else ""
        found = shutil.which(program)
        if found is None:
            continue
        version = _version(found)
        if version is None:
            continue
        return candidate or found, version.splitlines()[0].strip()
    raise MachineError(
        f"no C++ compiler: CXX is {named!r}, which does not run; unset or correct CXX"
        if named
        else "no C++ compiler: install g++ or clang++ (Debian: apt-get install g++), or set CXX"
    )


def find_nvcc() -> tuple[Path, str]:
    """The CUDA compiler and its version.

    Raises:
        MachineError: none was found.
    """
    return _of_toolkit(
        "nvcc",
        r"release [\d.]+, V([\d.]+)",
        "no nvcc: install the CUDA toolkit and put nvcc on PATH, or run"
        " `pip install 'kbtool[nvcc]'`",
    )


def find_profiler() -> tuple[Path, str]:
    """Nsight Compute and its version.

    Raises:
        MachineError: none was found.
    """
    return _of_toolkit(
        "ncu",
        r"Version ([\d.]+)",
        "no profiler: install Nsight Compute and put ncu on PATH",
    )


def find_sanitiser() -> tuple[Path, str]:
    """compute-sanitizer and its version.

    Raises:
        MachineError: none was found.
    """
    return _of_toolkit(
        "compute-sanitizer",
        r"Version ([\d.]+)",
        "no compute-sanitizer: install the CUDA toolkit and put compute-sanitizer on PATH",
    )


def _of_toolkit(program: str, version: str, lacking: str) -> tuple[Path, str]:
    """Path and version of a program of the CUDA toolkit.

    Searched in ``CUDA_HOME``, ``PATH``, the default install path, then this environment's packages.

    Raises:
        MachineError: it does not exist or does not run; the message is ``lacking``.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    packages = Path(sysconfig.get_path("platlib"), "nvidia").glob("cu*/bin")
    found = (
        (shutil.which(program, path=str(Path(home) / "bin")) if home else None)
        or shutil.which(program)
        or shutil.which(program, path="/usr/local/cuda/bin")
        or shutil.which(program, path=os.pathsep.join(map(str, sorted(packages))))
    )
    match = re.search(version, (_version(found) or "") if found else "")
    if found is None or match is None:
        raise MachineError(lacking)
    return Path(found), match[1]


def cuda_home(nvcc: Path) -> Path:
    """The toolkit of ``nvcc``, as it reports it: ``nvcc`` may be a wrapper script elsewhere.

    Raises:
        MachineError: nvcc does not report it.
    """
    argv = [str(nvcc), "--dryrun", "-E", "-x", "cu", os.devnull]
    try:
        printed = subprocess.run(
            argv, capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"{nvcc} does not run: {error}") from None
    match = re.search(r"^#\$ TOP=(.+)$", printed, re.MULTILINE)
    if match is None:
        raise MachineError(f"{nvcc} does not report its toolkit's path; set CUDA_HOME")
    return Path(match[1].strip()).resolve()


def cuda_runtime(home: Path) -> tuple[Path, str]:
    """The folder of the CUDA runtime library of the toolkit at ``home``, and its linker flag."""
    if not (home / "lib64").is_dir():
        # In the Python packages the library exists only under its versioned name.
        for library in sorted((home / "lib").glob("libcudart.so.*")):
            return library.parent, f"-l:{library.name}"
    return home / "lib64", "-lcudart"


def find_torch() -> tuple[Path, str]:
    """The folder and version of torch, found without importing it.

    Raises:
        MachineError: torch is not installed.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise MachineError("torch is not installed: pip install 'kbtool[kernels]'")
    return Path(spec.origin).parent, version("torch")


def own_programs() -> str:
    """PATH with the programs next to this Python first, so that python3 is the one with torch."""
    return os.pathsep.join(
        filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    )


def _version(program: str) -> str | None:
    try:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def find_ninja() -> str:
    """The path of ninja: in this environment, else on the machine.

    Raises:
        MachineError: none was found.
    """
    own = shutil.which("ninja", path=sysconfig.get_path("scripts"))
    found = own or shutil.which("ninja")
    if found is None:
        raise MachineError("ninja is not installed: pip install 'kbtool[kernels]'")
    return found


@functools.cache
def cpu_features() -> str:
    """The CPU features that -march=native enables, so that no other CPU reuses the library."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    except OSError:
        pass
    return ""
