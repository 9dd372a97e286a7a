"""What a build is made of, and the hash of it that names its folder.

Compiling needs torch's headers and libraries but never imports torch. Objects are named by content
too: what an edit does not touch has the same name, in whatever folder the sources are.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbtool.gpu.toolchain import (
    cpu_features,
    cuda_home,
    cuda_runtime,
    find_compiler,
    find_nvcc,
    find_torch,
)
from kbtool.model.errors import UsageError
from kbtool.model.kernel import Kernel, Target
from kbtool.store.includes import includes

COMMON_FLAGS = ("-std=c++17", "-fPIC")

# A symbol that nothing defines fails the link here, with its name, and not the import later.
LINK_FLAGS = ("-shared", "-Wl,--no-undefined")


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
    architecture: str
    """Of the CUDA sources; empty where the target names none."""
    objects: dict[str, Path]
    """Source to compile, relative to ``folder`` → where its object is once it is compiled."""
    key: str

    @property
    def compiled(self) -> list[str]:
        """The sources to compile, relative to ``folder``."""
        return list(self.objects)

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
        folder: the kernel's folder, or a copy of it.
        target: a target of the manifest.
        cache: where build folders and objects go.
        architecture: of CUDA sources, from ``choose_architecture``.

    Raises:
        MachineError: a compiler or torch's headers are missing.
        UsageError: a file that the manifest lists is missing, or one that it does not list is
            included.
    """
    spec = kernel.targets[target]
    compiled = spec.sources_for(architecture)
    tools = _tools(spec, architecture, cuda=any(map(is_cuda, compiled)))
    texts = _texts(folder, [*compiled, *spec.headers])
    sources = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    features = cpu_features() if "-march=native" in spec.flags else ""
    # All that an object depends on but its text. Where the kernel's folder is says nothing: a copy
    # with one edit finds the objects of everything that the edit does not touch.
    common = [tools.version, tools.torch_version, features]
    objects = {}
    for source in compiled:
        read = {name: sources[name] for name in sorted(_read_by(source, texts, folder))}
        used = tools.cuda_flags if is_cuda(source) else tools.flags
        objects[source] = cache / ".objects" / f"{_hash([*common, used, source, read])}.o"
    key = _hash(
        [kernel.id, target, *common, tools.flags, tools.cuda_flags, tools.link_flags, sources]
    )
    return BuildPlan(
        kernel=kernel,
        target=target,
        folder=folder,
        build_folder=cache / kernel.id / key,
        compiler=tools.compiler,
        compiler_version=tools.version,
        # Paths in messages and in __FILE__ are those of the manifest.
        flags=(*tools.flags, f"-I{folder}", f"-ffile-prefix-map={folder}/="),
        nvcc=tools.nvcc,
        cuda_flags=(*tools.cuda_flags, f"-I{folder}") if tools.nvcc else (),
        link_flags=tools.link_flags,
        sources=sources,
        architecture=architecture,
        objects=objects,
        key=key,
    )


@dataclass(frozen=True)
class _Tools:
    """The compilers for a target, and the flags for it; none of them names the kernel's folder."""

    compiler: str
    nvcc: str
    """Empty where there are no CUDA sources."""
    version: str
    """Of both compilers."""
    torch_version: str
    flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


def _tools(spec: Target, architecture: str, *, cuda: bool) -> _Tools:
    """Find what compiles the sources of a target; ``cuda``: whether nvcc compiles some of them."""
    compiler, version = find_compiler()
    torch_folder, torch_version = find_torch()
    defined = (f"-DKBTOOL_ARCH_{architecture.upper()}",) if architecture else ()
    flags: tuple[str, ...] = (
        *COMMON_FLAGS, *defined, *spec.flags, f"-isystem{torch_folder / 'include'}",
    )  # fmt: skip
    library_folders = [torch_folder / "lib"]
    libraries = ["-ltorch_cpu"]
    nvcc = ""
    cuda_flags: tuple[str, ...] = ()
    if cuda:
        nvcc_path, nvcc_version = find_nvcc()
        home = cuda_home(nvcc_path)
        nvcc, version = str(nvcc_path), f"{version}; nvcc {nvcc_version}"
        code = architecture.removeprefix("sm_")
        cuda_flags = (
            "-std=c++17", "-Xcompiler=-fPIC", f"-gencode=arch=compute_{code},code=sm_{code}",
            *defined, *spec.cuda_flags,
        )  # fmt: skip
        flags = (*flags, f"-isystem{home / 'include'}")
        runtime_folder, runtime = cuda_runtime(home)
        library_folders.append(runtime_folder)
        libraries += ["-ltorch_cuda", runtime]
    link_flags = (
        *LINK_FLAGS,
        *(flag for path in library_folders for flag in (f"-L{path}", f"-Wl,-rpath,{path}")),
        *libraries,
        *spec.link_flags,
    )
    return _Tools(compiler, nvcc, version, torch_version, flags, cuda_flags, link_flags)


def is_cuda(source: str) -> bool:
    """Whether nvcc compiles ``source``."""
    return source.endswith(".cu")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _texts(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    texts = {}
    for name in names:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{path} leads out of the kernel's folder")
        if not path.is_file():
            raise UsageError(f"{path} is in the manifest but not there")
        texts[posixpath.normpath(name)] = path.read_bytes()
    return texts


def _read_by(source: str, texts: Mapping[str, bytes], folder: Path) -> set[str]:
    """The files of the kernel that compiling ``source`` may read: it, and all it includes.

    Conditions are not evaluated: a file too many costs a compilation, one too few a wrong library.
    """
    found: set[str] = set()
    waiting = [posixpath.normpath(source)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for included in includes(name, texts[name], texts, folder):
            if included is None:
                return set(texts)  # what the macro names only the compiler can tell
            if included not in texts:
                raise UsageError(
                    f"{folder / name} includes {included}, which the manifest does not list:"
                    " add it to the target's headers in kernel.yaml"
                )
            waiting.append(included)
    return found
