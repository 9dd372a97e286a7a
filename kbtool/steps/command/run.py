"""The step kind ``command``: run a program of the knowledge base."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kbtool.gpu.build_plan import sha256_of
from kbtool.gpu.compiler_output import first_error
from kbtool.gpu.process import run_process
from kbtool.gpu.toolchain import own_programs
from kbtool.model.kinds.command import CommandResult, CommandStep
from kbtool.model.kinds.logged import in_a_line
from kbtool.model.run import StepStatus
from kbtool.steps.base import Context, Links, Outcome, StepKind
from kbtool.steps.command import page
from kbtool.steps.command.values import Values, without_private

_TAIL = 40


def _scripts(argv: Sequence[str], folder: Path, root: Path) -> dict[str, str]:
    """The arguments that are files of the knowledge base, hashed."""
    found = {}
    for argument in argv:
        path = (folder / argument).resolve()
        if path.is_file() and path.is_relative_to(root.resolve()):
            found[argument] = sha256_of(path)
    return found


class Command(StepKind[CommandStep, CommandResult]):
    """Runs a program without a shell. The files that it must produce are hashed."""

    result = CommandResult

    def plan(self, step: CommandStep, context: Context) -> list[str]:
        """The command line and the files it must leave."""
        where = "" if step.cwd == "." else f" in {step.cwd}"
        context.inside(step.cwd)
        if step.results:
            context.inside(step.results)
        return [
            f"run {shlex.join(step.run)}{where}",
            *(f"expect {name}" for name in step.produces),
            *([f"read values from {step.results}"] if step.results else ()),
        ]

    def run(self, step: CommandStep, context: Context) -> Outcome:
        """Fails if the exit status differs from the expected one, or a file is not produced."""
        folder = context.inside(step.cwd)

        def on_line(line: str) -> None:
            values.line(line)
            context.on_line(line)

        values = Values(context.inside(step.results) if step.results else None)
        scripts = _scripts(step.run, folder, context.root)
        produces = {name: context.inside(name) for name in step.produces}
        before = {name: path.stat().st_mtime_ns for name, path in produces.items() if path.exists()}
        try:
            done = run_process(
                step.run,
                cwd=folder,
                timeout=context.remaining,
                env={"PATH": own_programs(), **step.env},
                on_line=on_line,
                on_tick=context.on_tick,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            if not folder.is_dir():
                return Outcome("failed", f"cwd {step.cwd} is no folder")
            return Outcome("unavailable", f"{step.run[0]}: {error.strerror}; install it")
        if not done.timed_out:
            values.read_file()
        tail = "\n".join(map(without_private, done.output.splitlines()[-_TAIL:]))
        produced = {name: sha256_of(path) for name, path in produces.items() if path.is_file()}
        result = CommandResult(
            argv=step.run,
            exit_code=None if done.timed_out else done.returncode,
            output_tail=tail,
            produced=produced,
            scripts=scripts,
            metrics=values.series,
        )
        if done.timed_out:
            return Outcome("timeout", f"stopped after {done.seconds:.0f} s", result, None, tail)
        if done.returncode != step.exit_code:
            how = f"was killed by {done.died}" if done.died else f"exited with {done.returncode}"
            error_line = first_error(done.output) if done.output.strip() else None
            return Outcome(
                "failed", f"{step.run[0]} {how}, not {step.exit_code}", result, error_line,
                done.output,
            )  # fmt: skip
        if values.problem is not None:
            return Outcome("failed", values.problem, result)
        absent = sorted(set(produces) - set(produced))
        stale = sorted(
            name for name in produced if before.get(name) == produces[name].stat().st_mtime_ns
        )
        if absent or stale:
            names = ", ".join(absent or stale)
            what = "did not produce" if absent else "did not update"
            return Outcome("failed", f"{step.run[0]} {what} {names}", result)
        return Outcome("passed", f"{step.run[0]} exited with {done.returncode}", result)

    def found(self, result: CommandResult, status: StepStatus) -> str:
        """The first values that it logged."""
        return in_a_line(result)

    def page(self, result: CommandResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)
