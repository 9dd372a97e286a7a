"""The step kind ``environment``: check that this machine has what the recipe needs."""

from __future__ import annotations

import re

from kbtool.model.kinds.environment import EnvironmentResult, EnvironmentStep
from kbtool.model.run import MachineInfo
from kbtool.steps.base import Context, Links, Outcome, StepKind
from kbtool.steps.environment import page, report

_NUMBER = re.compile(r"\d+(?:\.\d+)*")


class Environment(StepKind[EnvironmentStep, EnvironmentResult]):
    """Compares the probed machine with the minimum versions of a recipe."""

    result = EnvironmentResult

    def plan(self, step: EnvironmentStep, context: Context) -> list[str]:
        """The minimum versions."""
        wanted = ", ".join(f"{name} ≥ {least}" for name, least in step.minimum.items())
        return [f"probe the machine{'; want ' + wanted if wanted else ''}"]

    def run(self, step: EnvironmentStep, context: Context) -> Outcome:
        """Unavailable if anything is missing or too old."""
        missing = [
            problem
            for name, least in step.minimum.items()
            if (problem := _problem(context.machine, name, least)) is not None
        ]
        result = EnvironmentResult(missing=missing)
        if missing:
            return Outcome("unavailable", "; ".join(missing), result)
        return Outcome("passed", report.describe(context.machine), result)

    def page(self, result: EnvironmentResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _problem(machine: MachineInfo, name: str, least: str) -> str | None:
    if name not in MachineInfo.model_fields:
        return f"{name} is not probed by kbtool; see `kbtool schema`"
    value = getattr(machine, name)
    if value is None:
        return f"{name} is missing; {least} or newer is needed"
    # The last number: "g++ (Debian 12.2.0-14) 12.2.0" names its version at the end.
    numbers = _NUMBER.findall(str(value).partition("+")[0])
    if not numbers or _tuple(numbers[-1]) < _tuple(least):
        return f"{name} is {value}; {least} or newer is needed"
    return None


def _tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
