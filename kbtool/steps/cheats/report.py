"""The results of cheats, as text."""

from __future__ import annotations

from kbtool.model.kinds.cheats import CheatResult, CheatsResult
from kbtool.model.words import many
from kbtool.steps.base import Table, not_reached


def headline(result: CheatsResult) -> str:
    """How many attacks were stopped, and how many honest variants accused, in one line."""
    attacks, caught = len(result.attacks), len(result.caught)
    honest = len(result.cheats) - attacks
    parts = [f"{caught} of {many(attacks, 'attack')} caught"]
    if result.survivors:
        names = ", ".join(one.cheat.id for one in result.survivors)
        parts.append(f"{len(result.survivors)} survived ({names})")
    parts.append(f"{len(result.accused)} of {many(honest, 'honest variant')} accused")
    unjudged = [one.cheat.id for one in result.cheats if one.verdict == "not-judged"]
    if unjudged:
        parts.append(f"{len(unjudged)} not judged ({', '.join(unjudged)})")
    if result.skipped:
        parts.append(f"{len(result.skipped)} not tried here")
    return "; ".join(parts) + not_reached(result.not_reached)


def verdict(one: CheatResult) -> str:
    """The verdict in a word or two."""
    if one.cheat.honest and one.verdict == "passed":
        return "honest"
    if one.cheat.honest and one.verdict == "caught":
        return "accused"
    return {"passed": "survived"}.get(one.verdict, one.verdict.replace("-", " "))


def report(result: CheatsResult) -> list[str | Table]:
    """Every edit, who stopped it, and what was said."""
    rows = [
        [one.cheat.id, verdict(one), one.step or "", _clipped(one.message or "")]
        for one in result.cheats
    ]
    about = (
        f"each edit alone in a run of its own: build, validate {result.case_sets},"
        f" time {result.benchmark}"
    )
    skipped = [f"{name} not tried: {why}" for name, why in result.skipped.items()]
    table = Table(["edit", "verdict", "stopped by", "what it says"], rows, set())
    return [about, table, *skipped, headline(result)]


def _clipped(text: str, longest: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
