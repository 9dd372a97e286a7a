"""Finds the compiler, ninja and torch, without importing torch, and says how to get what lacks."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path

from kbtool.model.errors import MachineError


@functools.cache
def find_compiler() -> tuple[str, str]:
    """The C++ compiler and its version: ``CXX``, else c++, g++ or clang++.

    Raises:
        MachineError: there is none.
    """
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["c++", "g++", "clang++"]:
        program = shlex.split(candidate)[0] if candidate else ""
        found = shutil.which(program)
        if found is None:
            continue
        said = _version(found)
        if said is None:
            continue
        return candidate or found, said.splitlines()[0].strip()
    raise MachineError(
        f"no C++ compiler: CXX is {named!r}, which does not run; unset it or mend it"
        if named
        else "no C++ compiler: install g++ or clang++ (Debian: apt-get install g++), or set CXX"
    )


def find_nvcc() -> tuple[Path, str]:
    """The CUDA compiler and its version: under ``CUDA_HOME``, on ``PATH``, at the usual place.

    Raises:
        MachineError: there is none.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    found = (
        (shutil.which("nvcc", path=str(Path(home) / "bin")) if home else None)
        or shutil.which("nvcc")
        or shutil.which("nvcc", path="/usr/local/cuda/bin")
    )
    said = _version(found) if found else None
    match = re.search(r"release [\d.]+, V([\d.]+)", said or "")
    if found is None or match is None:
        raise MachineError("no nvcc: install the CUDA toolkit and put nvcc on PATH")
    return Path(found), match[1]


def cuda_home(nvcc: Path) -> Path:
    """The toolkit that ``nvcc`` belongs to, as it says itself: it may be a script elsewhere.

    Raises:
        MachineError: it does not say.
    """
    argv = [str(nvcc), "--dryrun", "-E", "-x", "cu", os.devnull]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"{nvcc} does not run: {error}") from None
    match = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    if match is None:
        raise MachineError(f"{nvcc} does not say where its toolkit is; set CUDA_HOME")
    return Path(match[1].strip()).resolve()


def find_torch() -> tuple[Path, str]:
    """The folder and the version of torch, found without importing it.

    Raises:
        MachineError: torch is not installed.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise MachineError("torch is not installed: pip install 'kbtool[kernels]'")
    return Path(spec.origin).parent, version("torch")


def _version(program: str) -> str | None:
    try:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def find_ninja() -> str:
    """The path of ninja: of this environment, else of the machine.

    Raises:
        MachineError: there is none.
    """
    own = shutil.which("ninja", path=sysconfig.get_path("scripts"))
    found = own or shutil.which("ninja")
    if found is None:
        raise MachineError("ninja is not installed: pip install 'kbtool[kernels]'")
    return found


@functools.cache
def cpu_features() -> str:
    """What -march=native turns into here: another CPU must not reuse the library."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    except OSError:
        pass
    return ""
