"""Checks of what every recipe needs: Python, a compiler, ninja, torch, git, room."""

from __future__ import annotations

from collections.abc import Iterator

from kbtool.gpu.doctor.elf import numbers
from kbtool.gpu.doctor.facts import SECONDS, Facts
from kbtool.gpu.doctor.say import (
    BUILT,
    as_root,
    installs,
    installs_on_system,
    missing,
    note,
    ok,
    warning,
)
from kbtool.model.diagnosis import Check

_GIB = 1 << 30
FULL, LOW = 256 << 20, 4 * _GIB
"""Free bytes of a disk below which a build fails, and below which it may."""
_ROOM = "make room; .kbtool can be removed, it holds caches only"
LITTLE_MEMORY = 2 * _GIB
"""A compiler of CUDA sources may take as much."""
LOADED = 0.5
"""Processes that want a core, for each core, from which times of the CPU suffer."""


def python(facts: Facts) -> Iterator[Check]:
    """Python's version."""
    found, least = f"Python {facts.machine.python}", facts.minimum.get("python")
    if least is not None and numbers(facts.machine.python) < numbers(least):
        yield missing(
            "python", found, f"kbtool needs Python {least} or newer", [*BUILT, "site"],
            f"make an environment with Python {least} or newer",
            f"python{least} -m venv .venv",
        )  # fmt: skip
    else:
        yield ok("python", found)


def compiler(facts: Facts) -> Iterator[Check]:
    """A C++ compiler that compiles, links and whose programs run."""
    version, found = facts.machine.compiler, facts.compiler
    named = facts.environment.get("CXX")
    if version is None:
        what = f"no C++ compiler: CXX={named} does not run" if named else "no C++ compiler"
        yield missing(
            "compiler", what, "every kernel is compiled here", BUILT,
            "unset CXX, or name a compiler that runs" if named else "install g++ or clang++",
            "unset CXX" if named else installs_on_system(
                facts, {"dnf": "gcc-c++", "zypper": "gcc-c++", "pacman": "gcc", "brew": "gcc",
                        "": "g++"}
            ),
        )  # fmt: skip
    elif found is not None and not found.works:
        yield missing(
            "compiler", f"{version} cannot build a program: {found.error}",
            "every kernel is compiled and linked by it", BUILT,
            "install its C++ library and headers, or name another compiler by CXX",
            installs_on_system(
                facts, {"dnf": "gcc-c++ libstdc++-devel", "apt-get": "g++ libc6-dev", "": "g++"}
            ),
        )  # fmt: skip
    else:
        yield Check(name="compiler", level="ok", found=version, where=found and found.path)


def ninja(facts: Facts) -> Iterator[Check]:
    """ninja, which runs the compilers."""
    if facts.machine.ninja is None:
        yield missing(
            "ninja", "no ninja", "it runs the compilers of a build", BUILT, "install it",
            installs(facts, "ninja"),
        )  # fmt: skip
    else:
        yield ok("ninja", f"ninja {facts.machine.ninja.partition('.git')[0]}")


def torch(facts: Facts) -> Iterator[Check]:
    """torch, its version, and whether it can be imported."""
    version, found = facts.machine.torch, facts.torch
    least = facts.minimum.get("torch")
    if version is None:
        yield missing(
            "torch", "no torch", "a kernel is a library of torch operators", BUILT,
            "install it", installs(facts, "torch", "numpy"),
        )  # fmt: skip
        return
    if least is not None and numbers(version.partition("+")[0]) < numbers(least):
        yield missing(
            "torch", f"torch {version}", f"kernels are compiled for torch {least} or newer", BUILT,
            "install a newer one", installs(facts, "torch"),
        )  # fmt: skip
    elif found is not None and found.imports is False:
        yield missing(
            "torch", f"torch {version} cannot be imported: {found.error}",
            "it does not fit the libraries of this machine", BUILT,
            "kbtool explain says what the message means; else install torch again",
            f"{installs(facts, 'torch')} --force-reinstall",
        )  # fmt: skip
    else:
        build = f"for CUDA {facts.machine.cuda}" if facts.machine.cuda else "without CUDA"
        yield ok("torch", f"torch {version}, built {build}")


