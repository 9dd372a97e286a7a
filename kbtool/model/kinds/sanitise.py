"""The step kind ``sanitise``: run the built library under compute-sanitizer."""

from __future__ import annotations

from typing import ClassVar, Literal

from kbtool.model.base import HowMany, Model
from kbtool.model.kinds.base import ResultBase, Sha256, StepBase


class SanitiseStep(StepBase):
    """Run the built artifact under tools of compute-sanitizer, with no caching allocator."""

    does: ClassVar[str] = "sanitises"
    judges: ClassVar[bool] = True

    kind: Literal["sanitise"]
    tools: str = "memcheck,racecheck,initcheck,synccheck"
    """The tools, separated by commas. Each runs, whatever the one before it found."""
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variants: str = "all"
    """Variants of the target to run, as for validate."""


class ToolReport(Model):
    """What one tool of compute-sanitizer reported."""

    tool: str
    options: list[str]
    """Its options."""
    excluded: list[str] = []
    """Of earlier runs: variants that it was not given, and parts of the names of kernels that it
    did not look at."""
    cases: list[str]
    """The cases that ran to their end under it, as `set/name`."""
    errors: HowMany | None
    """Errors; of racecheck, warnings too. None where the tool was stopped: it counts at its end."""
    reports: list[str] = []
    """Those that differ in what they say or in the kernel, the first of each, as printed."""


class SanitiseResult(ResultBase):
    """What compute-sanitizer reported."""

    type: Literal["sanitise"] = "sanitise"
    sha256: Sha256
    """The library that was run."""
    version: str
    """The version of compute-sanitizer."""
    tools: list[ToolReport]
    not_reached: HowMany = 0
    """Tools that did not come to their end; more than 0 only where the step did not either."""
