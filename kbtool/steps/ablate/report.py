"""The results of ablations, as text."""

from __future__ import annotations

from kbtool.model.kinds.ablate import AblateResult, AblationCase, AblationResult
from kbtool.model.words import many
from kbtool.steps.base import Table, not_reached


def headline(result: AblateResult) -> str:
    """What each technique gains, the most first, in one line."""
    measured = sorted(
        (one for one in result.ablations if one.gain), key=lambda one: -(one.gain or 0)
    )
    parts = [f"{one.ablation.id} {factor(one.gain)}" for one in measured]
    wrong = [f"{one.ablation.id} {verdict(one)}" for one in result.ablations if not one.gain]
    of = f"{len(measured)} of {many(len(result.ablations), 'ablation')} measured"
    line = f"{of}, time without ÷ time with: {', '.join(parts)}" if parts else of
    noise = f"; {result.noise}" if result.noise else ""
    return "; ".join([line, *wrong]) + noise + not_reached(result.not_reached)


def factor(gain: float | None) -> str:
    """``1.23×``, or a dash where nothing was measured."""
    return "–" if gain is None else f"{gain:.3g}×"


def verdict(one: AblationResult) -> str:
    """The verdict in a word or two."""
    return "noisy" if one.noise else one.verdict.replace("-", " ")


def spread(case: AblationCase) -> str:
    """The least and the largest ratio of the rounds."""
    return f"{min(case.ratios):.3g} to {max(case.ratios):.3g}"


def summary(one: AblationResult) -> str:
    """One ablation in a line, for progress."""
    outcome = f"{factor(one.gain)} without it" if one.gain else f"{verdict(one)}: {one.message}"
    return f"{one.ablation.id} ({one.pattern}): {outcome}"


def report(result: AblateResult) -> list[str | Table]:
    """Every case of every ablation."""
    rows = []
    for one in result.ablations:
        if not one.cases:
            rows.append([one.pattern, one.ablation.id, verdict(one), "", "", "", one.message or ""])
        for case in one.cases:
            name = case.case.partition("/")[2]
            rows.append(
                [one.pattern, one.ablation.id, case.effect, f"{case.gain:.3g}×", spread(case),
                 f"{_middle(case.with_us):.4g}", name]
            )  # fmt: skip
    metric = "of a call behind a plain kernel" if result.between else "of the call repeated"
    about = (
        f"time without the technique ÷ time with it, {metric}: above 1 the technique gains;"
        " none shown: under 1 %, or the rounds do not agree"
    )
    header = ["pattern", "without", "effect", "ratio", "in rounds", "with it (µs)", "case"]
    reasons: dict[str, list[str]] = {}
    for name, why in result.skipped.items():
        reasons.setdefault(why, []).append(name)
    skipped = [f"not tried, {why}: {', '.join(names)}" for why, names in reasons.items()]
    return [about, Table(header, rows, {3, 5}), *skipped, headline(result)]


def _middle(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]
