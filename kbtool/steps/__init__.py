"""The kinds of step that a recipe may have, one folder per kind."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from kbtool.model.kinds.base import ResultBase
from kbtool.steps.ablate.run import Ablate
from kbtool.steps.base import ResultKind, StepKind
from kbtool.steps.benchmark.run import Benchmark
from kbtool.steps.build.run import Build
from kbtool.steps.cheats.run import Cheats
from kbtool.steps.command.run import Command
from kbtool.steps.environment.run import Environment
from kbtool.steps.logged import Imported, Logged
from kbtool.steps.minimise.run import Minimise
from kbtool.steps.mutants.run import Mutants
from kbtool.steps.profile.run import Profile
from kbtool.steps.sanitise.run import Sanitise
from kbtool.steps.tune.run import Tune
from kbtool.steps.validate.run import Validate

KINDS: MappingProxyType[str, StepKind[Any, Any]] = MappingProxyType(
    {
        "environment": Environment(),
        "build": Build(),
        "validate": Validate(),
        "mutants": Mutants(),
        "cheats": Cheats(),
        "benchmark": Benchmark(),
        "ablate": Ablate(),
        "tune": Tune(),
        "minimise": Minimise(),
        "profile": Profile(),
        "sanitise": Sanitise(),
        "command": Command(),
    }
)
"""Kind → its implementation."""

_SHOWN: tuple[ResultKind[Any], ...] = (*KINDS.values(), Logged(), Imported())

_BY_RESULT = {kind.result: kind for kind in _SHOWN}


def kind_of(result: ResultBase) -> ResultKind[Any]:
    """The kind whose result this is; a step that failed early may hold that of another kind."""
    return _BY_RESULT[type(result)]
