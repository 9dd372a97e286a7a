"""Two sides case by case: what is faster, what is slower, and what nobody can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from kbtool.ledger.timings.conditions import PROBLEM, Timed, conditions, unlike
from kbtool.ledger.timings.spread import (
    LEAST,
    METRICS,
    Difference,
    Metric,
    Spread,
    Spreads,
    difference,
    limit,
    time_of,
    wrong,
)
from kbtool.model.kernel import case_label
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.words import listed, many, significant

Verdict = Literal["same", "faster", "slower", "unlike", "missing", "too_noisy"]
"""Of the second side. same: the difference is below 2 %; unlike: the problem or the conditions
differ; missing: a side has no right time; too_noisy: runs of the same code may differ as much."""

LEAST_PERCENT = round(math.expm1(LEAST) * 100)
"""The least difference that counts, in percent."""

UNKNOWN_SPREAD = "no two quiet runs of one commit on this machine tell how far runs lie apart"
ANOTHER = "another problem"
ONLY_IN_A = "only in A"
WITHIN = "runs of the same code may differ as much"


class Side(NamedTuple):
    """What is compared: an arm of one run, or of several that timed the same code."""

    name: str
    """What it was asked for as."""
    runs: list[Timed]
    """Newest first, under the same conditions."""
    arm: str | None = None
    """``None`` for the library by its own choice of variant."""
    tries: int = 1
    """How many commits it was chosen from."""
    left_out: int = 0
    """Runs that were not looked at, since they solve another problem than the other side's."""

    @property
    def newest(self) -> Timed:
        """Its newest run."""
        return self.runs[0]

    def arm_of(self, result: BenchmarkResult) -> str:
        """Its arm in a benchmark."""
        return self.arm or result.subject

    @property
    def label(self) -> str:
        """Its name, arm, machine and runs."""
        arm = self.arm_of(self.newest.results[-1])
        commit = (self.newest.run.repository.commit or "")[:8] or "no commit"
        ids = listed(one.run.id for one in self.runs[:3])
        more = f" and {len(self.runs) - 3} more" if len(self.runs) > 3 else ""
        return f"{arm} at {commit}, {self.newest.machine} ({ids}{more})"


class Entry(NamedTuple):
    """A case as one run of a side timed it."""

    run: Timed
    result: BenchmarkResult
    case: BenchmarkCase
    arm: str


class Row(NamedTuple):
    """A case on both sides; times in µs."""

    case: str
    """Its name in the records, after that of its set."""
    label: str
    """The same with every field that tells cases apart, for readers."""
    arm: str
    metric: Metric | None
    a: float | None
    b: float | None
    ratio: float | None
    """B ÷ A: above 1, B is slower. ``None`` where a side has none, or noise forbids it."""
    spread: float | None
    """The standard deviation of the ratio among runs of the same code, as a share."""
    verdict: Verdict
    why: str | None = None
    is_wrong: bool = False
    """Whether a run of B was wrong or refused in this case, and none of A."""

    @property
    def percent(self) -> float:
        """By how much B is slower or faster."""
        return abs((self.ratio or 1.0) - 1) * 100


class Comparison(NamedTuple):
    """Two sides held against one another."""

    a: Side
    b: Side
    rows: list[Row]
    notes: list[str]

    def of(self, *verdicts: Verdict) -> list[Row]:
        """The rows with one of these verdicts."""
        return [row for row in self.rows if row.verdict in verdicts]

    @property
    def answer(self) -> str:
        """The whole in a line; two implementations are named beside their letters."""
        a, b = (side.arm_of(side.newest.results[-1]) for side in (self.a, self.b))
        return answer(self.rows) if a == b else answer(self.rows, f"B ({b})", f" than A ({a})")

    def is_past(self, percent: float) -> bool:
        """Whether B is slower by more than so many percent, or wrong, in any case, or nothing was
        compared."""
        told = self.of("same", "faster", "slower")
        if not told or any(row.is_wrong for row in self.rows):
            return True
        return any(r.verdict == "slower" and r.percent > percent for r in told)


def answer(rows: Sequence[Row], second: str = "B", than: str = "") -> str:
    """What became of the cases, in a line: what changed, then what nobody can tell.

    Args:
        rows: the cases.
        second: what the second side is called, which the verdicts are about.
        than: what follows the first verdict: the first side, where it is named.
    """

    def of(verdict: Verdict) -> list[Row]:
        return [row for row in rows if row.verdict == verdict]

    judged = len(of("same")) + len(of("faster")) + len(of("slower"))
    told = judged + len(of("too_noisy"))
    changed: tuple[Verdict, ...] = ("slower", "faster")
    parts: list[str] = []
    for verdict in changed:
        if found := of(verdict):
            said = verdict if parts else f"{second} is {verdict}{than}"
            parts.append(f"{said} in {len(found)} of {many(told, 'case')}, by {_range(found)}")
    if not parts and judged:
        of_all = f" of {told}" if judged < told else ""
        parts = [f"no change in {judged}{of_all} cases" if told > 1 else "no change in 1 case"]
    if not parts:
        parts = ["no verdict"]
    parts += [f"{len(left)} {words}" for verdict, words in _UNTOLD.items() if (left := of(verdict))]
    return "; ".join(parts)


