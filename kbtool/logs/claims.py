"""Figures that have no other place, and numbers that have none at all."""

from __future__ import annotations

import re

from kbtool.logs.blocks import Cell, Line, Table, sentences
from kbtool.logs.clock import days
from kbtool.logs.draft import Left, slug
from kbtool.logs.figures import Stated, is_name
from kbtool.logs.grammar import NOUNS
from kbtool.logs.reader import Reader
from kbtool.logs.tables import bare, unit_beside, unit_of_row, units_beside


def claim(reader: Reader, part: Line | Cell, one: Stated, says: str, line: int) -> None:
    """Keep a figure as a claim: as stated, in the words of the log."""
    says = says.strip() or one.quantity
    reader.place(part, one)
    if (line, says, one.quantity) in reader.claimed:
        return
    reader.claimed.add((line, says, one.quantity))
    data = {"id": slug(says, "claim"), "says": says, "stated": one.quantity}
    reader.draft.add("claims", data, {line})


def read_claims(reader: Reader) -> None:
    """Every figure that has no place yet is a claim; every number without a unit is listed."""
    told = {left.line for left in reader.draft.left}
    for part in reader.blocks.parts:
        if isinstance(part, Table):
            _claims_of(reader, part)
            for row in part.rows:
                for cell in row:
                    _bare_numbers(reader, cell, cell.line, told)
            continue
        spans = list(sentences(part))
        for one in reader.free(part):
            start, end = next((s for s in spans if s[0] <= one.start < s[1]), (0, len(part.text)))
            says = part.text[start:end]
            if part.kind == "item" and part.lead and len(part.lead) < 80:
                says = f"{part.lead.rstrip(': ')}: {says}"
            claim(reader, part, one, says, part.line_of(one.start))
        _bare_numbers(reader, part, part.number, told)


def _claims_of(reader: Reader, table: Table) -> None:
    """The figures of a table that have no place: claims that name row and column."""
    beside = units_beside(table)
    for row in table.rows:
        first = next((cell for cell in row if re.search(r"\w", cell.text)), None)
        label = first.text if first else ""
        unit = unit_of_row(label)
        if beside and len(row) == len(table.header):
            unit = unit_beside(row[beside[0]].text) or unit
        if first and not reader.figures(first) and any(map(reader.figures, row)):
            reader.whole.add(id(first))  # it is in each of the claims
        for at, cell in enumerate(row):
            title = table.header[at] if len(row) == len(table.header) else ""
            parts = (label if cell.text != label else "", title, cell.text)
            says = ": ".join(part for part in parts if part)
            has_unit = at and unit and (not beside or at == beside[1])
            number = bare(reader, cell) if has_unit and id(cell) not in reader.whole else None
            if unit and number is not None and (unit not in NOUNS or number.isdecimal()):
                one = Stated(0, len(cell.text), f"{number} {unit}", unit)
                claim(reader, cell, one, says, cell.line)
                reader.whole.add(id(cell))
            for one in reader.free(cell):
                claim(reader, cell, one, says, cell.line)


_UNPLACED_TIME = re.compile(
    r"(?<![\w:.])(?:\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\b)?|\d{1,2}/\d{1,2}/\d{4})(?![\w:])"
)
_NUMBER = re.compile(r"(?<![\w.,:/^#@+=-])\d[\d.,]*(?![\w:/-])")


def _bare_numbers(reader: Reader, part: Line | Cell, line: int, told: set[int]) -> None:
    if id(part) in reader.whole:
        return
    found = reader.figures(part)
    numbers = []
    dates = days(part.text)
    for number in _NUMBER.finditer(part.text):
        start = number.start()
        if any(one.start <= start < one.end for one in found):
            continue
        if any(first <= start < last for first, last, _ in dates) or is_name(part.text, start):
            continue
        numbers.append(number[0].rstrip(".,"))
    if isinstance(part, Line):
        for time in _UNPLACED_TIME.finditer(part.text):
            if part.number in told:
                break
            reader.draft.left.append(
                Left(
                    part.line_of(time.start()),
                    part.text[:500],
                    f"{time[0].strip()}: a date or time",
                )
            )
    if numbers:
        what = "a number without a unit" if len(numbers) == 1 else "numbers without a unit"
        where = part.line_of(0) if isinstance(part, Line) else line
        reader.draft.left.append(Left(where, part.text[:500], f"{', '.join(numbers)}: {what}"))
