"""The kinds of step: one module a kind, with the step as a recipe has it and the result as a run
records it. A new kind is a module here, a line in each of the two unions below, and a folder under
``kbtool.steps``."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from kbtool.model.kinds.ablate import AblateResult, AblateStep
from kbtool.model.kinds.base import StepBase
from kbtool.model.kinds.benchmark import BenchmarkResult, BenchmarkStep
from kbtool.model.kinds.build import BuildResult, BuildStep
from kbtool.model.kinds.cheats import CheatsResult, CheatsStep
from kbtool.model.kinds.command import CommandResult, CommandStep
from kbtool.model.kinds.environment import EnvironmentResult, EnvironmentStep
from kbtool.model.kinds.logged import ImportResult, LogResult
from kbtool.model.kinds.minimise import MinimiseResult, MinimiseStep
from kbtool.model.kinds.mutants import MutantsResult, MutantsStep
from kbtool.model.kinds.profile import ProfileResult, ProfileStep
from kbtool.model.kinds.sanitise import SanitiseResult, SanitiseStep
from kbtool.model.kinds.tune import TuneResult, TuneStep
from kbtool.model.kinds.validate import ValidateStep, ValidationResult

StepSpec = Annotated[
    EnvironmentStep
    | BuildStep
    | ValidateStep
    | MutantsStep
    | CheatsStep
    | BenchmarkStep
    | AblateStep
    | TuneStep
    | MinimiseStep
    | ProfileStep
    | SanitiseStep
    | CommandStep,
    Field(discriminator="kind"),
]
"""A step of a recipe."""

StepResult = Annotated[
    EnvironmentResult
    | BuildResult
    | ValidationResult
    | MutantsResult
    | CheatsResult
    | BenchmarkResult
    | AblateResult
    | TuneResult
    | MinimiseResult
    | ProfileResult
    | SanitiseResult
    | CommandResult
    | LogResult
    | ImportResult,
    Field(discriminator="type"),
]
"""What a step of a run found."""

_STEPS: dict[str, type[StepBase]] = {
    get_args(step.model_fields["kind"].annotation)[0]: step
    for step in get_args(get_args(StepSpec)[0])
}


def declared(kind: str) -> type[StepBase]:
    """The model of a kind's steps, for what it declares; a kind that is not known declares nothing:
    a record of a later kbtool may hold one."""
    return _STEPS.get(kind, StepBase)
