"""Builds a kernel with ninja, in a folder named by the hash of everything that goes in.

Compiling needs torch's headers and libraries but never imports torch. The same inputs give the
same folder, so a second build finds the library there and runs no compiler.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbtool.gpu.process import Completed, run_process
from kbtool.gpu.toolchain import (
    cpu_features,
    cuda_home,
    find_compiler,
    find_ninja,
    find_nvcc,
    find_torch,
)
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel, Target
from kbtool.model.run import BuildResult
from kbtool.store.lock import LockTimeoutError, lock
from kbtool.store.write import write_atomic

COMMON_FLAGS = ("-std=c++17", "-fPIC")
# A symbol that nothing defines fails the link here, with its name, and not the import later.
LINK_FLAGS = ("-shared", "-Wl,--no-undefined")
_FIRST_ERROR = re.compile(
    r"(?:fatal )?error[: ]|undefined (?:reference|symbol)|multiple definition|cannot find -l"
    r"|No such file|ptxas fatal|Killed",
)
_NOT_AN_ERROR = re.compile(r"^\s*(?:FAILED:|ninja:|collect2:|c\+\+|g\+\+|nvcc )")


class BuildError(Exception):
    """The compiler or the linker refused; carries the first real error and the whole output."""

    def __init__(self, first: str, output: str) -> None:
        super().__init__(first)
        self.first = first
        self.output = output


class BuildTimeoutError(Exception):
    """The build was stopped at its deadline."""


@dataclass(frozen=True)
class BuildPlan:
    """Everything that a build is made of; ``key`` is its hash."""

    kernel: Kernel
    target: str
    folder: Path
    """The kernel's sources."""
    build_folder: Path
    compiler: str
    compiler_version: str
    flags: tuple[str, ...]
    nvcc: str
    """The CUDA compiler; empty where there are no CUDA sources."""
    cuda_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    sources: dict[str, str]
    """File, relative to ``folder`` → SHA-256; headers included."""
    key: str

    @property
    def library(self) -> Path:
        """Where the library is once it is built."""
        return self.build_folder / f"{self.kernel.id}.so"

    @property
    def marker(self) -> Path:
        """Written last: its presence says that the library is whole."""
        return self.build_folder / "built.json"


def choose_target(kernel: Kernel, wanted: str, *, cuda: bool) -> str:
    """The target to build: ``wanted``, or for ``auto`` cuda where it can run, else cpu.

    Args:
        kernel: its manifest.
        wanted: a target of the manifest, or auto.
        cuda: whether there are a card, nvcc and a torch with CUDA.

    Raises:
        UsageError: the manifest has no such target.
    """
    if wanted == "auto":
        wanted = "cuda" if cuda and "cuda" in kernel.targets else "cpu"
    if wanted not in kernel.targets:
        known = ", ".join(kernel.targets)
        raise UsageError(f"kernel {kernel.id} has no target {wanted!r}; it has {known}")
    return wanted


def choose_architecture(kernel: Kernel, target: str, capability: str | None) -> str:
    """The architecture to compile for: the target's own for the card, else the first it lists.

    Args:
        kernel: its manifest.
        target: a target of the manifest.
        capability: the card's, ``sm_90``; ``None`` without a card.

    Raises:
        UsageError: the target does not compile for this card.
    """
    known = kernel.targets[target].architectures
    if not known or capability is None:
        return known[0] if known else ""
    for architecture in known:
        # sm_90a is sm_90 with what only that chip has.
        if architecture.rstrip("af") == capability:
            return architecture
    raise UsageError(
        f"target {target} of kernel {kernel.id} does not compile for {capability};"
        f" it does for {', '.join(known)}"
    )


def plan_build(
    kernel: Kernel, folder: Path, target: str, cache: Path, architecture: str = ""
) -> BuildPlan:
    """What building ``target`` of the kernel in ``folder`` takes; nothing is written.

    Args:
        kernel: its manifest.
        folder: the kernel's folder.
        target: a target of the manifest.
        cache: where build folders go.
        architecture: of CUDA sources, from ``choose_architecture``.

    Raises:
        MachineError: a compiler or torch's headers are missing.
        UsageError: a file that the manifest lists is missing.
    """
    spec = kernel.targets[target]
    compiler, compiler_version = find_compiler()
    torch_folder, torch_version = find_torch()
    flags = (*COMMON_FLAGS, *spec.flags, f"-I{folder}", f"-isystem{torch_folder / 'include'}")
    libraries = [torch_folder / "lib"]
    wanted = ["-ltorch_cpu"]
    nvcc = ""
    cuda_flags: tuple[str, ...] = ()
    if _has_cuda(spec):
        nvcc_path, nvcc_version = find_nvcc()
        home = cuda_home(nvcc_path)
        nvcc, compiler_version = str(nvcc_path), f"{compiler_version}; nvcc {nvcc_version}"
        code = architecture.removeprefix("sm_")
        cuda_flags = (
            "-std=c++17", "-Xcompiler=-fPIC", f"-gencode=arch=compute_{code},code=sm_{code}",
            *spec.cuda_flags, f"-I{folder}",
        )  # fmt: skip
        flags = (*flags, f"-isystem{home / 'include'}")
        libraries.append(home / "lib64")
        wanted += ["-ltorch_cuda", "-lcudart"]
    link_flags = (
        *LINK_FLAGS,
        *(flag for path in libraries for flag in (f"-L{path}", f"-Wl,-rpath,{path}")),
        *wanted,
        *spec.link_flags,
    )
    sources = _hashes(folder, spec)
    features = cpu_features() if "-march=native" in spec.flags else ""
    parts = [
        kernel.id, target, compiler_version, torch_version, flags, cuda_flags, link_flags, sources,
        features,
    ]  # fmt: skip
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
    return BuildPlan(
        kernel=kernel,
        target=target,
        folder=folder,
        build_folder=cache / kernel.id / key,
        compiler=compiler,
        compiler_version=compiler_version,
        flags=flags,
        nvcc=nvcc,
        cuda_flags=cuda_flags,
        link_flags=link_flags,
        sources=sources,
        key=key,
    )


