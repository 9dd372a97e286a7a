"""Compile and link build plans with one run of ninja.

Objects that exist already are not compiled again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbtool.gpu.build_plan import BuildPlan, is_cuda
from kbtool.gpu.process import Completed, run_process
from kbtool.gpu.toolchain import find_ninja
from kbtool.model.errors import MachineError
from kbtool.store.write import write_atomic

KEPT_SECONDS = 14 * 86400.0
"""How long an unused object is kept."""

_FAILED = re.compile(r"FAILED: (?:\[code=-?\d+\] )?(.*?) ?$")
_STATUS = re.compile(r"\[\d+/\d+\] |ninja: ")
_USAGE_LINE = re.compile(r"ptxas info\b|\s+\d+ bytes stack frame, ")


def usage_log(compiled: Path) -> Path:
    """The file with ptxas's report on the kernels of a CUDA object."""
    return compiled.with_suffix(".log")


@dataclass(frozen=True)
class NinjaResult:
    """The outcome of one run of ninja."""

    done: Completed
    failed: dict[str, str]
    """Output file of a failed statement → what its command printed."""


def refuse_for_nvcc(nvcc: str, *folders: Path) -> None:
    """Raise if there are CUDA sources and nvcc cannot read a folder's path.

    It hands commands of its own to a shell, and puts paths into double quotes there.
    """
    for folder in folders if nvcc else ():
        if read_by_shell := "".join(mark for mark in '$"`\\' if mark in str(folder)):
            raise MachineError(
                f"nvcc compiles nothing in a folder whose path holds {' or '.join(read_by_shell)}:"
                f" {folder}; rename the folder"
            )


def run_ninja(
    plans: Sequence[BuildPlan],
    statements: Sequence[str],
    timeout: float,
    jobs: int,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> NinjaResult:
    """Run ``statements`` in the folder of the first plan.

    Raises:
        MachineError: there is no ninja, or nvcc cannot compile in this folder.
    """
    ninja = find_ninja()
    for plan in plans:
        refuse_for_nvcc(plan.nvcc, plan.folder, plan.build_folder)
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
            return  # it is in the object's log
        if match := _FAILED.match(text):
            current, is_command = failed.setdefault(match[1], []), True
        elif _STATUS.match(text):
            current = None
        elif is_command:
            is_command = False  # skip the command line, which ninja repeats
        elif current is not None:
            current.append(text)
        on_line(text)

    done = run_process(
        # With one library stop at the first error; with several, go on to find the error of each.
        [ninja, f"-k{len(plans) == 1:d}", *([f"-j{jobs}"] if jobs else [])],
        cwd=folder,
        timeout=timeout,
        on_line=line,
        on_tick=on_tick,
        # English ASCII messages in every locale, because patterns match them.
        env={"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C"},
    )
    printed = {output: "\n".join(lines) for output, lines in failed.items()}
    if any("No space left on device" in text for text in (done.output, *printed.values())):
        raise MachineError(
            "the disk is full: the compiler could not write; make room and run it again"
        )
    _forget_old(objects)
    return NinjaResult(done, printed)


def _rules(plan: BuildPlan) -> list[str]:
    """The rules. Each writes a temporary file and renames it last, so no output is ever partial."""
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


def compile_statements(
    plans: Sequence[BuildPlan], wanted: Callable[[str], bool] = lambda _: True
) -> tuple[list[str], frozenset[Path]]:
    """Statements for the missing objects, each once, and the objects that exist."""
    statements: dict[Path, str] = {}
    there: set[Path] = set()
    for plan in plans:
        for source, output in plan.objects.items():
            if not wanted(source) or output in there or output in statements:
                continue
            try:
                os.utime(output)  # mark it as used, so that it is not removed
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


def link_statement(plan: BuildPlan) -> str:
    """The statement that links the library of ``plan``."""
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
        with contextlib.suppress(OSError):  # another process may remove it too
            if path.stat().st_mtime < oldest:
                path.unlink()
                usage_log(path).unlink(missing_ok=True)


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(path: Path) -> str:
    return _escape(str(path)).replace(" ", "$ ").replace(":", "$:")
