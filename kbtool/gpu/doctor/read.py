"""Read the facts, all at once: each probe has a thread, and what takes too long stays unknown."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kbtool.gpu.build_plan import COMMON_FLAGS
from kbtool.gpu.doctor.elf import DEFINED, NEEDED, newest, newest_glibcxx
from kbtool.gpu.doctor.facts import (
    SECONDS,
    Base,
    Compiler,
    Driver,
    Facts,
    Git,
    Room,
    Toolkit,
    Torch,
)
from kbtool.gpu.doctor.smi import parse
from kbtool.gpu.probe import probe_machine, read_card
from kbtool.gpu.toolchain import (
    cuda_home,
    find_compiler,
    find_nvcc,
    find_profiler,
    find_sanitiser,
    find_torch,
)
from kbtool.model.errors import MachineError
from kbtool.model.machine_path import without_machine_paths
from kbtool.store.private import build_cache

T = TypeVar("T")

PROBE_SECONDS = 60.0
"""The least that must be known: without it the command ends."""

_PROGRAM = """\
#include <cstdio>
#include <optional>
#include <string>
int main() {
#if defined(__clang__)
  const char* family = "clang"; int major = __clang_major__;
#else
  const char* family = "gcc"; int major = __GNUC__;
#endif
  std::optional<std::string> text{family};
#ifdef _GLIBCXX_USE_CXX11_ABI
  int abi = _GLIBCXX_USE_CXX11_ABI;
#else
  int abi = -1;
#endif
  std::printf("%s %d %d\\n", text->c_str(), major, abi);
}
"""
_VARIABLES = ("CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES")
_MANAGERS = (
    ("debian", "apt-get"), ("ubuntu", "apt-get"), ("fedora", "dnf"), ("rhel", "dnf"),
    ("centos", "dnf"), ("suse", "zypper"), ("opensuse", "zypper"), ("arch", "pacman"),
    ("alpine", "apk"),
)  # fmt: skip
"""A system, or one that it is like → its package manager."""
_SYS_ADMIN = 21
"""The number of the capability CAP_SYS_ADMIN."""


class _Reading(Generic[T]):
    """A probe in a thread of its own, which nobody waits for longer than until a deadline."""

    def __init__(self, what: str, read: Callable[[], T | None], deadline: float) -> None:
        self.what = what
        self.why: str | None = f"no answer within {SECONDS} s"
        self._value: T | None = None
        self._read = read
        self._deadline = deadline
        # A daemon: a driver that hangs must not keep the command from ending.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._read()
        except Exception as error:
            self.why = f"{type(error).__name__}: {without_machine_paths(str(error))}"
        else:
            self.why = None

    def value(self) -> T | None:
        """What was read; ``None`` if the deadline is over, or the probe failed."""
        self._thread.join(max(self._deadline - time.monotonic(), 0.0))
        return None if self.why else self._value


def read_facts(
    root: Path | None, base: Callable[[Path], Base], site_missing: str | None = None
) -> Facts:
    """The facts about this machine, within ``SECONDS`` and the time that ``base`` takes.

    Args:
        root: the knowledge base; ``None`` where there is none.
        base: loads what the checks need of it.
        site_missing: a package that the site needs and that is not installed.
    """
    load = os.getloadavg()[0]  # before the probes make a load of their own
    deadline = time.monotonic() + SECONDS
    readings: list[_Reading[Any]] = []

    def start(
        what: str, read: Callable[[], T | None], until: float = deadline
    ) -> Callable[[], T | None]:
        reading = _Reading(what, read, until)
        readings.append(reading)
        return reading.value

    torch = start("torch", lambda: _torch(deadline))  # first, since it takes longest
    compiler = start("the compiler", _compiler)
    driver = start("nvidia-smi", lambda: _driver(deadline))
    card = start("the card", read_card)
    toolkit = start("nvcc", _toolkit)
    machine = start(
        "the machine",
        lambda: probe_machine(card() or {}, lambda: found.version if (found := driver()) else None),
        deadline + PROBE_SECONDS,
    )
    profiler = start("ncu", lambda: _version_of(find_profiler))
    sanitiser = start("compute-sanitizer", lambda: _version_of(find_sanitiser))
    git = start("git", lambda: _git(root))
    loaded = base(root) if root is not None else None
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    on_path = shutil.which("nvcc")
    runtimes, stubs, other_torch = _library_path(os.environ.get("LD_LIBRARY_PATH", ""))
    identity = (card() or {}).get("uuid")
    found = machine()
    if found is None:
        raise MachineError("the machine could not be probed: a compiler or the driver hangs")
    return Facts(
        machine=found,
        minimum=_minimum(),
        site_missing=site_missing,
        environment={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        installs=_installs(),
        system=_system(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        compiler=compiler(),
        toolkit=toolkit(),
        home_toolkit=_toolkit_version(Path(home, "bin", "nvcc")) if home else None,
        path_toolkit=_toolkit_version(Path(on_path)) if on_path and home else None,
        library_runtimes=runtimes,
        library_stubs=stubs,
        library_torch=other_torch,
        torch=torch(),
        driver=driver(),
        card_uuid=identity if isinstance(identity, str) else None,
        profiler=profiler(),
        sanitiser=sanitiser(),
        counters_restricted=_counters_restricted(),
        git=git(),
        base=loaded,
        rooms=tuple(_rooms(root)),
        memory_bytes=_memory(),
        load=load,
        unread={one.what: one.why for one in readings if one.value() is None and one.why},
    )


def _run(
    argv: list[str], seconds: float = 20.0, cwd: Path | None = None
) -> tuple[int | None, str, str]:
    """Exit status (``None`` if it was stopped), stdout and stderr of a program."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
        encoding="utf-8", errors="replace", env={**os.environ, "LC_ALL": "C"},
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return None, out, err
        return process.returncode, out, err