def build(
    plan: BuildPlan,
    *,
    timeout: float,
    jobs: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    on_wait: Callable[[], None] = lambda: None,
) -> BuildResult:
    """Build ``plan``, or find it built.

    Args:
        plan: from ``plan_build``.
        timeout: seconds, waiting for another build of the same plan included.
        jobs: compilers at once; 0 takes one a core.
        on_line: called with each line that ninja prints.
        on_tick: called several times a second while compilers run.
        on_wait: called once if another process is building the same plan.

    Raises:
        BuildError: a compile or link error.
        BuildTimeoutError: ``timeout`` seconds have passed.
        MachineError: ninja is missing.
    """
    try:
        with lock(plan.build_folder / ".lock", on_wait=on_wait, timeout=timeout):
            found = _built(plan)
            if found is not None:
                return found
            ninja = find_ninja()
            write_atomic(plan.build_folder / "build.ninja", _ninja_file(plan).encode())
            plan.library.unlink(missing_ok=True)
            done = run_process(
                [ninja, "-C", str(plan.build_folder), *([f"-j{jobs}"] if jobs else [])],
                cwd=plan.build_folder,
                timeout=timeout,
                on_line=on_line,
                on_tick=on_tick,
                # Messages in English and ASCII, whatever the user's language: patterns match them.
                env={"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C"},
            )
            _raise_on_failure(plan, done)
            result = _result(plan, warm=False)
            write_atomic(plan.marker, result.model_dump_json().encode())
            return result
    except LockTimeoutError:
        raise BuildTimeoutError(
            f"another process has been building {plan.key} for {timeout:.0f} s"
        ) from None


def first_error(output: str) -> str:
    """The first line of a build's output that says what is wrong, with its place."""
    lines = output.splitlines()
    for line in lines:
        if _FIRST_ERROR.search(line) and not _NOT_AN_ERROR.match(line):
            return line.strip()
    said = [line.strip() for line in lines if line.strip() and not _NOT_AN_ERROR.match(line)]
    return said[-1] if said else "the build failed and printed nothing"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hashes(folder: Path, spec: Target) -> dict[str, str]:
    hashes = {}
    for name in (*spec.sources, *spec.headers):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{path} leads out of the kernel's folder")
        if not path.is_file():
            raise UsageError(f"{path} is in the manifest but not there")
        hashes[name] = sha256_of(path)
    return hashes


def _built(plan: BuildPlan) -> BuildResult | None:
    """The finished build in the plan's folder, if it is whole and unchanged."""
    try:
        recorded = BuildResult.model_validate_json(plan.marker.read_bytes())
        if recorded.sha256 != sha256_of(plan.library):
            return None
    except (OSError, ValueError):
        return None
    return recorded.model_copy(update={"warm": True})


def _result(plan: BuildPlan, *, warm: bool) -> BuildResult:
    return BuildResult(
        kernel=plan.kernel.id,
        target=plan.target,
        key=plan.key,
        artifact=plan.library.name,
        sha256=sha256_of(plan.library),
        bytes=plan.library.stat().st_size,
        warm=warm,
        compiler=plan.compiler_version,
        flags=[
            flag
            for flag in (*plan.flags, *plan.cuda_flags, *plan.link_flags)
            if not _names_a_folder(flag)
        ],
        sources=plan.sources,
    )


def _names_a_folder(flag: str) -> bool:
    # Where headers lie on one machine says nothing on another; records keep paths out.
    return flag.startswith(("-I", "-isystem", "-L", "-Wl,-rpath"))


def _has_cuda(spec: Target) -> bool:
    return any(name.endswith(".cu") for name in spec.sources)


def _ninja_file(plan: BuildPlan) -> str:
    spec = plan.kernel.targets[plan.target]
    lines = [
        "ninja_required_version = 1.5",
        f"cxx = {_escape(plan.compiler)}",
        f"nvcc = {_escape(plan.nvcc)}",
        f"flags = {_escape(shlex.join(plan.flags))}",
        f"cuda_flags = {_escape(shlex.join(plan.cuda_flags))}",
        f"link_flags = {_escape(shlex.join(plan.link_flags))}",
        "rule compile",
        "  command = $cxx $flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule compile_cuda",
        "  command = $nvcc $cuda_flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        # Linked under another name and renamed, so that the library is never half there.
        "  command = $cxx $in $link_flags -o $out.part && mv $out.part $out",
        "  description = link $out",
    ]
    objects = []
    for source in spec.sources:
        output = source.replace("/", "_") + ".o"
        objects.append(output)
        rule = "compile_cuda" if source.endswith(".cu") else "compile"
        lines.append(f"build {_path(output)}: {rule} {_path(str(plan.folder / source))}")
    joined = " ".join(_path(name) for name in objects)
    lines.append(f"build {_path(plan.library.name)}: link {joined}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(text: str) -> str:
    return _escape(text).replace(" ", "$ ").replace(":", "$:")


def _raise_on_failure(plan: BuildPlan, done: Completed) -> None:
    if done.timed_out:
        raise BuildTimeoutError("the compilers were stopped")
    if done.returncode != 0 or not plan.library.exists():
        if "No space left on device" in done.output:
            raise MachineError(
                "the disk is full: the compiler could not write; make room and run it again"
            )
        raise BuildError(first_error(done.output), done.output)
