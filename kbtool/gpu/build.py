"""Builds a kernel with ninja, in a folder named by the hash of everything that goes in.

Compiling needs torch's headers and libraries but never imports torch. The same inputs give the
same folder, so a second build finds the library there and runs no compiler. Objects are kept by
content too: what an edit does not touch is not compiled again, in whatever folder the sources are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbtool.gpu.process import Completed, run_process
from kbtool.gpu.toolchain import (
    cpu_features,
    cuda_home,
    cuda_runtime,
    find_compiler,
    find_ninja,
    find_nvcc,
    find_torch,
)
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.build import BuildResult
from kbtool.store.includes import includes
from kbtool.store.lock import LockTimeoutError, lock
from kbtool.store.write import write_atomic

COMMON_FLAGS = ("-std=c++17", "-fPIC")
# A symbol that nothing defines fails the link here, with its name, and not the import later.
LINK_FLAGS = ("-shared", "-Wl,--no-undefined")
KEPT_SECONDS = 14 * 86400.0
"""How long an object is kept that no build uses."""
_FIRST_ERROR = re.compile(
    r"\b(?:error|fatal)\b(?: #[\w-]+)?\s*:|undefined (?:reference|symbol)|multiple definition"
    r"|cannot find -l|recompile with -fPIC|file not recognized|No such file|Killed",
)
_NOT_AN_ERROR = re.compile(
    r"\s*(?:FAILED:|ninja:|collect2:)|(?:(?!\berror\b).)*\b(?:warning|note)(?: #[\w-]+)?:"
)
_FAILED = re.compile(r"FAILED: (?:\[code=-?\d+\] )?(.*?) ?$")
_STATUS = re.compile(r"\[\d+/\d+\] |ninja: ")
_USAGE_LINE = re.compile(r"ptxas info\b|\s+\d+ bytes stack frame, ")


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
    compiler, compiler_version = find_compiler()
    torch_folder, torch_version = find_torch()
    defined = (f"-DKBTOOL_ARCH_{architecture.upper()}",) if architecture else ()
    flags: tuple[str, ...] = (
        *COMMON_FLAGS, *defined, *spec.flags, f"-isystem{torch_folder / 'include'}",
    )  # fmt: skip
    libraries = [torch_folder / "lib"]
    wanted = ["-ltorch_cpu"]
    nvcc = ""
    cuda_flags: tuple[str, ...] = ()
    if any(is_cuda(name) for name in compiled):
        nvcc_path, nvcc_version = find_nvcc()
        home = cuda_home(nvcc_path)
        nvcc, compiler_version = str(nvcc_path), f"{compiler_version}; nvcc {nvcc_version}"
        code = architecture.removeprefix("sm_")
        cuda_flags = (
            "-std=c++17", "-Xcompiler=-fPIC", f"-gencode=arch=compute_{code},code=sm_{code}",
            *defined, *spec.cuda_flags,
        )  # fmt: skip
        flags = (*flags, f"-isystem{home / 'include'}")
        runtime_folder, runtime = cuda_runtime(home)
        libraries.append(runtime_folder)
        wanted += ["-ltorch_cuda", runtime]
    link_flags = (
        *LINK_FLAGS,
        *(flag for path in libraries for flag in (f"-L{path}", f"-Wl,-rpath,{path}")),
        *wanted,
        *spec.link_flags,
    )
    texts = _texts(folder, [*compiled, *spec.headers])
    sources = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    features = cpu_features() if "-march=native" in spec.flags else ""
    # All that an object depends on but its text. Where the kernel's folder is says nothing: a copy
    # with one edit finds the objects of everything that the edit does not touch.
    common = [compiler_version, torch_version, features]
    objects = {}
    for source in compiled:
        read = {name: sources[name] for name in sorted(_read_by(source, texts, folder))}
        used = cuda_flags if is_cuda(source) else flags
        objects[source] = cache / ".objects" / f"{_hash([*common, used, source, read])}.o"
    key = _hash([kernel.id, target, *common, flags, cuda_flags, link_flags, sources])
    return BuildPlan(
        kernel=kernel,
        target=target,
        folder=folder,
        build_folder=cache / kernel.id / key,
        compiler=compiler,
        compiler_version=compiler_version,
        # Paths in messages and in __FILE__ are those of the manifest.
        flags=(*flags, f"-I{folder}", f"-ffile-prefix-map={folder}/="),
        nvcc=nvcc,
        cuda_flags=(*cuda_flags, f"-I{folder}") if nvcc else (),
        link_flags=link_flags,
        sources=sources,
        architecture=architecture,
        objects=objects,
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
    """Build ``plan``, or find it built; arguments as of ``build_all``.

    Raises:
        BuildError: a compile or link error.
        BuildTimeoutError: ``timeout`` seconds have passed.
        MachineError: ninja is missing, or the disk is full.
    """
    [made] = build_all(
        [plan], timeout=timeout, jobs=jobs, on_line=on_line, on_tick=on_tick, on_wait=on_wait
    )
    if isinstance(made, Exception):
        raise made
    return made


def build_all(
    plans: Sequence[BuildPlan],
    *,
    timeout: float,
    jobs: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[BuildResult | BuildError | BuildTimeoutError]:
    """Build every plan that is not built yet, in one run of ninja; one stops none of the others.

    Args:
        plans: from ``plan_build``, with one cache.
        timeout: seconds, waiting for other builds of the same plans included.
        jobs: compilers at once; 0 takes one a core.
        on_line: called with each line that ninja prints.
        on_tick: called several times a second while compilers run.
        on_wait: called once a plan that another process is building.

    Returns:
        For each plan, in order, what was built or why it was not.

    Raises:
        BuildTimeoutError: another process has been building one of them all that time.
        MachineError: ninja is missing, or the disk is full.
    """
    made: dict[str, BuildResult | BuildError | BuildTimeoutError] = {}
    with _locked(plans, timeout, on_wait) as left:
        made.update((plan.key, found) for plan in plans if (found := _built(plan)) is not None)
        rest = [plan for key, plan in {p.key: p for p in plans}.items() if key not in made]
        if rest:
            statements, reused = _compile_statements(rest)
            for plan in rest:
                plan.library.unlink(missing_ok=True)
                statements.append(_link_statement(plan))
            ran = _run_ninja(rest, statements, left(), jobs, on_line, on_tick)
            made.update((plan.key, _outcome(plan, ran, reused)) for plan in rest)
    return [made[plan.key] for plan in plans]


def compile_all(
    plans: Sequence[BuildPlan],
    wanted: Callable[[str], bool],
    *,
    timeout: float,
    jobs: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    on_wait: Callable[[], None] = lambda: None,
) -> dict[Path, BuildError | BuildTimeoutError]:
    """Compile sources of every plan and link nothing: no card and no CUDA build of torch needed.

    Args:
        plans: from ``plan_build``, with one cache.
        wanted: whether to compile a source.
        timeout: seconds.
        jobs: compilers at once; 0 takes one a core.
        on_line: called with each line that ninja prints.
        on_tick: called several times a second while compilers run.
        on_wait: called once a plan that another process is building.

    Returns:
        Object → why it is not there, for those that do not compile.

    Raises:
        BuildTimeoutError: another process has been building one of them all that time.
        MachineError: ninja is missing, or the disk is full.
    """
    with _locked(plans, timeout, on_wait) as left:
        statements, _ = _compile_statements(plans, wanted)
        if not statements:
            return {}
        ran = _run_ninja(plans, statements, left(), jobs, on_line, on_tick)
    objects = [path for plan in plans for source, path in plan.objects.items() if wanted(source)]
    return {path: ran.problem([path]) for path in objects if not path.exists()}


def usage_log(compiled: Path) -> Path:
    """Where the resources stand that ptxas reported for the kernels in a CUDA object."""
    return compiled.with_suffix(".log")


def first_error(output: str) -> str:
    """The first line of a build's output that says what is wrong, with its place."""
    lines = output.splitlines()
    for line in lines:
        if _FIRST_ERROR.search(line) and not _NOT_AN_ERROR.match(line):
            return line.strip()
    said = [line.strip() for line in lines if line.strip() and not _NOT_AN_ERROR.match(line)]
    return said[-1] if said else "the build failed and printed nothing"


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


