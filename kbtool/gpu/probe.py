"""Probe the machine: card, driver, compilers, versions. Does not import torch.

A probe that finds nothing returns ``None``. No probe raises, and none waits for a hung driver.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kbtool import __version__
from kbtool.gpu.toolchain import find_compiler, find_ninja, find_nvcc
from kbtool.model.errors import MachineError
from kbtool.model.run import MachineInfo

_TIMEOUT = 20.0
"""Seconds for one probe. A driver that starts up takes several; a hung one never answers."""


def probe_machine(
    card: Mapping[str, Any] | None = None, driver: Callable[[], str | None] | None = None
) -> MachineInfo:
    """The machine and the installed software.

    Args:
        card: the answer of ``read_card`` if it was asked already.
        driver: gives the version of the driver; nvidia-smi is asked unless it does.
    """
    card = read_card() if card is None else card
    return MachineInfo(
        card=card.get("name"),
        cards=card.get("cards"),
        compute_capability=card.get("compute_capability"),
        card_memory_bytes=card.get("memory_bytes"),
        multiprocessors=card.get("multiprocessors"),
        l2_bytes=card.get("l2_bytes"),
        sm_clock_mhz=card.get("sm_clock_mhz"),
        memory_clock_mhz=card.get("memory_clock_mhz"),
        power_limit_w=card.get("power_limit_w"),
        driver=(driver and driver()) or _driver(),
        cuda=_torch_cuda(),
        nvcc=_nvcc(),
        compiler=_compiler(),
        ninja=_ninja(),
        torch=_installed("torch"),
        numpy=_installed("numpy"),
        python=platform.python_version(),
        kbtool=__version__,
        os=f"{_os_name()} {platform.machine()}",
        cpu=_cpu(),
        cores=_cores(),
    )


def card_uuid() -> str | None:
    """The UUID of the first card that this process may use. Records do not store it."""
    identity = read_card().get("uuid")
    return identity if isinstance(identity, str) else None


def processes_on(card: str) -> int | None:
    """How many compute processes nvidia-smi lists on the card with this UUID; ``None`` if
    nvidia-smi is missing or fails."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return None
    query = ["-i", f"GPU-{card}", "--query-compute-apps=pid", "--format=csv,noheader"]
    output = _output([found, *query])
    # In a container nvidia-smi may print text such as [N/A] instead of a number.
    return None if output is None else sum(line.strip().isdigit() for line in output.splitlines())


def read_card() -> dict[str, Any]:
    """The first card that this process may use, as the driver describes it; empty without one."""
    script = Path(__file__).with_name("_card.py")
    output = _output([sys.executable, "-I", str(script)])
    if output is not None:
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
    return {}


def _driver() -> str | None:
    version = _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if version and re.fullmatch(r"[\d.]+", version):
        return version
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else None


def _nvcc() -> str | None:
    try:
        return find_nvcc()[1]
    except MachineError:
        return None


def _compiler() -> str | None:
    try:
        return find_compiler()[1]
    except MachineError:
        return None


def _ninja() -> str | None:
    try:
        return _first_line(find_ninja(), "--version")
    except MachineError:
        return None


def _torch_cuda() -> str | None:
    """The CUDA version from torch's version file, read without importing torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        named = any(isinstance(target, ast.Name) and target.id == "cuda" for target in targets)
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    return None


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _first_line(program: str, *arguments: str) -> str | None:
    found = shutil.which(program)
    output = _output([found, *arguments]) if found else None
    lines = (output or "").strip().splitlines()
    return lines[0].strip() if lines else None


def _output(argv: list[str]) -> str | None:
    """What a program prints; ``None`` if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
