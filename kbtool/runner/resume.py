"""Resume a run that did not pass: same id, new attempt; passed steps are kept.

If sources, library, card or parameters have changed, resuming is refused, because the record would
mix results of different code or machines.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from kbtool.gpu.build_plan import BuildPlan, choose_architecture, plan_build, sha256_of
from kbtool.model.errors import UsageError
from kbtool.model.identity import Identity
from kbtool.model.kinds import declared
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, Run, StepRecord
from kbtool.steps.base import Context
from kbtool.store.private import build_cache
from kbtool.store.tree import KnowledgeBase


@dataclass(frozen=True)
class Resumption:
    """An earlier attempt, and what is kept of it."""

    run: Run
    kept: dict[str, StepRecord]
    """Step id → record, for the steps that passed before the first that did not."""
    plan: BuildPlan | None
    built: BuildResult | None
    validated: list[ValidationResult]

    def restore(self, context: Context) -> None:
        """Restore the artifact, its validation and what was read in a context."""
        context.hold(self.run.identity or Identity())
        context.plan, context.built = self.plan, self.built
        context.validated = list(self.validated)


def resume(base: KnowledgeBase, run: Run, recipe: Recipe, machine: MachineInfo) -> Resumption:
    """The results of ``run`` that can be kept.

    Raises:
        UsageError: it passed already, or something that it depends on has changed.
    """
    if run.status == "passed":
        raise UsageError(f"run {run.id} passed; there is nothing to resume")
    if [step.id for step in recipe.steps] != [step.id for step in run.steps]:
        raise UsageError(_changed(run, recipe, f"the steps of recipe {recipe.name}"))
    here, there = (machine.card, machine.cpu), (run.machine.card, run.machine.cpu)
    if here != there:
        raise UsageError(_changed(run, recipe, f"the machine ({there[0] or there[1]})"))
    _same_identity(base, run, recipe)
    kept = {}
    for step in run.steps:
        if step.status != "passed":
            break
        kept[step.id] = step
    plan: BuildPlan | None = None
    built: BuildResult | None = None
    validated: list[ValidationResult] = []
    for step in kept.values():
        if isinstance(step.result, BuildResult):
            built, validated = step.result, []
            plan = _same_plan(base, run, recipe, built, machine)
        elif isinstance(step.result, ValidationResult):
            validated.append(step.result)
    return Resumption(run, kept, plan, built, validated)


def _same_identity(base: KnowledgeBase, run: Run, recipe: Recipe) -> None:
    """Refuse if the manifest, the harness or anything that they read has changed.

    Packages and linked libraries are compared by the workers, which load them.
    """
    if run.kernel is None:
        return
    if run.identity is None:
        raise UsageError(
            f"run {run.id} was made before runs recorded what the harness reads;"
            f" start a new one: {_rerun_command(run, recipe)}"
        )
    files = run.identity.files
    now = base.digests(files)
    changed = [name for name in files if now.get(name) != files[name]]
    if changed:
        raise UsageError(_changed(run, recipe, ", ".join(changed)))


def _same_plan(
    base: KnowledgeBase, run: Run, recipe: Recipe, built: BuildResult, machine: MachineInfo
) -> BuildPlan:
    """The plan of a build whose inputs are unchanged."""
    entry = base.kernels.get(built.kernel)
    if entry is None:
        raise UsageError(_changed(run, recipe, f"kernel {built.kernel}"))
    folder = base.root / "kernels" / built.kernel
    cache = build_cache(base.root)
    architecture = choose_architecture(entry.record, built.target, machine.compute_capability)
    try:
        kernel = entry.record.specialised(built.target, built.specialisation)
    except ValueError:
        what = f"specialisation {built.specialisation}"
        raise UsageError(_changed(run, recipe, what)) from None
    plan = plan_build(kernel, folder, built.target, cache, architecture)
    if plan.sources != built.sources:
        names = sorted(
            name
            for name in plan.sources.keys() | built.sources.keys()
            if plan.sources.get(name) != built.sources.get(name)
        )
        raise UsageError(_changed(run, recipe, ", ".join(names)))
    if plan.key != built.key:
        raise UsageError(_changed(run, recipe, "the compiler, torch or the flags"))
    if not plan.library.exists() or sha256_of(plan.library) != built.sha256:
        raise UsageError(_changed(run, recipe, "the library"))
    return plan


def _changed(run: Run, recipe: Recipe, what: str) -> str:
    return f"{what} has changed since run {run.id}; start a new one: {_rerun_command(run, recipe)}"


def continue_command(run: Run, recipe: Recipe) -> str:
    """The command to continue after a run that did not pass.

    After a wrong kernel that is a new run, since ``resume`` refuses changed sources. A fault that
    stopped another step may be in the harness or not, so both commands are given.
    """
    stopped = next((step for step in run.steps if step.status != "passed"), None)
    new = _rerun_command(run, recipe)
    wrong = stopped is not None and stopped.status in {"failed", "crashed"}
    refused = stopped is not None and stopped.status == "refused"
    if stopped is not None and (refused or (wrong and declared(stopped.kind).judges)):
        return f"after the fix, start a new run: {new}"
    command = f"kbtool run-recipe --resume {run.id}"
    if run.status == "noisy":
        return f"to measure again when the machine is quiet: {command}"
    if wrong and run.identity is not None and len(run.identity.problem) > 1:
        # The harness was read. If the fault is there, resuming after the fix would be refused.
        return f"if no file has to change: {command}\nelse, after the fix: {new}"
    return f"to continue: {command}"


def _rerun_command(run: Run, recipe: Recipe) -> str:
    """The command of a new run with the same parameters."""
    settings = [
        f"--set {shlex.quote(f'{name}={value}')}"
        for name, value in run.parameters.items()
        if name not in recipe.parameters or value != recipe.parameters[name].default
    ]
    return " ".join([f"kbtool run-recipe {run.recipe}", *settings])
