"""Build a kernel in a folder named by the hash of all build inputs.

A second build with the same inputs finds the library in that folder and runs no compiler.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kbtool.gpu.build_plan import BuildPlan, sha256_of
from kbtool.gpu.by_command import run_commands
from kbtool.gpu.compiler_output import first_error
from kbtool.gpu.ninja import NinjaResult, compile_statements, link_statement, run_ninja
from kbtool.model.kinds.build import BuildResult
from kbtool.store.lock import LockTimeoutError, lock
from kbtool.store.write import write_atomic


class BuildError(Exception):
    """The compiler or linker failed. Holds the first error and the whole output."""

    def __init__(self, first: str, output: str) -> None:
        super().__init__(first)
        self.first = first
        self.output = output


class BuildTimeoutError(Exception):
    """The build took too long and was stopped."""


def build(
    plan: BuildPlan,
    *,
    timeout: float,
    jobs: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    on_wait: Callable[[], None] = lambda: None,
) -> BuildResult:
    """Build ``plan``, or find it built. Arguments are those of ``build_all``.

    Raises:
        BuildError: a compile or link error.
        BuildTimeoutError: the build took longer than ``timeout`` seconds.
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
    """Build every plan that is not built yet, in one run of ninja. A failure stops no other plan.

    Args:
        plans: plans from ``plan_build``, all with the same cache.
        timeout: seconds, including the wait for other processes that build the same plans.
        jobs: number of parallel compilers; 0 means one per core.
        on_line: called with each line that ninja prints.
        on_tick: called several times a second while compilers run.
        on_wait: called once for each plan that another process is building.

    Returns:
        For each plan, in order: the built library, or the error.

    Raises:
        BuildTimeoutError: another process was building one of the plans for the whole time.
        MachineError: ninja is missing, or the disk is full.
    """
    made: dict[str, BuildResult | BuildError | BuildTimeoutError] = {}
    with _locked(plans, timeout, on_wait) as left:
        made.update((plan.key, found) for plan in plans if (found := _built(plan)) is not None)
        rest = [plan for key, plan in {p.key: p for p in plans}.items() if key not in made]
        for plan in rest:
            if plan.spec.commands:
                made[plan.key] = _by_command(plan, left(), on_line, on_tick)
            elif not plan.objects:
                listed = {"modules": plan.sources, "packages": plan.packages}
                write_atomic(plan.library, json.dumps(listed, indent=1, sort_keys=True).encode())
                made[plan.key] = _finished(plan, reused=0)
        rest = [plan for plan in rest if plan.objects]
        if rest:
            statements, reused = compile_statements(rest)
            for plan in rest:
                plan.library.unlink(missing_ok=True)
                statements.append(link_statement(plan))
            ran = run_ninja(rest, statements, left(), jobs, on_line, on_tick)
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
    """Compile sources of every plan without linking. Needs no card and no CUDA build of torch.

    Args:
        plans: plans from ``plan_build``, all with the same cache.
        wanted: returns whether to compile a source.
        timeout: seconds.
        jobs: number of parallel compilers; 0 means one per core.
        on_line: called with each line that ninja prints.
        on_tick: called several times a second while compilers run.
        on_wait: called once for each plan that another process is building.

    Returns:
        Object that did not compile → the error.

    Raises:
        BuildTimeoutError: another process was building one of the plans for the whole time.
        MachineError: ninja is missing, or the disk is full.
    """
    with _locked(plans, timeout, on_wait) as left:
        statements, _ = compile_statements(plans, wanted)
        if not statements:
            return {}
        ran = run_ninja(plans, statements, left(), jobs, on_line, on_tick)
    objects = [path for plan in plans for source, path in plan.objects.items() if wanted(source)]
    return {path: _problem(ran, [path]) for path in objects if not path.exists()}


@contextlib.contextmanager
def _locked(
    plans: Iterable[BuildPlan], timeout: float, on_wait: Callable[[], None]
) -> Iterator[Callable[[], float]]:
    """Lock the folders of all plans. Yields a function that returns the seconds left."""
    deadline = time.monotonic() + timeout

    def left() -> float:
        return max(deadline - time.monotonic(), 0.0)

    with contextlib.ExitStack() as held:
        # Lock in one fixed order, so that no two processes deadlock.
        for folder in sorted({plan.build_folder for plan in plans}):
            try:
                held.enter_context(lock(folder / ".lock", on_wait=on_wait, timeout=left()))
            except LockTimeoutError:
                raise BuildTimeoutError(
                    f"another process has been building {folder.name} for {timeout:.0f} s:"
                    " wait for it or stop it, then try again"
                ) from None
        yield left


def _built(plan: BuildPlan) -> BuildResult | None:
    """The finished build in the plan's folder, if it is complete and unchanged."""
    try:
        recorded = BuildResult.model_validate_json(plan.marker.read_bytes())
        if recorded.sha256 != sha256_of(plan.library):
            return None
    except (OSError, ValueError):
        return None
    return recorded.model_copy(update={"warm": True})


def _problem(ninja: NinjaResult, outputs: Iterable[Path]) -> BuildError | BuildTimeoutError:
    """The error that kept one of ``outputs`` from being made."""
    printed = next((ninja.failed[str(o)] for o in outputs if str(o) in ninja.failed), None)
    if printed is None and ninja.done.timed_out:
        return BuildTimeoutError("the compilers were stopped")
    output = ninja.done.output if printed is None else printed
    return BuildError(first_error(output), output)


def _outcome(
    plan: BuildPlan, ninja: NinjaResult, reused: frozenset[Path]
) -> BuildResult | BuildError | BuildTimeoutError:
    if not plan.library.exists():
        return _problem(ninja, [*plan.objects.values(), plan.library])
    return _finished(plan, reused=len(reused & set(plan.objects.values())))


def _by_command(
    plan: BuildPlan, timeout: float, on_line: Callable[[str], None], on_tick: Callable[[], None]
) -> BuildResult | BuildError | BuildTimeoutError:
    done, error = run_commands(plan, timeout, on_line, on_tick)
    if done.timed_out:
        return BuildTimeoutError(done.output or "the commands were stopped")
    return BuildError(error, done.output or error) if error else _finished(plan, reused=0)


def _finished(plan: BuildPlan, *, reused: int) -> BuildResult:
    """The record of what was built, which is also kept beside it."""
    result = BuildResult(
        kernel=plan.kernel.id,
        target=plan.target,
        key=plan.key,
        artifact=plan.library.name,
        sha256=sha256_of(plan.library),
        bytes=plan.library.stat().st_size,
        warm=False,
        reused=reused,
        compiler=plan.compiler_version,
        flags=[
            flag
            for flag in (*plan.flags, *plan.cuda_flags, *plan.link_flags)
            if not _names_a_folder(flag)
        ],
        sources=plan.sources,
        linked=plan.linked,
        packages=plan.packages,
    )
    write_atomic(plan.marker, result.model_dump_json().encode())
    return result


def _names_a_folder(flag: str) -> bool:
    # Records hold no paths of a machine.
    return flag.startswith(("-I", "-isystem", "-L", "-Wl,-rpath", "-ffile-prefix-map"))
