"""The text of a report → the draft of a session. A function of the text alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from kbtool.logs import words
from kbtool.logs.blocks import MAX_LINE, Table, read
from kbtool.logs.bugs import read_bugs
from kbtool.logs.claims import read_claims
from kbtool.logs.clock import days
from kbtool.logs.commits import read_commits
from kbtool.logs.draft import Draft, Left, slug
from kbtool.logs.figures import habits
from kbtool.logs.head import read_costs, read_environment, read_head
from kbtool.logs.plans import read_plans
from kbtool.logs.reader import Reader
from kbtool.logs.sections import read_decisions, read_deliverables, read_lessons
from kbtool.logs.tables import block_measurements, read_tables


@dataclass(frozen=True)
class Drafted:
    """A draft, and what its record begins with."""

    draft: Draft
    title: str
    label: str | None
    """The session's own name, where the report states it."""
    day: date | None
    status: str
    lines: int
    """How many lines the report has."""
    text_lines: frozenset[int]
    """Those that hold text or a row of a table, without headings."""
    code_lines: frozenset[int]
    """Those that hold code, which is not read."""

    @property
    def uncited(self) -> set[int]:
        """Lines of text that nothing in the record cites."""
        return set(self.text_lines - self.draft.cited())


def draft_of(text: str, key: str = "log") -> Drafted:
    """Draft a session from a report.

    Args:
        text: the report: Markdown, or plain text.
        key: its name among the `sources` of the record.
    """
    blocks = read(text)
    halves = re.search(r"\d\s?[AaPp]\.?[Mm]\b", text) is not None
    reader = Reader(blocks, habits(text), halves, Draft(key))
    title = _title(reader)
    reader.label = _label(reader, title)
    reader.day = _day(reader, title)
    status = read_head(reader)
    read_environment(reader)
    read_costs(reader)
    read_tables(reader)
    block_measurements(reader)
    read_bugs(reader)
    read_commits(reader)
    read_plans(reader)
    read_decisions(reader)
    read_deliverables(reader)
    read_lessons(reader)
    read_claims(reader)
    for number in blocks.long:
        reader.draft.left.append(
            Left(number, "a long line", f"it has more than {MAX_LINE:,} characters and is not read")
        )
    if reader.style.comma is None:
        reader.draft.left.append(
            Left(1, "commas", "the log writes decimals with commas and with points: figures with a"
                 " comma are not placed")
        )  # fmt: skip
    if reader.style.dollar is None:
        reader.draft.left.append(
            Left(
                1, "$", "the log names dollars of several countries: amounts with $ are not placed"
            )
        )
    text_lines = {
        number
        for part in blocks.parts
        for number in (
            (row[0].line for row in part.rows if row)
            if isinstance(part, Table)
            else (part.number, *(line for _, line in part.breaks))
            if part.text and part.kind != "heading"
            else ()
        )
    }
    return Drafted(reader.draft, title, reader.label, reader.day, status, blocks.count,
                   frozenset(text_lines), frozenset(blocks.code))  # fmt: skip


def _title(reader: Reader) -> str:
    lines = reader.blocks.lines
    stated = next((line.value for line in lines if line.kind == "meta" and line.key == "title"), "")
    heading = next((line.text for line in lines if line.kind == "heading"), "")
    first = next((line.text for line in lines if line.text and line.kind != "meta"), "")
    return (stated or heading or first)[:1000].strip()


def _label(reader: Reader, title: str) -> str | None:
    named = [found[1] for found in words.SESSION.finditer(title)]
    for line in reader.blocks.lines:
        if (
            reader.is_header(line)
            and line.key
            and re.fullmatch(r"(?i)(?:session|label)(?: id| name| label| number)?", line.key)
        ):
            named.append(line.value)
    if not named:
        stated = [line for line in reader.blocks.lines if line.key.lower() == "session"
                  and line.kind != "heading" and _NAME.match(line.value)]  # fmt: skip
        if len(stated) == 1 and (name := _NAME.match(stated[0].value)):
            named, reader.own = [name[1]], stated[0].headings
    named = [name for name in dict.fromkeys(named) if slug(name, "") and len(name) <= 80]
    return named[0] if len(named) == 1 else None


_NAME = re.compile(r"(N(?:\+\d+[A-Za-z]?)?|[A-Z]{0,4}-?\d+[A-Za-z]?)(?=\s*(?:[(,–—-]|$))")


def _day(reader: Reader, title: str) -> date | None:
    """The day of the session: of its title, or of a line that says so; ``None`` if they differ."""
    found = {day for _, _, day in days(title)}
    keyed: dict[date, int] = {}
    others: dict[date, int] = {}
    for line in reader.blocks.lines:
        if not reader.is_header(line):
            continue
        if words.is_day(line.key):
            keyed |= dict.fromkeys(reader.days(line.value), line.number)
        others |= dict.fromkeys(reader.days(line.text), line.number)
    if not found and not keyed:
        keyed = others
    if len(found | keyed.keys()) == 1:
        return (found | keyed.keys()).pop()
    for day, number in keyed.items():
        reader.draft.left.append(
            Left(number, str(day), "one of several days: the session has none")
        )
    return None
