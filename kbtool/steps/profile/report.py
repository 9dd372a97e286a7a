"""A profile as text."""

from __future__ import annotations

from kbtool.model.kinds.profile import ProfileResult


def report(result: ProfileResult) -> list[str]:
    """The bottleneck of each case, in lines."""
    lines = [f"{result.arm}, {result.profiler}"]
    for case in result.cases:
        lines.append(f"{case.name}: {case.verdict}")
        lines += [f"  {reason}" for reason in case.reasons]
    return lines
