"""Times of one implementation of a case, and when they say little."""

from __future__ import annotations

import math
import statistics
from typing import Annotated, Self

from pydantic import Field, model_validator

from kbtool.model.base import AtLeastOne, Model
from kbtool.model.kinds.base import Microseconds

QUIET = 0.05
"""The share of the cores that others may use while a benchmark runs."""


_ROUNDING_US = 1e-4
"""Samples are kept to so many microseconds."""


class Timing(Model):
    """Samples of one implementation on one case."""

    samples_us: Annotated[list[Microseconds], Field(min_length=1)]
    """Microseconds a call, one entry a sample."""
    median_us: Microseconds
    """The median of the samples."""
    low_us: Microseconds
    """Their 25th percentile."""
    high_us: Microseconds
    """Their 75th percentile."""
    calls_per_sample: AtLeastOne
    """Calls that a sample averages over."""
    host_us: Microseconds | None = None
    """Median time of one call as the host sees it, launch and return included."""
    between_us: Microseconds | None = None
    """Median time of a plain kernel and the call behind it, both together, in a chain of such
    pairs; null on the CPU and in older records."""
    between_low_us: Microseconds | None = None
    """The 25th percentile of the same."""
    between_high_us: Microseconds | None = None
    """The 75th percentile."""

    @model_validator(mode="after")
    def _figures_follow_from_samples(self) -> Self:
        samples = self.samples_us if len(self.samples_us) > 1 else self.samples_us * 2
        quartiles = statistics.quantiles(samples, n=4, method="inclusive")
        names = ("low_us", "median_us", "high_us")
        for name, figure in zip(names, quartiles, strict=True):
            stated: float = getattr(self, name)
            if not math.isclose(stated, figure, rel_tol=1e-9, abs_tol=_ROUNDING_US):
                raise ValueError(f"{name} is {stated}, but the samples give {figure}")
        between = (self.between_low_us, self.between_us, self.between_high_us)
        known = [figure for figure in between if figure is not None]
        if known != sorted(known):
            raise ValueError(f"between_us and its quartiles are out of order: {known}")
        return self

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a share of the median."""
        return (self.high_us - self.low_us) / 2 / self.median_us

    @property
    def sample_ms(self) -> float:
        """How long a sample took, all its calls together, in the median."""
        return self.calls_per_sample * self.median_us / 1e3

    def us(self, between: bool) -> float | None:
        """``between_us`` or the median."""
        return self.between_us if between else self.median_us

    def quartiles(self, between: bool) -> tuple[float | None, float | None, float | None]:
        """The 25th percentile, the median and the 75th percentile of the same."""
        if between:
            return self.between_low_us, self.between_us, self.between_high_us
        return self.low_us, self.median_us, self.high_us


def noise_reason(others_busy: float | None, others_on_card: int | None) -> str | None:
    """Why times say little, or ``None``: others were busy on the same machine."""
    if others_on_card:
        return f"noisy: other processes on the card meanwhile: {others_on_card}"
    if others_busy is None or others_busy <= QUIET:
        return None
    return f"noisy: other processes used {others_busy:.0%} of the cores meanwhile"
