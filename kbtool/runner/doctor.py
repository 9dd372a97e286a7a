"""What can start on this machine: the checks of ``kbtool doctor``, and a recipe's own needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from kbtool.gpu.build_plan import choose_architecture, choose_target
from kbtool.gpu.doctor import card, host
from kbtool.gpu.doctor.facts import Base, Facts
from kbtool.gpu.doctor.read import read_facts
from kbtool.model.diagnosis import Check, Diagnosis, RecipeStart, Start, Work
from kbtool.model.errors import UsageError
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.build import BuildStep
from kbtool.model.kinds.environment import EnvironmentStep
from kbtool.model.machine_path import without_machine_paths
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo
from kbtool.runner.engine import Job, make_context, plan
from kbtool.steps import KINDS
from kbtool.store.tree import KnowledgeBase

WORKS: tuple[Work, ...] = get_args(Work)
TAG = "environment"
"""The tag of the pattern that is about the environment."""

_ORDER = {"missing": 0, "warning": 1, "note": 2, "ok": 3}
_NEEDED: Mapping[str, Work] = {"profiler": "profile", "sanitiser": "sanitise"}


def facts_of(
    base: KnowledgeBase | None, error: str | None = None, site_missing: str | None = None
) -> Facts:
    """The facts about this machine.

    Args:
        base: the knowledge base; ``None`` where there is none.
        error: why there is none.
        site_missing: a package that the site needs and that is not installed.
    """

    def load(root: Path) -> Base:
        assert base is not None
        base.recipes()  # reads the patterns
        kernels = {name: entry.record for name, entry in base.kernels.items()}
        return Base(
            writable=os.access(root, os.W_OK | os.X_OK) and _is_writable(root / "sessions"),
            kernels=kernels,
            findings=len(base.findings),
            first=str(base.findings[0]) if base.findings else None,
        )

    found = read_facts(base.root if base else None, load, site_missing)
    return replace(found, base_error=error)


def _is_writable(folder: Path) -> bool:
    return not folder.exists() or os.access(folder, os.W_OK | os.X_OK)


def checks_of(facts: Facts) -> list[Check]:
    """All checks: first what is missing, then what may mislead, what is worth knowing, and the
    rest."""
    found = [check for rule in (*host.CHECKS, *card.CHECKS) for check in rule(facts)]
    return sorted(found, key=lambda check: _ORDER[check.level])


def starts_of(checks: Sequence[Check]) -> list[Start]:
    """For each kind of work, whether it can start."""
    return [
        Start(
            work=work,
            can=not (names := list(dict.fromkeys(c.name for c in checks if work in c.stops))),
            stopped_by=names,
        )
        for work in WORKS
    ]


def diagnose(
    facts: Facts, base: KnowledgeBase | None, job: Job | None = None, *, paths: bool = False
) -> Diagnosis:
    """What the facts mean for the work.

    Args:
        facts: about this machine.
        base: the knowledge base; ``None`` where there is none.
        job: the recipe to start, if one is asked for.
        paths: whether the checks name the paths of this machine.
    """
    patterns = base.patterns.items() if base else ()
    pattern = next((id_ for id_, entry in patterns if TAG in entry.record.tags), None)
    checks = [
        check.model_copy(
            update={
                "pattern": pattern if check.level != "ok" else None,
                "where": check.where if paths else None,
            }
        )
        for check in checks_of(facts)
    ]
    starts = starts_of(checks)
    recipe = None
    if job is not None:
        told = (without_machine_paths(problem) for problem in _problems(job, checks))
        problems = list(dict.fromkeys(told))
        recipe = RecipeStart(recipe=job.recipe.name, can=not problems, problems=problems)
    return Diagnosis(machine=facts.machine, checks=checks, starts=starts, recipe=recipe)


def _problems(job: Job, checks: Sequence[Check]) -> Iterator[str]:
    """What stops a recipe: what its steps say, and the checks of the work that it is."""
    kernel = job.base.kernels.get(job.recipe.kernel or "")
    works = works_of(job.recipe, job.machine, kernel.record if kernel else None)
    for check in checks:
        if works & set(check.stops) or (check.name == "base" and check.stops):
            yield check.found
    context = make_context(job)
    for step in job.recipe.steps:
        if isinstance(step, EnvironmentStep):
            outcome = KINDS[step.kind].run(step, context)
            if outcome.status != "passed":
                yield f"{step.id}: {outcome.message}"
    for planned, _, problem in plan(job):
        if problem is not None:
            yield f"{planned.id}: {problem}"


def works_of(recipe: Recipe, machine: MachineInfo, kernel: Kernel | None) -> set[Work]:
    """The kinds of work that a recipe is on this machine."""
    works: set[Work] = set()
    for step in recipe.steps:
        works |= {_NEEDED[need] for need in step.needs if need in _NEEDED}
        if "gpu" in step.needs:
            works.add("cuda")
        if isinstance(step, BuildStep) and kernel is not None:
            works.add(_target(kernel, step.target, machine))
    return works


def _target(kernel: Kernel, wanted: str, machine: MachineInfo) -> Work:
    """Whether a build is for the card. A target with architectures is."""
    target = choose_target(kernel, wanted, machine)
    try:
        choose_architecture(kernel, target, machine.compute_capability)
    except UsageError:
        if wanted == "auto":
            return "cpu"
    return kernel.device_of(target)
