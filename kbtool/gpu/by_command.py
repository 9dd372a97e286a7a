"""Build a library by the commands of its target: CMake, make, a compiler of one's own.

The commands run in a build folder beside a copy of the listed sources, so a file that the manifest
does not list is not there. The folder stays between builds: what was built and has not changed need
not be built again.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kbtool.gpu.build_plan import BuildPlan
from kbtool.gpu.compiler_output import first_error
from kbtool.gpu.process import Completed, run_process
from kbtool.gpu.toolchain import find_torch, own_programs
from kbtool.model.errors import MachineError
from kbtool.store.lock import LockTimeoutError, lock

_OUTERMOST = {"MAKELEVEL": "0", "MAKEFLAGS": "", "MFLAGS": ""}
"""A make that kbtool was started from is none of the build's."""


def run_commands(
    plan: BuildPlan,
    timeout: float,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> tuple[Completed, str]:
    """Run the commands until one fails; how the last one ended, and the error of that which failed,
    empty if none did. What they produce becomes the library of the plan.

    Raises:
        MachineError: a program is not installed.
    """
    deadline = time.monotonic() + timeout
    work = plan.build_folder.parent / f".{plan.target}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        with lock(work / ".lock", timeout=timeout):
            return _run(plan, work, deadline, on_line, on_tick)
    except LockTimeoutError:
        return Completed(-1, "another build of this target is under way", timeout, True), ""


def _run(
    plan: BuildPlan,
    work: Path,
    deadline: float,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> tuple[Completed, str]:
    sources, build = work / "sources", work / "build"
    _copy_listed(plan, sources)
    build.mkdir(exist_ok=True)
    produced = build / plan.spec.produces
    done = Completed(0, "", 0.0, False)
    for command in plan.spec.commands:
        argv = shlex.split(command)
        try:
            done = run_process(
                argv,
                cwd=build,
                timeout=max(deadline - time.monotonic(), 0.0),
                env={
                    "PATH": own_programs(),
                    "CMAKE_PREFIX_PATH": str(find_torch()[0] / "share" / "cmake"),
                    "KBTOOL_ARCHITECTURE": plan.architecture,
                    **_OUTERMOST,
                },
                on_line=on_line,
                on_tick=on_tick,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise MachineError(f"{argv[0]}: {error.strerror}; install it") from None
        if done.timed_out:
            return done, ""
        if done.returncode:
            how = f"was killed by {done.died}" if done.died else f"exited with {done.returncode}"
            return done, first_error(done.output) if done.output.strip() else f"{command}: {how}"
    if not produced.is_file():
        made = sorted(str(path.relative_to(build)) for path in build.rglob("*.so"))
        there = f"; there is {', '.join(made[:5])}" if made else ""
        return done, f"the commands did not make {plan.spec.produces}{there}"
    shutil.copy2(produced, plan.library)
    return done, ""


def _copy_listed(plan: BuildPlan, folder: Path) -> None:
    """Make ``folder`` hold the listed files and no others. A file that is there already stays as it
    is: tools look at its time."""
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in plan.sources:
            path.unlink()
    for name in plan.sources:
        content, path = (plan.folder / name).read_bytes(), folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)
