"""Refuse benchmark results that exceed the measured memory bandwidth.

Needs no torch: a benchmark uses it while it measures, and ``check`` on the record.
"""

from __future__ import annotations

from kbtool.model.kinds.benchmark import BenchmarkCase

CEILING_MARGIN = 1.10
"""The factor by which a result may exceed the measured bandwidth, since both are noisy."""


def refusal(case: BenchmarkCase, subject: str, ceiling: float) -> str | None:
    """Why the times of a case are refused, or ``None``.

    Args:
        case: the timed case.
        subject: the arm that runs the library.
        ceiling: the measured read bandwidth, 10⁹ bytes a second.
    """
    if subject not in case.arms:
        return f"the library was not timed: {case.absent.get(subject, 'no such implementation')}"
    if not case.rechecked:
        return "the result was wrong after timing"
    rate = case.bytes / (case.arms[subject].median_us * 1e3)
    if rate > CEILING_MARGIN * ceiling:
        return f"{rate:.1f} GB/s is over the measured read ceiling of {ceiling:.1f} GB/s"
    return None