def _minimum() -> dict[str, str]:
    """What kbtool's own metadata demands; empty if it is not installed."""
    try:
        about = importlib.metadata.metadata("kbtool")
    except importlib.metadata.PackageNotFoundError:
        return {}
    least: dict[str, str] = {}
    wanted = [f"python{about['Requires-Python'] or ''}", *(about.get_all("Requires-Dist") or [])]
    for line in wanted:
        if match := re.match(r"([\w.-]+)[^;>]*>=\s*([\d.]+)", line):
            least.setdefault(match[1].lower(), match[2])
    return least


def _installs() -> str:
    if importlib.util.find_spec("pip") is not None:
        return "python -m pip install"
    if shutil.which("uv"):
        return "uv pip install --python python"
    return "python -m ensurepip && python -m pip install"


def _system() -> str | None:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "brew" if sys.platform == "darwin" else None
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((manager for name in names for known, manager in _MANAGERS if name == known), None)


def _compiler() -> Compiler | None:
    """The compiler, after it compiled and linked a C++17 program that then ran."""
    try:
        command, _ = find_compiler()
    except MachineError:
        return None
    words = shlex.split(command)
    with tempfile.TemporaryDirectory(prefix="kbtool-doctor-") as folder:
        source, program = Path(folder, "a.cpp"), Path(folder, "a.out")
        source.write_text(_PROGRAM)
        status, _, err = _run([*words, *COMMON_FLAGS, str(source), "-o", str(program)])
        if status != 0:
            return Compiler(works=False, error=_first_error(err), path=words[0])
        status, out, err = _run([str(program)])
        if status != 0 or not out.strip():
            return Compiler(works=False, error=_first_error(err), path=words[0])
    family, major, abi = out.split()
    _, library, _ = _run([*words, "-print-file-name=libstdc++.so.6"])
    return Compiler(
        works=True,
        family=family,
        major=int(major),
        new_abi={"0": False, "1": True}.get(abi),
        glibcxx=newest_glibcxx(Path(library.strip()), DEFINED),
        path=shutil.which(words[0]),
    )


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line or "cannot" in line), "")
    return without_machine_paths(first or (lines[-1] if lines else "it says nothing"))


def _toolkit() -> Toolkit | None:
    try:
        nvcc, version = find_nvcc()
    except MachineError:
        return None
    gcc, clang = None, None
    with contextlib.suppress(MachineError, OSError):
        header = cuda_home(nvcc) / "include" / "crt" / "host_config.h"
        gcc, clang = newest_host_compilers(header.read_text(errors="replace"))
    _, codes, _ = _run([str(nvcc), "--list-gpu-code"])
    host = shutil.which(host_compiler(os.environ))
    return Toolkit(
        version=version,
        gcc=gcc,
        clang=clang,
        codes=tuple(re.findall(r"sm_\d+[af]?", codes)),
        host=_family(host) if host else None,
        host_there=host is not None,
        path=str(nvcc),
    )


def host_compiler(environment: Mapping[str, str]) -> str:
    """The compiler that nvcc calls for host code; kbtool names none."""
    for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        if match := re.search(r"-(?:ccbin|-compiler-bindir)[ =](\S+)", environment.get(name, "")):
            return match[1]
    return environment.get("NVCC_CCBIN") or "g++"


def newest_host_compilers(header: str) -> tuple[int | None, int | None]:
    """The newest GCC and clang that the toolkit's ``crt/host_config.h`` lets through."""
    gcc = re.search(r"#if __GNUC__ > (\d+)", header)
    clang = re.search(r"#if \(__clang_major__ >= (\d+)\)", header)
    return int(gcc[1]) if gcc else None, int(clang[1]) - 1 if clang else None


def _family(compiler: str) -> tuple[str, int] | None:
    _, version, _ = _run([compiler, "--version"])
    _, number, _ = _run([compiler, "-dumpversion"])
    match = re.match(r"\d+", number)
    if match is None:
        return None
    return "clang" if "clang" in version else "gcc", int(match[0])


def _toolkit_version(nvcc: Path) -> str:
    """The version of one nvcc; empty if it is not there."""
    try:
        _, out, _ = _run([str(nvcc), "--version"])
    except OSError:
        return ""
    match = re.search(r"release ([\d.]+)", out)
    return match[1] if match else ""


