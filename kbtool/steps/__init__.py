"""The kinds of step that a recipe may have, one module a kind."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from kbtool.steps.base import StepKind
from kbtool.steps.benchmark import Benchmark
from kbtool.steps.build import Build
from kbtool.steps.command import Command
from kbtool.steps.environment import Environment
from kbtool.steps.minimise import Minimise
from kbtool.steps.mutants import Mutants
from kbtool.steps.profile import Profile
from kbtool.steps.sanitise import Sanitise
from kbtool.steps.tune import Tune
from kbtool.steps.validate import Validate

KINDS: MappingProxyType[str, StepKind[Any]] = MappingProxyType(
    {
        "environment": Environment(),
        "build": Build(),
        "validate": Validate(),
        "mutants": Mutants(),
        "benchmark": Benchmark(),
        "tune": Tune(),
        "minimise": Minimise(),
        "profile": Profile(),
        "sanitise": Sanitise(),
        "command": Command(),
    }
)
"""Kind → what runs it. A new kind is a model in ``kbtool.model.recipe`` and an entry here."""
