"""The inputs of a build, and their hash, which names the build folder.

A build uses torch's headers and libraries but never imports torch. Objects are named by a content
hash too: an object whose inputs are unchanged keeps its name, whatever folder the sources are in.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kbtool.gpu.toolchain import (
    cpu_features,
    cuda_home,
    cuda_runtime,
    find_compiler,
    find_nvcc,
    find_torch,
)
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Device, Kernel, Target, is_python
from kbtool.model.run import MachineInfo
from kbtool.store.includes import includes

COMMON_FLAGS = ("-std=c++17", "-fPIC")

# Report undefined symbols at link time, not when the library is loaded.
LINK_FLAGS = ("-shared", "-Wl,--no-undefined")


MODULES = ".json"
"""The suffix of an artifact that only lists Python modules."""


@dataclass(frozen=True)
class BuildPlan:
    """All inputs of a build; ``key`` is their hash."""

    kernel: Kernel
    target: str
    folder: Path
    """The kernel's sources."""
    build_folder: Path
    compiler: str
    compiler_version: str
    flags: tuple[str, ...]
    nvcc: str
    """The CUDA compiler; empty if there are no CUDA sources."""
    cuda_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    sources: dict[str, str]
    """File, relative to ``folder`` → SHA-256; headers included."""
    linked: dict[str, str]
    """File that the manifest's ``link_flags`` name → SHA-256."""
    architecture: str
    """GPU architecture of the CUDA sources; empty if the target names none."""
    objects: dict[str, Path]
    """Source that kbtool compiles, relative to ``folder`` → path of its object."""
    packages: dict[str, str]
    """Installed package that the target needs → version."""
    key: str

    @property
    def compiled(self) -> list[str]:
        """The sources to compile, relative to ``folder``."""
        return list(self.objects)

    @property
    def library(self) -> Path:
        """Path of what is built: a library, or a list of the modules by content."""
        return self.build_folder / f"{self.kernel.id}{'.so' if self.spec.compiled else MODULES}"

    @property
    def spec(self) -> Target:
        """The target."""
        return self.kernel.targets[self.target]

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.kernel.device_of(self.target)

    @property
    def modules(self) -> list[Path]:
        """The Python files to import."""
        return [self.folder / name for name in self.spec.modules]

    @property
    def marker(self) -> Path:
        """A file written last: if it exists, the library is complete."""
        return self.build_folder / "built.json"


def choose_target(kernel: Kernel, wanted: str, machine: MachineInfo | None) -> str:
    """The target to build: ``wanted``; for ``auto``, the first for a card that can be built and run
    here, else the first for the CPU, else the first.

    Args:
        kernel: the manifest of the kernel.
        wanted: a target of the manifest, or ``auto``.
        machine: the machine; ``None`` to pass over its card.

    Raises:
        UsageError: the manifest has no such target.
    """
    if wanted == "auto":
        on_card = [name for name in kernel.targets if kernel.device_of(name) == "cuda"]
        on_cpu = [name for name in kernel.targets if name not in on_card]
        # A torch without CUDA has nothing to link against, or to run on.
        card = machine if machine and machine.card and machine.cuda else None
        here = [name for name in on_card if card and (card.nvcc or not _compiles(kernel, name))]
        return [*here, *on_cpu, *kernel.targets][0]
    if wanted not in kernel.targets:
        known = ", ".join(kernel.targets)
        raise UsageError(f"kernel {kernel.id} has no target {wanted!r}; it has {known}")
    return wanted


def _compiles(kernel: Kernel, target: str) -> bool:
    """Whether a target has CUDA sources."""
    spec = kernel.targets[target]
    return any(map(is_cuda, itertools.chain(spec.sources, *spec.architecture_sources.values())))


def choose_architecture(kernel: Kernel, target: str, capability: str | None) -> str:
    """The architecture to compile for: the target's entry for this card; without a card, the first.

    Args:
        kernel: the manifest of the kernel.
        target: a target of the manifest.
        capability: compute capability of the card as ``sm_90``; ``None`` without a card.

    Raises:
        UsageError: the target does not compile for this card.
    """
    known = kernel.targets[target].architectures
    if not known or capability is None:
        return known[0] if known else ""
    for architecture in known:
        # sm_90a is sm_90 with features that only this chip has.
        if architecture.rstrip("af") == capability:
            return architecture
    raise UsageError(
        f"target {target} of kernel {kernel.id} does not list {capability} in kernel.yaml;"
        f" it lists {', '.join(known)}"
    )


