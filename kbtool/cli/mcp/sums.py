"""The tools that sum and compare: ``costs`` and ``compare``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.cli.mcp.answers import Answer, answer, page
from kbtool.cli.mcp.reading import Limit, Offset
from kbtool.cli.selection import Selection, select_of
from kbtool.ledger.rollup import By
from kbtool.model.base import Output
from kbtool.model.errors import NotFoundError, UsageError
from kbtool.model.words import many
from kbtool.store.tree import KnowledgeBase


class CostRow(Output):
    """Sums over the sessions of a row. Money is decimal text; null is unknown, never zero."""

    key: str
    label: str
    keys: dict[str, str]
    """Grouping → key."""
    minutes: float | None
    gpu: str | None
    ai: str | None
    engineer: str | None
    other: str | None
    total: str | None
    """What is known of the money."""
    sessions: int
    priced: int
    """Sessions of which an amount is known."""
    estimated: int
    """Sessions whose GPU is priced by the time of their runs, at the ledger's rate."""
    unknown: dict[str, int]
    """Column → in how many sessions of the row no record says it, or only a part."""


class CostsAnswer(Answer):
    """Where money and time went."""

    currency: str | None = None
    rows: list[CostRow] = []
    total: CostRow | None = None
    """Of all rows, those left out included; a session in several rows counts once."""
    undated: int = 0
    """Sessions that since and until left out because they have no date."""
    other_currencies: dict[str, int] = {}
    """Currency → cost lines that are not in the sums."""


def costs(
    base: KnowledgeBase,
    by: Annotated[
        list[By] | None, Field(description="What makes a row. Default: session.", min_length=1)
    ] = None,
    session: Annotated[
        list[str] | None, Field(description="Only these: an id, a label, A..B, A.. or ..B.")
    ] = None,
    since: Annotated[str | None, Field(description="YYYY-MM-DD")] = None,
    until: Annotated[str | None, Field(description="YYYY-MM-DD")] = None,
    currency: Annotated[str | None, Field(description="Of several, the one to sum.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> CostsAnswer:
    """Sum the money and the time of sessions, by session, day, week, month, kind, card, pattern,
    kernel, engineer or outcome. What no record states is unknown, never zero."""
    from kbtool.ledger import rollup, rollup_json
    from kbtool.ledger.estimated import costs_of

    groupings: tuple[By, ...] = tuple(by or ("session",))
    every = [*costs_of(base).sessions.values()]
    try:
        chosen, undated = select_of(base, every, Selection(tuple(session or ()), since, until))
    except NotFoundError as error:
        return answer(CostsAnswer, base, False, why=str(error))
    links = None
    if {"pattern", "kernel"} & set(groupings):
        links = rollup.links_of(chosen, [entry.record for entry in base.runs])
    table = rollup.roll_up(chosen, groupings, currency.upper() if currency else None, links)
    data = rollup_json.as_json(table)
    shown, rest = page(table.rows, limit, offset)
    why, outcome = None, None
    if not every:
        why = "there are no sessions"
    elif not chosen:
        outcome, why = "filtered_out", f"none of {many(len(every), 'session')} is in the selection"
    elif not shown:
        outcome, why = "filtered_out", f"there are {len(table.rows)} rows: give a smaller offset"
    elif table.total.total is None and table.total.minutes is None:
        outcome, why = "unknown", "no record of these sessions states money or time"
    elif table.total.unknown:
        gaps = ", ".join(f"{column} of {n}" for column, n in table.total.unknown.items())
        why = f"not in the sums, because no record gives it (sessions): {gaps}"
    return answer(
        CostsAnswer, base, bool(shown), why=why, outcome=outcome,  # type: ignore[arg-type]
        used=((one.id, base.sessions[one.id].path) for one in chosen),
        currency=table.currency, undated=undated, other_currencies=table.other_currencies,
        rows=[CostRow.model_validate(rollup_json.row_json(row, groupings)) for row in shown],
        total=CostRow.model_validate(data["total"]) if chosen else None, **rest,
    )  # fmt: skip


class ComparedCase(Output):
    """A case on both sides; times in µs."""

    case: str
    arm: str
    verdict: Literal["same", "faster", "slower", "unlike", "missing", "too_noisy"]
    """Of B. same: under 2 %. too_noisy: runs of the same code differ as much. unlike: the problem
    or the conditions differ."""
    a: float | None
    b: float | None
    ratio: float | None
    """B ÷ A: above 1, B is slower."""
    spread: float | None
    """The standard deviation of the ratio among runs of the same code, as a share."""
    why: str | None


class ComparedSide(Output):
    """What one side is."""

    name: str
    arm: str
    commit: str | None
    machine: str
    runs: list[str]


class CompareAnswer(Answer):
    """Whether B is slower or faster than A."""

    answer: str | None = None
    """The whole in a line."""
    a: ComparedSide | None = None
    b: ComparedSide | None = None
    notes: list[str] = []
    cases: list[ComparedCase] = []
    """What changed first, the largest change ahead."""
    one_sided: int = 0
    """Cases that only one side has; they are not listed."""


def compare(
    base: KnowledgeBase,
    a: Annotated[str, Field(description=
        "A run, commit, branch, card (H100), variant, peer, `best` or `last`; /NAME may follow.")],
    b: Annotated[str, Field(description="The other side, which the verdicts are about.")],
    metric: Annotated[
        Literal["between", "chain"] | None,
        Field(description="The time of one call behind another kernel, or of the call repeated."),
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> CompareAnswer:  # fmt: skip
    """Say whether B is slower or faster than A, case by case, from recorded runs. A difference
    counts if it is larger than between runs of the same code."""
    from kbtool.cli.compare import compared
    from kbtool.ledger.timings.verdict import as_json, told

    if not a.strip() or not b.strip():
        raise UsageError("name both sides: a run, commit, card, variant or peer, best or last")
    try:
        found = compared(base, (a, b), metric)
    except NotFoundError as error:
        return answer(CompareAnswer, base, False, why=str(error))
    data, rows = as_json(found), told(found.rows)
    shown, rest = page(rows, limit, offset)
    judged = found.of("same", "faster", "slower")
    why, outcome = None, None
    if not judged:
        outcome, why = "unknown", f"no case has a verdict: {found.answer}"
    elif not shown:
        outcome, why = "filtered_out", f"there are {len(rows)} cases: give a smaller offset"
    runs = [one.run for side in (found.a, found.b) for one in side.runs]
    return answer(
        CompareAnswer, base, bool(shown), why=why, outcome=outcome,  # type: ignore[arg-type]
        used=((run.id, _path(base, run.id)) for run in runs),
        answer=found.answer, a=ComparedSide.model_validate(data["a"]),
        b=ComparedSide.model_validate(data["b"]), notes=found.notes,
        one_sided=len(found.rows) - len(rows),
        cases=[
            ComparedCase.model_validate({
                name: value for name, value in row._asdict().items()
                if name in ComparedCase.model_fields
            }) for row in shown
        ], **rest,
    )  # fmt: skip


def _path(base: KnowledgeBase, run: str) -> str:
    entry = base.run(run)
    return "" if entry is None else entry.path