_UNTOLD: dict[Verdict, str] = {
    "too_noisy": "too noisy to tell", "unlike": "not comparable", "missing": "missing",
}  # fmt: skip


def _range(rows: Iterable[Row]) -> str:
    percents = sorted(row.percent for row in rows)
    ends = [f"{end:.1f}" if end < 10 else f"{end:,.0f}" for end in (percents[0], percents[-1])]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def compare(a: Side, b: Side, spreads: Spreads, metric: Metric | None = None) -> Comparison:
    """Hold two sides against one another.

    Args:
        a: the first side.
        b: the second, which the verdicts are about.
        spreads: how far runs of the same code lie apart.
        metric: what to compare by. Default: between plain kernels, where both sides have it.
    """
    differ = unlike(a.newest, b.newest)
    pairs = [*_pairs(entries_of(a), entries_of(b))]
    metrics = METRICS if metric is None else (metric,)
    drafts = [_draft(one, other, differ, spreads, metrics) for one, other in pairs]
    chances = [draft.chance for _, draft in drafts if draft]
    most = limit(chances, a.tries * b.tries)
    rows = [_judged(row, draft, most) if draft else row for row, draft in drafts]
    return Comparison(a, b, rows, [*_notes(a, b, differ)])


def _judged(row: Row, draft: Difference, most: float) -> Row:
    if draft.chance <= most:
        return row._replace(verdict="slower" if draft.value > 0 else "faster")
    if draft.is_small:
        return row._replace(verdict="same")
    return row._replace(verdict="too_noisy", why=WITHIN)


Entries = dict[tuple[str | None, str, int], list[Entry]]
"""Case set, case and how many of that name stand before it in its run → how each run timed it."""


def entries_of(side: Side) -> Entries:
    """How the runs of a side timed each case, newest first."""
    found: Entries = {}
    for one in side.runs:
        seen: dict[tuple[str | None, str], int] = {}
        for result in one.results:
            arm = side.arm_of(result)
            for case in result.cases:
                if arm in case.arms:
                    name = case.case_set, case.name
                    seen[name] = seen.get(name, -1) + 1
                    entry = Entry(one, result, case, arm)
                    found.setdefault((*name, seen[name]), []).append(entry)
    return found


def _pairs(first: Entries, second: Entries) -> Iterator[tuple[list[Entry], list[Entry]]]:
    """The entries of each case on both sides. Older records do not name the case set."""
    rest = dict(second)
    for key, entries in first.items():
        case_set, *name = key
        match = next(
            (
                other
                for other in rest
                if [*other[1:]] == name and (other[0] == case_set or not (other[0] and case_set))
            ),
            None,
        )
        yield entries, rest.pop(match) if match else []
    for entries in rest.values():
        yield [], entries


def _draft(
    first: list[Entry],
    second: list[Entry],
    differ: list[str],
    spreads: Spreads,
    metrics: Sequence[Metric],
) -> tuple[Row, Difference | None]:
    """The row of a case, and the difference that its verdict depends on, if one can be given."""
    known = (first or second)[0]
    names = [entries[0].arm for entries in (first, second) if entries]
    named = [(e[0].case.case_set, e[0].case.name) for e in (first, second) if e]
    case_set = next((name for name, _ in named if name), None)
    set_name = f"{case_set}/" if case_set else ""
    row = Row(
        f"{set_name}{known.case.name}", f"{set_name}{case_label(known.case)}",
        " → ".join(dict.fromkeys(names)), None, None, None, None, None, "missing",
    )  # fmt: skip
    if not first or not second:
        return row._replace(why=ONLY_IN_A if first else "only in B"), None
    is_wrong = [any(wrong(each.case, each.arm) for each in side) for side in (first, second)]
    row = row._replace(is_wrong=is_wrong == [False, True])
    fields = _unlike_fields(first[0].case, second[0].case)
    if fields:
        return row._replace(verdict="unlike", why=f"different {', '.join(fields)}"), None
    for metric in metrics:
        times = [_times(entries, metric) for entries in (first, second)]
        if all(times):
            break
    else:
        reasons = [wrong(e[0].case, e[0].arm) for e in (first, second)]
        return row._replace(why=next(filter(None, reasons), "not timed so on both sides")), None
    a, b = (math.exp(fmean(side)) for side in times)
    row = row._replace(metric=metric, a=a, b=b, ratio=b / a)
    noise = next(filter(None, (each.result.noise for each in (*first, *second))), None)
    if differ:
        return row._replace(verdict="unlike", why=_differs(differ)), None
    if noise:
        return row._replace(verdict="too_noisy", ratio=None, why=noise), None
    known_spreads = [_spread(spreads, entries[0], metric) for entries in (first, second)]
    one, other = known_spreads
    if one is None or other is None:
        return row._replace(verdict="too_noisy", why=UNKNOWN_SPREAD), None
    draft = difference((times[0], one), (times[1], other))
    return row._replace(spread=math.sqrt(draft.variance)), draft


