"""What the techniques of patterns gain, as ablations measured it. Pure functions of run records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kbtool.model.kinds.ablate import AblateResult, AblationResult
from kbtool.model.run import Run


def machine_of(run: Run, target: str) -> str:
    """The card of a run, or of a target for processors its processor."""
    return (target != "cpu" and run.machine.card) or run.machine.cpu


@dataclass(frozen=True)
class Worth:
    """One ablation in one run."""

    run: Run
    result: AblateResult
    one: AblationResult

    @property
    def machine(self) -> str:
        """The card that it ran on, or the processor."""
        return machine_of(self.run, self.result.target)

    @property
    def is_quiet(self) -> bool:
        """Whether it was measured, and no other process disturbed it."""
        return self.one.verdict == "measured" and not self.one.noise

    @property
    def gains(self) -> int:
        """In how many cases each round shows a gain."""
        return sum(case.effect == "gains" for case in self.one.cases)

    @property
    def verdict(self) -> str:
        """What the run says of the technique, in a few words."""
        if self.one.verdict != "measured":
            return self.one.verdict.replace("-", " ")
        if self.one.noise:
            return "noisy"
        if self.gains:
            return "gains"
        costs = all(case.effect == "costs" for case in self.one.cases)
        return "costs" if costs else "none shown"


def worths(runs: Iterable[Run]) -> dict[str, list[Worth]]:
    """Pattern → what its ablations measured, the newest run first."""
    found: dict[str, list[Worth]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.started, reverse=True):
        for step in run.steps:
            if isinstance(step.result, AblateResult):
                for one in step.result.ablations:
                    found[one.pattern].append(Worth(run, step.result, one))
    return found


def newest(of_pattern: Iterable[Worth]) -> list[Worth]:
    """The newest quiet measurement of each ablation on each machine, in the order given.

    Args:
        of_pattern: what :func:`worths` gives of a pattern, the newest first.
    """
    first: dict[tuple[str, str], Worth] = {}
    for worth in of_pattern:
        if worth.is_quiet:
            first.setdefault((worth.one.ablation.id, worth.machine), worth)
    return list(first.values())


def gained_before(of_pattern: Iterable[Worth], worth: Worth) -> Worth | None:
    """If ``worth`` shows no gain, the last measurement before it that did: of the same ablation, on
    the same machine, in cases that ``worth`` has too.

    Args:
        of_pattern: what :func:`worths` gives of a pattern, the newest first.
        worth: a measurement of it.
    """
    if worth.gains or not worth.is_quiet:
        return None
    own = {case.case for case in worth.one.cases}
    return next(
        (
            other
            for other in of_pattern
            if other.run.started < worth.run.started
            and (other.one.ablation.id, other.machine) == (worth.one.ablation.id, worth.machine)
            and other.is_quiet
            and own & {case.case for case in other.one.cases if case.effect == "gains"}
        ),
        None,
    )


def in_short(of_pattern: Iterable[Worth]) -> str:
    """The newest gain on each machine: ``1.3× NVIDIA H100 80GB HBM3``; empty if none is known.

    Of several ablations the one that gains most is given.

    Args:
        of_pattern: what :func:`worths` gives of a pattern, the newest first.
    """
    of_pattern = list(of_pattern)
    best: dict[str, Worth] = {}
    for worth in newest(of_pattern):
        known = best.get(worth.machine)
        if known is None or (worth.one.gain or 0) > (known.one.gain or 0):
            best[worth.machine] = worth
    return ", ".join(
        f"{worth.one.gain:.2f}× {machine}"
        if worth.gains
        else f"{'none any more' if gained_before(of_pattern, worth) else worth.verdict} {machine}"
        for machine, worth in best.items()
    )


def worth_json(worth: Worth) -> dict[str, Any]:
    """One measurement for programs; ratios to four digits."""
    return {
        "ablation": worth.one.ablation.id,
        "machine": worth.machine,
        "effect": worth.verdict,
        "ratio": None if worth.one.gain is None else float(f"{worth.one.gain:.4g}"),
        "between": worth.result.between,
        "cases_that_gain": worth.gains,
        "cases": {case.case: float(f"{case.gain:.4g}") for case in worth.one.cases},
        "run": worth.run.id,
    }
