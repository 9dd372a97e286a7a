"""How much of a report ``kbtool import`` places: 62 reports in other habits, and five logs.

    python -m benchmarks.bench_import [FOLDER] [--list]

The reports are in ``benchmarks/import/``, each with what a reader finds in it: ``developed`` has
those that the rules were corrected by, ``kept`` eight that nobody read a miss of: ADR 0050 records
their score, and no rule may be made for them. ``--list`` lists the misses of the first only. Right:
figures of the draft that the reader found on that line, with that value and unit, and in that role
where a record has one place for it.

FOLDER holds five logs, which are compared with the records transcribed by hand, under the names
that those cite. They are not part of this repository; without the folder, or without a log, it
says so and skips. Recall: of the figures of a committed record that cite its log, those that the
draft has with the same value and unit at a line that the record cites. Agreement: of the figures
of the draft, those that the record has at such a line.
Placed: figures of the draft that are no claims and have one place in a record; alike: those that
the record has in the same role. ``--list`` prints the others of both, to be judged by hand.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kbtool.logs.take_in import take_in
from kbtool.model.base import Cited, Instant, Model, Quantity, cited_lines
from kbtool.model.claim import Claim
from kbtool.model.cost import CostLine
from kbtool.model.measurement import Measurement
from kbtool.model.session import Session
from kbtool.model.units import same_kind, unit_of
from kbtool.store.document import parse
from kbtool.store.load import validate
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[1]
DEVELOPED_ON = ("2025-10-12-n7a", "2025-10-13-n4")
KEPT_APART = ("2025-10-12-n2", "2025-10-12-n7d", "2025-10-12-n7g")
"""Looked at only after the rules were written."""


HALVES = ("developed", "kept")
REPORTS = Path(__file__).parent / "import"


class Figure(NamedTuple):
    """A figure of a record that cites a log."""

    path: str
    text: str
    unit: str
    lines: frozenset[int]


def figures_of(session: Session, log: str) -> Iterator[Figure]:
    """The figures of a record that cite ``log``."""
    for key, value in session.__dict__.items():
        if isinstance(value, (Quantity, Instant)):
            lines = _lines(session.cites.get(key), log)
            if lines:
                yield _figure(key, value, lines)
    for name in ("environment", "repository"):
        item = getattr(session, name)
        if item is not None:
            yield from _below(item, name, log, frozenset())
    for name in ("costs", "steps", "measurements", "bugs", "fixes", "commits", "decisions", "plans",
                 "deliverables", "claims", "evidence"):  # fmt: skip
        for item in getattr(session, name):
            own = getattr(item, "id", None) or getattr(item, "kind", None) or "?"
            yield from _below(item, f"{name}.{own}", log, frozenset())


def _below(item: Any, path: str, log: str, lines: frozenset[int]) -> Iterator[Figure]:
    if isinstance(item, Cited) and item.source is not None:
        lines = _lines(item.source, log)
    units: dict[str, str] = {}
    if isinstance(item, Measurement):
        units = {name: column.unit for name, column in item.columns.items()}
        for row in item.rows:
            for name, number in row.values.items():
                if number is not None and lines:
                    stated = str(number).lower()
                    yield Figure(f"{path}.{row.id}.{name}", stated, units[name], lines)
        return
    for key, value in item.__dict__.items():
        if key in {"of", "mutants", "columns"} and isinstance(item, (Claim, Model)):
            continue
        for name, part in _parts(key, value):
            if isinstance(part, (Quantity, Instant)) and lines:
                yield _figure(f"{path}.{name}", part, lines)
            elif isinstance(part, Decimal) and lines:
                unit = item.currency if isinstance(item, CostLine) else ""
                yield Figure(f"{path}.{name}", str(part).lower(), unit, lines)
            elif isinstance(part, int) and not isinstance(part, bool) and lines:
                yield Figure(f"{path}.{name}", str(part), "", lines)
            elif isinstance(part, Model):
                yield from _below(part, f"{path}.{name}", log, lines)


def _parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield f"{key}.{name}", part
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield f"{key}.{getattr(part, 'id', at)}", part
    else:
        yield key, value


def _figure(path: str, value: Quantity | Instant, lines: frozenset[int]) -> Figure:
    if isinstance(value, Instant):
        return Figure(path, value.at.isoformat(), "time of day", lines)
    head = value.text.removesuffix(value.unit).strip() if value.unit else value.text
    return Figure(path, head, value.unit, lines)


def _lines(cite: str | None, log: str) -> frozenset[int]:
    if cite is None or cite.partition(":")[0] != log:
        return frozenset()
    return frozenset(n for first, last in cited_lines(cite) for n in range(first, last + 1))


def same(one: Figure, other: Figure) -> bool:
    """Whether two figures have one value and one unit, and share a line."""
    if not one.lines & other.lines:
        return False
    if "time of day" in {one.unit, other.unit}:
        return one.text == other.text
    x, y = Quantity(f"{one.text} {one.unit}"), Quantity(f"{other.text} {other.unit}")
    a, b = unit_of(x.unit), unit_of(y.unit)
    if not same_kind(a, b) or x.relation != y.relation:
        return False

    def value(number: Decimal | None, unit: Any) -> Fraction | None:
        return None if number is None else Fraction(number) * unit.scale

    return value(x.low, a) == value(y.low, b) and value(x.high, a) == value(y.high, b)


_ROLES = re.compile(
    r"(started|ended|updated|duration|budget_time|budget_money)\Z|(costs)\.|(steps)\..*\.(target|actual)\Z"
    r"|commits\..*\.(insertions|deletions|files)\Z|(measurements)\.|(plans)\.|(environment)\."
)


def role(session: Session, figure: Figure) -> tuple[str, ...] | None:
    """What a figure is of, where records have one place for that; a claim may be of anything."""
    found = _ROLES.match(figure.path)
    if found is None:
        return None
    if found[2]:
        _, own, *rest = figure.path.split(".")
        kind = next(line.kind for line in session.costs if own in {line.id, line.kind})
        return "costs", kind, *rest
    return tuple(part for part in found.groups() if part)


class Score(NamedTuple):
    """How a draft compares with what a reader found."""

    stated: int
    missed: list[Figure]
    drafted: int
    wrong: list[Figure]


def score(report: Path, truths: list[list[Any]]) -> Score:
    """Compare the draft of a report with what a reader found in it."""
    draft = _draft(report)
    made = list(figures_of(draft, next(iter(draft.sources))))
    wanted = [(_truth(line, text), ".".join(of)) for line, text, *of in truths]

    def right(one: Figure) -> bool:
        its = ".".join(role(draft, one) or ())
        return any(
            same(one, truth) and its in {"", "measurements" if of in {"", "may"} else of}
            for truth, of in wanted
        )

    asked = [truth for truth, of in wanted if of != "may"]
    missed = [truth for truth in asked if not any(same(truth, one) for one in made)]
    return Score(len(asked), missed, len(made), [one for one in made if not right(one)])


def _truth(line: int, text: str) -> Figure:
    if re.match(r"\d{4}-\d\d-\d\dT", text):
        return _figure("", Instant(text), frozenset((line,)))
    return _figure("", Quantity(text), frozenset((line,)))


def reports(half: str) -> dict[Path, list[list[Any]]]:
    """The reports of ``developed`` or ``kept``, and what a reader finds in each."""
    truths = yaml.safe_load((REPORTS / half / "truths.yaml").read_text(encoding="utf-8"))
    return {REPORTS / half / name: found for name, found in truths.items()}


def _reports(*, listing: bool) -> None:
    print(f"{'report':22} {'figures':>8} {'found':>6} {'recall':>7} {'drafted':>8} {'right':>6}")
    for half in HALVES:
        total = [0] * 4
        for report, truths in reports(half).items():
            found = score(report, truths)
            counts = (found.stated, found.stated - len(found.missed),
                      found.drafted, found.drafted - len(found.wrong))  # fmt: skip
            total = [a + b for a, b in zip(total, counts, strict=True)]
            if half == "developed":
                _print_report(report.name, counts)
                if listing:
                    _list("not in the draft", found.missed, report)
                    _list("wrong", found.wrong, report)
        _print_report(half, tuple(total))


def _print_report(name: str, counts: tuple[int, ...]) -> None:
    stated, found, drafted, right = counts
    print(f"{name:22} {stated:8} {found:6} {found / max(stated, 1):7.1%}"
          f" {drafted:8} {right:6} {right / max(drafted, 1):7.1%}")  # fmt: skip


def load(text: bytes) -> Session:
    record = validate(parse(text, "session.yaml"), Session)
    if isinstance(record, list):
        raise SystemExit("\n".join(map(str, record)))
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--list", action="store_true", help="the figures that do not agree")
    parser.add_argument("--only", action="append", help="the id of a record")
    options = parser.parse_args()
    _reports(listing=options.list)
    if options.folder is None or not options.folder.is_dir():
        print("skipped: give the folder of the logs; they are not part of this repository")
        return
    total = [0] * 6
    print(
        f"{'record':18} {'figures':>8} {'found':>6} {'recall':>7} {'drafted':>8} {'agree':>6}"
        f" {'':>7} {'placed':>7} {'alike':>6}"
    )
    for id_ in options.only or (*DEVELOPED_ON, *KEPT_APART):
        committed = load((ROOT / "sessions" / id_ / "session.yaml").read_bytes())
        key = f"{id_.rpartition('-')[2]}-log"
        log = options.folder / committed.sources[key].file
        if not log.is_file():
            print(f"{id_}: skipped, {log.name} is not there")
            continue
        draft = _draft(log)
        wanted, made = (
            list(figures_of(committed, key)),
            list(figures_of(draft, next(iter(draft.sources)))),
        )
        missed = [one for one in wanted if not any(same(one, other) for other in made)]
        extra = [one for one in made if not any(same(one, other) for other in wanted)]
        placed = [(one, role(draft, one)) for one in made]
        placed = [(one, its) for one, its in placed if its is not None]
        odd = [
            one
            for one, its in placed
            if not any(same(one, other) and role(committed, other) == its for other in wanted)
        ]
        counts = (len(wanted), len(wanted) - len(missed), len(made), len(made) - len(extra),
                  len(placed), len(placed) - len(odd))  # fmt: skip
        total = [a + b for a, b in zip(total, counts, strict=True)]
        _print(id_, counts)
        if options.list:
            _list("not in the draft", missed, log)
            _list("not in the record", extra, log)
            _list("of another role in the record", odd, log)
    _print("all", tuple(total))


def _draft(log: Path) -> Session:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("sessions", "patterns"):
            (Path(folder) / name).mkdir()
        return load(take_in(KnowledgeBase(Path(folder)), log, dry_run=True).text.encode())


def _print(name: str, counts: tuple[int, ...]) -> None:
    wanted, found, made, agree, placed, alike = counts
    print(f"{name:18} {wanted:8} {found:6} {found / max(wanted, 1):7.1%}"
          f" {made:8} {agree:6} {agree / max(made, 1):7.1%}"
          f" {placed:7} {alike:6}")  # fmt: skip


def _list(title: str, figures: list[Figure], log: Path) -> None:
    lines = log.read_text(encoding="utf-8").split("\n")
    print(f"  {title}:")
    for one in figures:
        first = min(one.lines)
        spans = re.sub(r"[\[\]]", "", str(sorted(one.lines)))[:40]
        print(
            f"    {one.text} {one.unit}".ljust(28),
            one.path[:60].ljust(62),
            f"{spans}: {lines[first - 1][:70]}",
        )


if __name__ == "__main__":
    main()