def _version_of(find: Callable[[], tuple[Path, str]]) -> str | None:
    try:
        return find()[1]
    except MachineError:
        return None


def _torch(deadline: float) -> Torch | None:
    try:
        folder, _ = find_torch()
    except MachineError:
        return None
    needs = newest(
        [found for library in sorted((folder / "lib").glob("*.so*"))
         if (found := newest_glibcxx(library, NEEDED)) is not None]
    )  # fmt: skip
    program = str(Path(__file__).with_name("_torch.py"))
    # -P: a module of this folder must not take the place of another.
    status, out, err = _run([sys.executable, "-P", program], deadline - time.monotonic() - 0.2)
    told: dict[str, Any] = {}
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            told.update(json.loads(line))
    imports = told.get("imports")
    error = told.get("error")
    if imports is None and status is not None:
        imports, error = False, f"the process that imports it ended with status {status}"
    library = told.get("libstdcxx")
    return Torch(
        imports=imports,
        error=without_machine_paths(error) if error else None,
        numpy_error=next(
            (line.strip() for line in err.splitlines()
             if "compiled using NumPy" in line or "_ARRAY_API not found" in line),
            None,
        ),
        new_abi=told.get("new_abi"),
        architectures=tuple(told.get("architectures", ())),
        card_error=told.get("card_error"),
        needs_glibcxx=needs,
        has_glibcxx=newest_glibcxx(Path(library), DEFINED) if library else None,
    )  # fmt: skip


def _driver(deadline: float) -> Driver | None:
    found = shutil.which("nvidia-smi")
    if found is None:
        return None
    status, out, err = _run([found, "-q", "-x"], deadline - time.monotonic() - 0.2)
    if status is None:
        raise TimeoutError("nvidia-smi does not answer")
    said = next((line.strip() for line in f"{out}\n{err}".splitlines() if line.strip()), None)
    return parse(out) or Driver(None, None, (), error=said)


def _library_path(value: str) -> tuple[tuple[str, ...], bool, bool]:
    """What LD_LIBRARY_PATH leads to: major versions of CUDA runtimes, stubs of the driver library,
    libraries of a torch that is not this environment's."""
    runtimes: list[str] = []
    stubs = other = False
    own = _own_torch()
    for name in filter(None, value.split(os.pathsep)):
        folder = Path(name)
        runtimes += [
            match[1]
            for library in sorted(folder.glob("libcudart.so.*"))
            if (match := re.match(r"libcudart\.so\.(\d+)", library.name))
        ]
        stubs = stubs or (folder.name == "stubs" and (folder / "libcuda.so").exists())
        other = other or ((folder / "libc10.so").exists() and folder.resolve() != own)
    return tuple(dict.fromkeys(runtimes)), stubs, other


def _own_torch() -> Path | None:
    with contextlib.suppress(MachineError):
        return (find_torch()[0] / "lib").resolve()
    return None


def _counters_restricted() -> bool | None:
    """Whether the driver keeps the counters from this process."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8", errors="replace")
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d)", text, re.MULTILINE)
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    admin = effective is not None and bool(int(effective[1], 16) >> _SYS_ADMIN & 1)
    return None if match is None else match[1] == "1" and not admin


def _git(root: Path | None) -> Git:
    git = shutil.which("git")
    if git is None:
        return Git(there=False)
    folder = root or Path.cwd()
    status, _, err = _run([git, "rev-parse", "--git-dir"], cwd=folder)
    _, user, _ = _run([git, "config", "user.name"], cwd=folder)
    return Git(
        there=True,
        repository=status == 0,
        refused="dubious ownership" in err,
        user=bool(user.strip()) or "GIT_AUTHOR_NAME" in os.environ,
    )


def _rooms(root: Path | None) -> Iterator[Room]:
    folders = [("the temporary folder", Path(tempfile.gettempdir()), True)]
    if root is not None:
        folders.insert(0, ("the build cache", build_cache(root), False))
    for what, folder, temporary in folders:
        there = next((one for one in (folder, *folder.parents) if one.is_dir()), None)
        if there is not None:
            with contextlib.suppress(OSError):
                free = shutil.disk_usage(there).free
                writable = os.access(there, os.W_OK | os.X_OK)
                yield Room(what, free, writable, temporary, str(folder))


def _memory() -> int | None:
    """Memory that this process can have: of the machine, or of its group of processes."""
    found = [memory_of(*map(_read, _MEMINFO)), group_memory_of(*map(_read, _GROUP))]
    return min((one for one in found if one is not None), default=None)


_MEMINFO = (Path("/proc/meminfo"),)
_GROUP = tuple(
    Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current", "memory.stat")
)


def memory_of(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo, in bytes."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def group_memory_of(most: str, current: str, stat: str) -> int | None:
    """What a control group has left: its files in memory can be dropped."""
    if not most.strip().isdecimal() or not current.strip().isdecimal():
        return None
    match = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
    droppable = int(match[1]) if match else 0
    return max(int(most) - int(current) + droppable, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