def numpy(facts: Facts) -> Iterator[Check]:
    """NumPy, and whether torch was built for it."""
    if facts.machine.torch is None:
        return
    version, least = facts.machine.numpy, facts.minimum.get("numpy")
    why = "torch hands arrays over through it"
    if version is None:
        yield warning("numpy", "no NumPy", why, "install it", installs(facts, "numpy"))
    elif least is not None and numbers(version) < numbers(least):
        yield warning(
            "numpy", f"NumPy {version}", f"{why}; {least} or newer is tested",
            "install a newer one", installs(facts, "numpy"),
        )  # fmt: skip
    elif facts.torch is not None and facts.torch.numpy_error:
        yield warning(
            "numpy", f"NumPy {version}: {facts.torch.numpy_error}",
            "this torch was built for another major version of NumPy",
            "install a NumPy of that version, or a newer torch", installs(facts, "torch"),
        )  # fmt: skip
    else:
        yield ok("numpy", f"NumPy {version}")


def abi(facts: Facts) -> Iterator[Check]:
    """The C++ ABI and the libstdc++ of compiler, torch and Python."""
    compiled, found = facts.compiler, facts.torch
    if compiled is None or found is None:
        return
    if None not in (compiled.new_abi, found.new_abi) and compiled.new_abi != found.new_abi:
        of = {True: "the newer (1)", False: "the older (0)"}
        yield missing(
            "abi",
            f"torch uses {of[bool(found.new_abi)]}, the compiler {of[bool(compiled.new_abi)]}"
            " C++ ABI of libstdc++",
            "a kernel would not link, or not load: undefined symbol … std::__cxx11::basic_string",
            BUILT, "use a torch and a compiler of one ABI", installs(facts, "torch"),
        )  # fmt: skip
        return
    has = found.has_glibcxx
    for whose, needed, stop in (
        ("torch", found.needs_glibcxx, True), ("the compiler", compiled.glibcxx, False),
    ):  # fmt: skip
        if has is None or needed is None or numbers(needed) <= numbers(has):
            continue
        what = f"Python loads a libstdc++ up to GLIBCXX_{has}; {whose} has GLIBCXX_{needed}"
        why = f"a library may end with: version `GLIBCXX_{needed}' not found"
        advice = "put a newer libstdc++ first, or use a Python that brings none"
        command = 'export LD_LIBRARY_PATH="$(dirname "$(c++ -print-file-name=libstdc++.so.6)")"'
        if stop:
            yield missing("abi", what, why, BUILT, advice, command)
        else:
            yield warning("abi", what, why, advice, command)
        return
    if has is not None:
        yield ok("abi", f"C++ ABI and libstdc++ (GLIBCXX_{has}) fit")


def git(facts: Facts) -> Iterator[Check]:
    """git, the repository, and the name that records are signed with."""
    found = facts.git
    if found is None:
        return
    if not found.there:
        yield warning(
            "git", "no git", "runs then name no commit, and no change can be recorded",
            "install it", installs_on_system(facts, {"": "git"}),
        )  # fmt: skip
    elif found.refused:
        yield warning(
            "git", "git refuses the folder, which belongs to another user",
            "runs then name no commit", "allow it, in that folder",
            'git config --global --add safe.directory "$PWD"',
        )  # fmt: skip
    elif facts.base is not None and found.repository is False:
        yield warning(
            "git", "the knowledge base is in no git repository", "runs then name no commit",
            "make one, in that folder", "git init && git add -A && git commit -m 'Begin'",
        )  # fmt: skip
    elif found.user is False:
        yield note(
            "git", "git's user.name is not set",
            "commits need it, and sessions name their engineer by it",
            "set it", "git config --global user.name 'Your Name'",
        )  # fmt: skip
    else:
        yield ok("git", "git, with user.name")


