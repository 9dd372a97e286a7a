"""Compile CUDA sources for any architecture, without a card, and read each kernel's resources.

It makes the same objects as a build (same flags, same cache) but links nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kbtool.gpu.build import BuildError, BuildTimeoutError, compile_all
from kbtool.gpu.build_plan import BuildPlan, is_cuda, plan_build
from kbtool.gpu.ninja import usage_log
from kbtool.gpu.toolchain import find_nvcc
from kbtool.model.kernel import Kernel

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(.+)' for '\w+'")
_LOCAL = re.compile(
    r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
_SHARED = re.compile(r"\b(\d+) bytes smem")


@dataclass
class Usage:
    """Resources of one ``__global__`` function, as ptxas reports them."""

    function: str
    """Name without parameters."""
    registers: int = 0
    """Per thread."""
    shared_bytes: int = 0
    """Static shared memory per block."""
    local_bytes: int = 0
    """Local memory per thread: spills, and arrays that are not in registers."""
    spill_store_bytes: int = 0
    """Bytes of registers spilled to local memory, per thread."""
    spill_load_bytes: int = 0
    """Bytes of spilled registers read back, per thread."""


@dataclass(frozen=True)
class Compiled:
    """One source of a CUDA target, compiled for one architecture."""

    kernel: str
    target: str
    source: str
    architecture: str
    functions: list[Usage]
    """Empty if the source does not compile or has no device code."""
    error: BuildError | BuildTimeoutError | None


def plan_compile(
    kernel: Kernel,
    folder: Path,
    cache: Path,
    targets: Sequence[str] = (),
    architectures: Sequence[str] = (),
    *,
    quick: bool = False,
) -> list[BuildPlan]:
    """A build plan for each of the kernel's CUDA targets and each of its architectures.

    Args:
        kernel: the manifest of the kernel.
        folder: the kernel's folder.
        cache: folder for objects.
        targets: only these targets; all if empty. Targets without CUDA sources are skipped.
        architectures: only these, such as ``sm_80``; all that a target lists if empty.
        quick: check only that the sources compile: device code is not optimised, and host code is
            compiled for the first architecture of a target only.

    Raises:
        MachineError: there is no nvcc, no compiler or no torch.
        UsageError: a file is missing.
    """
    plans = []
    for target, spec in kernel.targets.items():
        wanted = [
            plan_build(kernel, folder, target, cache, architecture)
            for architecture in spec.architectures
            if target in (targets or kernel.targets)
            and architecture in (architectures or spec.architectures)
            and any(is_cuda(source) for source in spec.sources_for(architecture))
        ]
        plans += [_quick(plan, host=plan is wanted[0]) for plan in wanted] if quick else wanted
    return plans


def _quick(plan: BuildPlan, *, host: bool) -> BuildPlan:
    """``plan`` with flags for a quick compile check. No build links these objects."""
    flags: list[str] = []
    if int(find_nvcc()[1].partition(".")[0]) >= 13:
        flags.append("--Ofast-compile=max")
    if not host:
        flags.append("-cubin")  # nvcc lets this override the -c of the rule
    name = "-quick" if host else "-quick-device"
    objects = {
        source: path.with_stem(path.stem + name) if is_cuda(source) else path
        for source, path in plan.objects.items()
    }
    return replace(plan, cuda_flags=(*plan.cuda_flags, *flags), objects=objects)


def compile_cuda(
    plans: Sequence[BuildPlan],
    *,
    timeout: float,
    jobs: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Compiled]:
    """Compile the sources that only CUDA targets have and that are not compiled yet.

    These are CUDA sources, and C++ sources that no CPU target lists.

    Args:
        plans: plans from ``plan_compile``, all with the same cache.
        timeout: seconds.
        jobs: number of parallel compilers; 0 means one per core.
        on_line: called with each line that ninja prints.
        on_wait: called once for each plan that another process is building.

    Returns:
        One result for each source and architecture.

    Raises:
        BuildTimeoutError: another process was building one of the plans for the whole time.
        MachineError: ninja is missing, or the disk is full.
    """
    shared = {
        source
        for plan in plans
        for target in plan.kernel.targets.values()
        if not any(map(is_cuda, target.sources))
        for source in target.sources
    }
    errors = compile_all(
        plans,
        lambda source: source not in shared,
        timeout=timeout,
        jobs=jobs,
        on_line=on_line,
        on_wait=on_wait,
    )
    compiled = []
    for plan in plans:
        for source, path in plan.objects.items():
            if source not in shared:
                compiled.append(
                    Compiled(
                        kernel=plan.kernel.id,
                        target=plan.target,
                        source=source,
                        architecture=plan.architecture,
                        functions=parse_usage(usage_log(path).read_text())
                        if is_cuda(source) and path not in errors
                        else [],
                        error=errors.get(path),
                    )
                )
    names = _demangled([usage.function for one in compiled for usage in one.functions])
    for one in compiled:
        for usage in one.functions:
            usage.function = names[usage.function]
    return compiled


def parse_usage(log: str) -> list[Usage]:
    """What ``ptxas -v`` reports for each ``__global__`` function, by mangled name.

    A device function that is not inlined counts towards the kernel reported before it.
    """
    functions: list[Usage] = []
    for line in log.splitlines():
        if match := _ENTRY.match(line):
            functions.append(Usage(match[1]))
        elif not functions:
            continue
        elif match := _LOCAL.match(line):
            usage, (local, stores, loads) = functions[-1], map(int, match.groups())
            usage.local_bytes += local
            usage.spill_store_bytes += stores
            usage.spill_load_bytes += loads
        elif match := _USED.match(line):
            functions[-1].registers = int(match[1])
            if shared := _SHARED.search(line):
                functions[-1].shared_bytes = int(shared[1])
    return functions


def _demangled(names: Iterable[str]) -> dict[str, str]:
    """Mangled name → demangled name, or the same name if this machine has no demangler."""
    mangled = sorted(set(names))
    program = shutil.which("c++filt")
    if program is None or not mangled:
        return {name: name for name in mangled}
    done = subprocess.run(
        [program, "-p"], input="\n".join(mangled), capture_output=True, text=True, check=False
    )
    demangled = done.stdout.splitlines()
    return dict(zip(mangled, demangled if len(demangled) == len(mangled) else mangled, strict=True))
