"""The step kind ``profile``: Nsight Compute metrics of the validated library."""

from __future__ import annotations

from typing import ClassVar, Literal

from kbtool.model.base import HowMany, Model, Name
from kbtool.model.kernel import Case
from kbtool.model.kinds.base import Microseconds, ResultBase, Sha256, StepBase


class ProfileStep(StepBase):
    """Nsight Compute metrics of the validated artifact, down to a named bottleneck."""

    does: ClassVar[str] = "profiles"
    measures: ClassVar[bool] = True

    kind: Literal["profile"]
    case_set: str
    """A case set of the manifest."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the set."""
    arm: str = ""
    """A variant, or another implementation of the harness; empty takes the library with its own
    choice."""


class KernelLaunch(Model):
    """One launch of a kernel as Nsight Compute measured it."""

    kernel: Name
    """Its name."""
    grid: Name
    """Blocks, `(x, y, z)`."""
    block: Name
    """Threads a block, `(x, y, z)`."""
    metrics: dict[str, float | None]
    """Nsight Compute's name of a metric → value in base units; null where it had none."""


Bottleneck = Literal["bytes", "arithmetic", "latency", "occupancy", "launch", "unknown"]


class ProfileCase(Model):
    """One call of one implementation on one case, profiled."""

    name: Name
    case: Case
    launches: list[KernelLaunch]
    """Every kernel that the call launched, in order."""
    bottleneck: Bottleneck
    """The first thing to improve; unknown if the metrics do not show it."""
    verdict: str
    """It in a line, as the symptoms of patterns are matched against."""
    reasons: list[str]
    """The figures that say so, each beside its threshold and where that comes from."""


class ProfileResult(ResultBase):
    """What a profile step measured."""

    type: Literal["profile"] = "profile"
    sha256: Sha256
    """The library that was profiled."""
    arm: str
    """The implementation of the harness that was called."""
    variant: str | None = None
    """The variant that it is; null for the kernel's own choice and for implementations of
    others."""
    profiler: str
    """The profiler and its version."""
    launch_us: Microseconds | None = None
    """Time from one launch of an empty kernel to the next, eagerly; null where not measured."""
    protocol: str
    """How it was measured, in words."""
    cases: list[ProfileCase]
    not_reached: HowMany = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""

    @property
    def measured(self) -> tuple[str, list[str | None]]:
        """The library and every variant of it that was run."""
        return self.sha256, [self.variant]