def plan_build(
    kernel: Kernel, folder: Path, target: str, cache: Path, architecture: str = ""
) -> BuildPlan:
    """The build plan of a target of the kernel in ``folder``. Writes nothing.

    Args:
        kernel: the manifest of the kernel.
        folder: the kernel's folder, or a copy of it.
        target: a target of the manifest.
        cache: folder for build folders and objects.
        architecture: architecture of the CUDA sources, from ``choose_architecture``.

    Raises:
        MachineError: a compiler or torch's headers are missing.
        UsageError: a listed file is missing, or a source includes a file of the kernel that the
            manifest does not list.
    """
    spec = kernel.targets[target]
    listed = [name for name in spec.sources_for(architecture) if not is_python(name)]
    compiled = [] if spec.commands else listed
    packages = {name: _installed(name, target) for name in sorted(spec.packages)}
    if compiled:
        tools = _tools(spec, architecture, cuda=any(map(is_cuda, compiled)))
    else:
        built_by = "; ".join(spec.commands) or f"Python {platform.python_version()}"
        tools = _Tools("", "", built_by, find_torch()[1], (), (), ())
    texts = _texts(folder, [*listed, *spec.modules, *spec.headers])
    sources = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    features = cpu_features() if "-march=native" in spec.flags else ""
    # Everything that an object depends on besides its text. The path of the kernel's folder is left
    # out, so that a copy of the sources with one edit reuses all other objects.
    common = [tools.version, tools.torch_version, features]
    objects = {}
    for source in compiled:
        read = {name: sources[name] for name in sorted(_read_by(source, texts, folder))}
        used = tools.cuda_flags if is_cuda(source) else tools.flags
        objects[source] = cache / ".objects" / f"{_hash([*common, used, source, read])}.o"
    linked = {str(path): sha256_of(path) for path in linked_files(spec.link_flags, folder)}
    key = _hash(
        [
            kernel.id, target, *common, tools.flags, tools.cuda_flags, tools.link_flags, sources,
            *([linked] if linked else []), *([packages] if packages else []),
        ]
    )  # fmt: skip
    # Paths in messages and in __FILE__ are relative, as in the manifest.
    here = (f"-I{folder}", f"-ffile-prefix-map={folder}/=") if compiled else ()
    return BuildPlan(
        kernel=kernel,
        target=target,
        folder=folder,
        build_folder=cache / kernel.id / key,
        compiler=tools.compiler,
        compiler_version=tools.version,
        flags=(*tools.flags, *here),
        nvcc=tools.nvcc,
        cuda_flags=(*tools.cuda_flags, f"-I{folder}") if tools.nvcc else (),
        link_flags=tools.link_flags,
        sources=sources,
        linked={Path(name).name: digest for name, digest in linked.items()},
        architecture=architecture,
        objects=objects,
        packages=packages,
        key=key,
    )


def _installed(package: str, target: str) -> str:
    """The version of a package that a target needs."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise MachineError(
            f"target {target} needs the package {package}: pip install {package}"
        ) from None


@dataclass(frozen=True)
class _Tools:
    """The compilers and flags of a target. No flag names the kernel's folder."""

    compiler: str
    nvcc: str
    """Empty if there are no CUDA sources."""
    version: str
    """Versions of both compilers."""
    torch_version: str
    flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


def _tools(spec: Target, architecture: str, *, cuda: bool) -> _Tools:
    """Find the compilers of a target; ``cuda``: whether some sources need nvcc."""
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


def linked_files(flags: Sequence[str], folder: Path) -> list[Path]:
    """The files that link flags name: paths, and ``-l`` in the folders of ``-L``.

    What only the linker's own folders have belongs to the system, like torch and CUDA.

    Args:
        flags: the manifest's ``link_flags``.
        folder: the kernel's folder.
    """
    words = iter(flags)
    folders: list[Path] = []
    names: list[str] = []
    found: list[Path] = []
    for word in words:
        if word.startswith("-L"):
            folders.append(folder / (word[2:] or next(words, "")))
        elif word.startswith("-l"):
            names.append(word[2:] or next(words, ""))
        elif not word.startswith("-"):
            found.append(folder / word)
    for name in names:
        files = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
        found += [place / file for place in folders for file in files]
    return [path for path in found if path.is_file()]


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
            raise UsageError(
                f"{path} is in kernel.yaml but does not exist: add the file or remove it there"
            )
        texts[posixpath.normpath(name)] = path.read_bytes()
    return texts


def _read_by(source: str, texts: Mapping[str, bytes], folder: Path) -> set[str]:
    """The files of the kernel that ``source`` depends on: itself and everything it includes.

    ``#if`` is not evaluated: an extra file costs a recompilation, a missing one a stale library.
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
                return set(texts)  # a macro names the file, so assume all of them
            if included not in texts:
                raise UsageError(
                    f"{folder / name} includes {included}, which the manifest does not list:"
                    " add it to the target's headers in kernel.yaml"
                )
            waiting.append(included)
    return found