@contextlib.contextmanager
def _locked(
    plans: Iterable[BuildPlan], timeout: float, on_wait: Callable[[], None]
) -> Iterator[Callable[[], float]]:
    """Hold the folders of all plans; what is given tells how many seconds are left."""
    deadline = time.monotonic() + timeout

    def left() -> float:
        return max(deadline - time.monotonic(), 0.0)

    with contextlib.ExitStack() as held:
        # In one order, so that no two processes wait for each other.
        for folder in sorted({plan.build_folder for plan in plans}):
            try:
                held.enter_context(lock(folder / ".lock", on_wait=on_wait, timeout=left()))
            except LockTimeoutError:
                raise BuildTimeoutError(
                    f"another process has been building {folder.name} for {timeout:.0f} s"
                ) from None
        yield left


def _built(plan: BuildPlan) -> BuildResult | None:
    """The finished build in the plan's folder, if it is whole and unchanged."""
    try:
        recorded = BuildResult.model_validate_json(plan.marker.read_bytes())
        if recorded.sha256 != sha256_of(plan.library):
            return None
    except (OSError, ValueError):
        return None
    return recorded.model_copy(update={"warm": True})


@dataclass(frozen=True)
class _Ran:
    """A run of ninja."""

    done: Completed
    failed: dict[str, str]
    """Output of a statement that failed → what its command printed."""

    def problem(self, outputs: Iterable[Path]) -> BuildError | BuildTimeoutError:
        """Why something that needs ``outputs`` is not there."""
        printed = next((self.failed[str(o)] for o in outputs if str(o) in self.failed), None)
        if printed is None and self.done.timed_out:
            return BuildTimeoutError("the compilers were stopped")
        output = self.done.output if printed is None else printed
        return BuildError(first_error(output), output)


