"""A tuning as text."""

from __future__ import annotations

from statistics import geometric_mean

from kbtool.model.kinds.tune import TuneResult
from kbtool.model.words import many


def headline(result: TuneResult) -> str:
    """The possible gain, in one line."""
    cases = many(len(result.cases), "case")
    if result.noise is not None:
        return f"{cases} timed; {result.noise}, so no {result.setting} is named the best"
    better = [case for case in result.cases if case.best != case.own]
    if not better:
        return f"{cases} timed; no other {result.setting} is faster"
    mean = geometric_mean(case.gain for case in result.cases)
    most = max(case.gain for case in better)
    return (
        f"another {result.setting} is faster in {len(better)} of {cases}: by {most:.2f}× at most,"
        f" {mean:.3f}× in the geometric mean over all {cases}"
    )


def report(result: TuneResult) -> list[str]:
    """The library's own choice and the best setting of each case, in lines."""
    return [
        f"{case.name}, {case.variant}: own {case.own} {case.times[case.own].median_us:.2f} µs,"
        f" best {case.best} {case.times[case.best].median_us:.2f} µs ({case.gain:.2f}×)"
        for case in result.cases
    ]