def base(facts: Facts) -> Iterator[Check]:
    """The knowledge base: whether it is there, loads and can be written."""
    found = facts.base
    if found is None:
        yield missing(
            "base", facts.base_error or "no knowledge base here",
            "recipes are in its patterns, and runs are written to it", [*BUILT, "site"],
            "change to one, or make one", "kbtool init",
        )  # fmt: skip
        return
    if not found.writable:
        yield missing(
            "base", "the knowledge base cannot be written", "each run is written to it",
            [*BUILT, "site"], "copy it to where you may write, or get the permission",
            "git clone . ~/kbtool-base",
        )  # fmt: skip
    if found.findings:
        yield warning(
            "base", f"a record does not load: {found.first}", "what it holds is left out",
            "correct it", "kbtool check",
        )  # fmt: skip
    if found.writable and not found.findings:
        yield ok("base", "the knowledge base loads and can be written")


def site(facts: Facts) -> Iterator[Check]:
    """The packages of the site."""
    if facts.site_missing is not None:
        extra = "zensical" if facts.site_missing == "zensical" else "site"
        yield missing(
            "site", f"no {facts.site_missing}", "the site is built with it", ["site"],
            "install the packages of the site", f"{facts.installs} 'kbtool[{extra}]'",
        )  # fmt: skip
    else:
        yield ok("site", "the packages of the site")


def room(facts: Facts) -> Iterator[Check]:
    """Free space of the disks, and whether they can be written."""
    for one in facts.rooms:
        if not one.writable and not one.temporary and facts.base and not facts.base.writable:
            continue  # that is said already
        free = f"{one.free_bytes / _GIB:.1f} GiB free for {one.what}"
        if not one.writable:
            yield missing(
                "disk", f"{one.what} cannot be written", "a build writes its files there", BUILT,
                "get the permission, or name another folder by TMPDIR"
                if one.temporary else "get the permission",
                'export TMPDIR="$HOME"' if one.temporary
                else as_root(facts, 'chown -R "$(id -u)" .kbtool'),
            )  # fmt: skip
        elif one.free_bytes < FULL:
            yield missing(
                "disk", free, "a build fails when its disk is full", BUILT,
                _ROOM, "du -sh .kbtool && df -h .",
            )  # fmt: skip
        elif one.free_bytes < LOW:
            yield warning(
                "disk", free, "a build for several architectures may fill it",
                _ROOM, "du -sh .kbtool && df -h .",
            )  # fmt: skip
        else:
            yield Check(name="disk", level="ok", found=free, where=one.path)


def memory(facts: Facts) -> Iterator[Check]:
    """Memory for the compilers."""
    if facts.memory_bytes is None:
        return
    found = f"{facts.memory_bytes / _GIB:.1f} GiB of memory available"
    if facts.memory_bytes < LITTLE_MEMORY:
        yield warning(
            "memory", found, "a compiler that gets none is killed, and says no more than that",
            "end other programs; a build step with `jobs: 1` runs one compiler at a time",
            "ps -eo rss,comm --sort=-rss | head",
        )  # fmt: skip
    else:
        yield ok("memory", found)


def load(facts: Facts) -> Iterator[Check]:
    """Whether other processes use the cores."""
    if facts.load is None:
        return
    cores = facts.machine.cores
    found = f"load {facts.load:.1f} on {cores} core{'s' * (cores != 1)}"
    if facts.load >= LOADED * cores:
        yield warning(
            "load", found, "times of the CPU are then noisy (exit status 75)",
            "wait for them, or end them", "ps -eo pcpu,comm --sort=-pcpu | head",
        )  # fmt: skip
    else:
        yield ok("load", found)


def unread(facts: Facts) -> Iterator[Check]:
    """What could not be looked at."""
    for what, why in facts.unread.items():
        yield note("unread", f"{what} was not looked at: {why}", "it may be slow, or hang")
    if facts.torch is not None and facts.torch.imports is None:
        yield note(
            "unread", f"torch had not been imported within {SECONDS} s",
            "the first import after a start reads its libraries from the disk",
            "run it again", "kbtool doctor",
        )  # fmt: skip


CHECKS = (
    base, python, compiler, ninja, torch, numpy, abi, git, site, room, memory, load, unread,
)  # fmt: skip
