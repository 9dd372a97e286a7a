"""The step kind ``build``: build the library, named by the hash of its inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kbtool.gpu.build import BuildError, BuildTimeoutError, build
from kbtool.gpu.build_plan import (
    BuildPlan,
    choose_architecture,
    choose_target,
    is_cuda,
    plan_build,
)
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Target
from kbtool.model.kinds.build import BuildResult, BuildStep
from kbtool.model.run import MachineInfo
from kbtool.model.words import many
from kbtool.steps.base import Context, Links, Outcome, StepKind
from kbtool.steps.build import page
from kbtool.store.private import BUILD, build_cache, private_folder

# As NINJA_STATUS asks of ninja: "[3/5] compile /somewhere/binding.cpp".
_NINJA_STATUS = re.compile(r"\[(\d+)/(\d+)\] \w+ (.*)")


class Build(StepKind[BuildStep, BuildResult]):
    """Builds the recipe's kernel with ninja."""

    result = BuildResult

    def plan(self, step: BuildStep, context: Context) -> list[str]:
        """The target, the sources, and whether the library is built already."""
        context.plan = None
        made, passed_over = _plan(step, context)
        context.plan = made  # what the steps after it can be asked for
        context.auto = step.target == "auto"
        there = "there already" if made.marker.exists() else "to be built"
        part = f" ({step.specialisation} alone)" if step.specialisation else ""
        return [
            f"build {made.kernel.id} for {made.target}{part} with {made.compiler_version}",
            *([passed_over] if passed_over else []),
            f"library {made.key}: {there}",
            *(f"compile {name}" for name, path in made.objects.items() if not path.exists()),
        ]

    def run(self, step: BuildStep, context: Context) -> Outcome:
        """Fails with the first error of the compiler or linker."""
        context.plan = None  # forget an earlier build: this step chooses its own
        made, passed_over = _plan(step, context)
        private_folder(context.root, BUILD)
        try:
            built = build(
                made,
                timeout=context.remaining,
                jobs=step.jobs,
                on_line=ninja_progress(context),
                on_tick=context.on_tick,
                on_wait=lambda: context.on_waiting("another build of the same library"),
            )
        except BuildError as error:
            return Outcome("failed", error.first, error=error.first, output=error.output)
        except BuildTimeoutError as error:
            return Outcome("timeout", str(error))
        built = built.model_copy(update={"specialisation": step.specialisation})
        context.plan, context.built, context.validated = made, built, []
        count = len(made.compiled) - built.reused
        how = f"{count} source{'s' * (count != 1)} compiled"
        if not made.spec.compiled:
            how = f"{many(len(made.modules), 'module')} in Python, nothing to compile"
        elif built.warm:
            how = "found, nothing compiled"
        elif made.spec.commands:
            how = f"built by {made.spec.commands[-1]}"
        elif built.reused:
            how += f", {built.reused} found compiled"
        if passed_over:
            how += f"; {passed_over}"
        what = f"{built.target} {'library ' if made.spec.compiled else ''}{built.sha256[:12]}"
        return Outcome("passed", f"{what}, {how}", result=built)

    def page(self, result: BuildResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def ninja_progress(context: Context) -> Callable[[str], None]:
    """Turn lines of ninja into progress, one item per finished file."""

    def on_line(line: str) -> None:
        if match := _NINJA_STATUS.match(line):
            context.on_progress(int(match[1]), int(match[2]), match[3].rpartition("/")[2])
        context.on_line(line)

    return on_line


def _plan(step: BuildStep, context: Context) -> tuple[BuildPlan, str]:
    """The build plan, and why ``auto`` does not build for the card, if it does not."""
    machine = context.machine
    target = choose_target(context.manifest, step.target, machine)
    cache = build_cache(context.root)
    passed_over = ""
    try:
        architecture = choose_architecture(context.manifest, target, machine.compute_capability)
    except UsageError as error:
        if step.target != "auto":
            raise
        target, architecture = choose_target(context.manifest, "auto", None), ""
        passed_over = f"{machine.card} is not used: {error}"
    compiles = any(map(is_cuda, context.manifest.targets[target].sources_for(architecture)))
    if compiles or context.manifest.device_of(target) == "cuda":
        _refuse_without_cuda(machine, context.manifest.targets, target, compiles=compiles)
    try:
        kernel = context.manifest.specialised(target, step.specialisation)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return plan_build(kernel, context.kernel_folder, target, cache, architecture), passed_over


def _refuse_without_cuda(
    machine: MachineInfo, targets: Mapping[str, Target], target: str, *, compiles: bool
) -> None:
    """Refuse what could not be linked or run, before compiling it for minutes.

    Raises:
        MachineError: torch was built without CUDA, or there is no card.
    """
    problems = []
    if machine.cuda is None:
        problems.append(
            f"torch {machine.torch} was built without CUDA"
            f"{', and the library is linked against it' if compiles else ''}:"
            " install a torch with CUDA (https://pytorch.org/get-started)"
        )
    if machine.card is None:
        problems.append("no card to run it on: use a machine with an NVIDIA card and its driver")
    if problems:
        others = [name for name in targets if name != target]
        problems += [f"or take target {name}: --set target={name}" for name in others]
        hint = " `kbtool kernel compile` compiles the sources without either" if compiles else ""
        raise MachineError(f"target {target}: {'; '.join(problems)}.{hint}")