def _run_ninja(
    plans: Sequence[BuildPlan],
    statements: Sequence[str],
    timeout: float,
    jobs: int,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> _Ran:
    """Run the statements of ``plans`` out of the first one's folder."""
    ninja = find_ninja()
    folder = plans[0].build_folder
    write_atomic(folder / "build.ninja", "\n".join([*_rules(plans[0]), *statements, ""]).encode())
    objects = next(iter(plans[0].objects.values())).parent
    objects.mkdir(exist_ok=True)
    failed: dict[str, list[str]] = {}
    current: list[str] | None = None
    is_command = False

    def line(text: str) -> None:
        nonlocal current, is_command
        if _USAGE_LINE.match(text):
            return  # kept in the object's log
        if match := _FAILED.match(text):
            current, is_command = failed.setdefault(match[1], []), True
        elif _STATUS.match(text):
            current = None
        elif is_command:
            is_command = False  # the command line itself, which ninja repeats
        elif current is not None:
            current.append(text)
        on_line(text)

    done = run_process(
        # Of one library the first error is enough; of several each has its own.
        [ninja, f"-k{len(plans) == 1:d}", *([f"-j{jobs}"] if jobs else [])],
        cwd=folder,
        timeout=timeout,
        on_line=line,
        on_tick=on_tick,
        # Messages in English and ASCII, whatever the user's language: patterns match them.
        env={"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C"},
    )
    said = {output: "\n".join(lines) for output, lines in failed.items()}
    if any("No space left on device" in text for text in (done.output, *said.values())):
        raise MachineError(
            "the disk is full: the compiler could not write; make room and run it again"
        )
    _forget_old(objects)
    return _Ran(done, said)


def _outcome(
    plan: BuildPlan, ran: _Ran, reused: frozenset[Path]
) -> BuildResult | BuildError | BuildTimeoutError:
    if not plan.library.exists():
        return ran.problem([*plan.objects.values(), plan.library])
    result = BuildResult(
        kernel=plan.kernel.id,
        target=plan.target,
        key=plan.key,
        artifact=plan.library.name,
        sha256=sha256_of(plan.library),
        bytes=plan.library.stat().st_size,
        warm=False,
        reused=len(reused & set(plan.objects.values())),
        compiler=plan.compiler_version,
        flags=[
            flag
            for flag in (*plan.flags, *plan.cuda_flags, *plan.link_flags)
            if not _names_a_folder(flag)
        ],
        sources=plan.sources,
    )
    write_atomic(plan.marker, result.model_dump_json().encode())
    return result


def _names_a_folder(flag: str) -> bool:
    # Where headers lie on one machine says nothing on another; records keep paths out.
    return flag.startswith(("-I", "-isystem", "-L", "-Wl,-rpath", "-ffile-prefix-map"))


def _rules(plan: BuildPlan) -> list[str]:
    """How to compile and link. Nothing is ever half there: the last act of a rule is a rename."""
    return [
        "ninja_required_version = 1.5",
        f"cxx = {_escape(plan.compiler)}",
        f"nvcc = {_escape(shlex.quote(plan.nvcc))}",
        "rule compile",
        "  command = $cxx $flags -c $in -o $part.o && mv $part.o $out",
        "  description = compile $source",
        "rule compile_cuda",
        # What ptxas says of registers and spills is kept beside the object.
        "  command = $nvcc $flags -Xptxas=-v -c $in -o $part.o > $part.log 2>&1; failed=$$?;"
        " cat $part.log; test $$failed = 0 && mv $part.log $log && mv $part.o $out",
        "  description = compile $source",
        "rule link",
        "  command = $cxx $in $flags -o $out.part && mv $out.part $out",
        "  description = link $out",
    ]


def _compile_statements(
    plans: Sequence[BuildPlan], wanted: Callable[[str], bool] = lambda _: True
) -> tuple[list[str], frozenset[Path]]:
    """What compiles the objects that are not there yet, each once; and those that are there."""
    statements: dict[Path, str] = {}
    there: set[Path] = set()
    for plan in plans:
        for source, output in plan.objects.items():
            if not wanted(source) or output in there or output in statements:
                continue
            try:
                os.utime(output)  # used today: not to be forgotten
                there.add(output)
            except FileNotFoundError:
                statements[output] = _compile_statement(plan, source, output)
    return list(statements.values()), frozenset(there)


def _compile_statement(plan: BuildPlan, source: str, output: Path) -> str:
    cuda = is_cuda(source)
    part = plan.build_folder / source.replace("/", "_")
    shown = f"{source} for {plan.architecture}" if cuda else source
    return "\n".join(
        [
            f"build {_path(output)}: compile{'_cuda' * cuda} {_path(plan.folder / source)}",
            f"  flags = {_escape(shlex.join(plan.cuda_flags if cuda else plan.flags))}",
            f"  part = {_escape(shlex.quote(str(part)))}",
            f"  log = {_escape(shlex.quote(str(usage_log(output))))}",
            f"  source = {_escape(shown)}",
        ]
    )


def _link_statement(plan: BuildPlan) -> str:
    objects = " ".join(_path(path) for path in plan.objects.values())
    return "\n".join(
        [
            f"build {_path(plan.library)}: link {objects}",
            f"  flags = {_escape(shlex.join(plan.link_flags))}",
        ]
    )


def _forget_old(objects: Path) -> None:
    oldest = time.time() - KEPT_SECONDS
    for path in objects.glob("*.o"):
        with contextlib.suppress(OSError):  # another process may be at it too
            if path.stat().st_mtime < oldest:
                path.unlink()
                usage_log(path).unlink(missing_ok=True)


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(path: Path) -> str:
    return _escape(str(path)).replace(" ", "$ ").replace(":", "$:")