def _times(entries: Iterable[Entry], metric: Metric) -> list[float]:
    found = (time_of(each.case, each.arm, metric) for each in entries)
    return [time for time in found if time is not None]


def _spread(spreads: Spreads, entry: Entry, metric: Metric) -> Spread | None:
    return spreads.of(entry.run, entry.result, entry.case, entry.arm, metric)


def _unlike_fields(one: BenchmarkCase, other: BenchmarkCase) -> list[str]:
    """The fields that both records have and that differ: older ones have fewer."""
    return [
        name for name, value in one.case.items() if name in other.case and value != other.case[name]
    ]


def _differs(names: Sequence[str]) -> str:
    rest = [name for name in names if name != PROBLEM]
    parts = [ANOTHER] if len(rest) < len(names) else []
    if rest:
        parts.append(f"different {listed(list(map(_in_line, rest)))}")
    return "; ".join(parts)


def _in_line(name: str) -> str:
    """The name of a condition inside a sentence: SM clock and CUDA stay as they are."""
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def _notes(a: Side, b: Side, differ: Sequence[str]) -> Iterator[str]:
    values = [{c.name: c.value for c in conditions(side.newest)} for side in (a, b)]
    for name in differ:
        one, other = (_short(side.get(name, "–")) for side in values)
        why = ANOTHER if name == PROBLEM else f"different {_in_line(name)}"
        yield f"nothing is ranked, {why}: A {one}; B {other}"
    for letter, side in (("A", a), ("B", b)):
        if side.newest.commit is None:
            yield f"{letter} was timed with changes that no commit has, or its commit is unknown"
        if side.tries > 1:
            yield f"{letter} is the fastest of {many(side.tries, 'commit')}, which is allowed for"
        if side.left_out:
            yield f"{letter}: {many(side.left_out, 'run')} left out, {ANOTHER}"


def _short(value: str) -> str:
    return value if len(value) <= _MOST else f"{value[:_MOST]}…"


_MOST = 60
"""Characters of a condition in a line; a protocol has a paragraph."""


def as_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison for programs; nothing is rounded."""
    return {
        "answer": comparison.answer,
        "a": _side_json(comparison.a),
        "b": _side_json(comparison.b),
        "notes": comparison.notes,
        "cases": [row._asdict() for row in comparison.rows],
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "arm": side.arm_of(side.newest.results[-1]),
        "commit": side.newest.run.repository.commit,
        "machine": side.newest.machine,
        "runs": [one.run.id for one in side.runs],
    }


COLUMNS = ("Case", "A (µs)", "B (µs)", "B ÷ A", "±", "B is", "")
"""What the cells of a row are."""

_ORDER: dict[Verdict, int] = {
    "slower": 0, "faster": 1, "too_noisy": 2, "same": 3, "unlike": 4, "missing": 5,
}  # fmt: skip


def told(rows: Iterable[Row]) -> list[Row]:
    """The rows to show: what changed first, the largest change ahead. Cases that one side alone
    has are left out."""
    shown = [row for row in rows if row.a is not None or row.verdict != "missing"]
    return sorted(shown, key=lambda row: (_ORDER[row.verdict], -row.percent))


def cells(row: Row) -> list[str]:
    """A row as text; the spread is the standard deviation of the ratio among runs of one code."""
    figures = [significant(figure) if figure else "–" for figure in (row.a, row.b, row.ratio)]
    spread = "–" if row.spread is None else f"{row.spread:.1%}"
    why = row.why if row.why and row.why != WITHIN else ""
    return [row.label, *figures, spread, row.verdict.replace("_", " "), why]


def as_markdown(comparison: Comparison) -> str:
    """The answer, what is compared, and a table."""
    lines = [f"**{comparison.answer}**", "", f"- A: {comparison.a.label}"]
    lines += [f"- B: {comparison.b.label}", *(f"- {note}" for note in comparison.notes), ""]
    rows = [list(COLUMNS), ["---", *["---:"] * 4, "---", "---"]]
    rows += [cells(row) for row in told(comparison.rows)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
