"""Build plans of mutants: each is the kernel with one edit that puts a known bug back."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kbtool.gpu.build_plan import BuildPlan, plan_build
from kbtool.model.edit import edited
from kbtool.model.errors import UsageError
from kbtool.model.kernel import is_python
from kbtool.model.kinds.validate import CaseResult
from kbtool.model.mutant import Mutant


def plan_mutant(plan: BuildPlan, mutant: Mutant, folder: Path) -> BuildPlan:
    """The build plan of a mutant: a copy of the sources with the mutant's edit.

    Args:
        plan: the build plan without the edit.
        mutant: a mutant of the plan's kernel and target.
        folder: folder for the copy.

    Raises:
        ValueError: the edit cannot be made; the message says why.
        UsageError: the sources have changed since ``plan`` was made.
    """
    if mutant.file not in plan.sources:
        raise ValueError(f"{mutant.file} is not a source or header of target {plan.target}")
    for name, known in plan.sources.items():
        content = (plan.folder / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != known:
            raise UsageError(f"{name} has changed since the library was built; run it again")
        if name == mutant.file:
            try:
                content = edited(content.decode(), mutant.find, mutant.put).encode()
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    cache = plan.build_folder.parent.parent
    made = plan_build(plan.kernel, folder, plan.target, cache, plan.architecture)
    if plan.objects and made.objects == plan.objects and not is_python(mutant.file):
        raise ValueError(f"no source of the build reads {mutant.file}")
    return made


def over_bound(case: CaseResult, bound: float) -> bool:
    """Whether a fixed tolerance rejects the case: the largest error of its first output reaches it.

    Nothing else counts. A wrong NaN, or a call that raised, exceeds every tolerance.
    """
    output = next(iter(case.outputs.values()), None)
    if output is None or output.error is None:
        return not (case.passed if output is None else output.passed)
    return not output.error < bound
