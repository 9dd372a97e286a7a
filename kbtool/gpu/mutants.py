"""Plans of a kernel with one edit each: every bug put back is a library of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kbtool.gpu.build_plan import BuildPlan, plan_build
from kbtool.model.edit import edited
from kbtool.model.errors import UsageError
from kbtool.model.kinds.validate import CaseResult
from kbtool.model.mutant import Mutant


def plan_mutant(plan: BuildPlan, mutant: Mutant, folder: Path) -> BuildPlan:
    """The plan of the library with the mutant's edit, from a copy of the sources.

    Args:
        plan: the library without it.
        mutant: of the plan's kernel and target.
        folder: where the copy is written.

    Raises:
        ValueError: the edit cannot be made; the message says why.
        UsageError: the sources have changed since ``plan`` was made.
    """
    if mutant.file not in plan.sources:
        raise ValueError(f"{mutant.file} is no source or header of target {plan.target}")
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
    if made.objects == plan.objects:
        raise ValueError(f"no source that is built reads {mutant.file}")
    return made


def over_bound(case: CaseResult, bound: float) -> bool:
    """Whether a fixed bound refuses the case: its first output's largest error is not below it.

    Nothing else counts. A NaN where there should be none is not below any bound, nor is an output
    that a call which raised never gave.
    """
    output = next(iter(case.outputs.values()), None)
    if output is None or output.error is None:
        return not (case.passed if output is None else output.passed)
    return not output.error < bound
