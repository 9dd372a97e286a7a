"""CSV: one value a row; the columns are named on the command line."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbtool.model.metric import Better
from kbtool.runner.results.base import ResultFileError, Taken

TOOL = "CSV"


@dataclass(frozen=True)
class Columns:
    """What the columns of a CSV file are."""

    value: str | None = None
    case: Sequence[str] = ()
    unit: str | None = None
    better: Better = "neither"
    metric: str | None = None
    """What the values are called. Default: as their column."""


def read(text: str, columns: Columns) -> Taken:
    """What the table holds. Rows of one case are samples.

    Raises:
        ResultFileError: a column is missing, a row is cut off, a value is no number.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    taken = Taken(TOOL)
    try:
        header = next(rows, [])
        if columns.value is None:
            raise ResultFileError(
                f"a CSV file needs --value COLUMN; its columns are {', '.join(header) or 'none'}"
            )
        for name in (columns.value, *columns.case):
            if header.count(name) != 1:
                what = "no column" if name not in header else "more than one column"
                raise ResultFileError(f"line 1: {what} {name!r}; there is {', '.join(header)}")
        if not columns.unit:
            raise ResultFileError(
                f"no unit of {columns.value!r}: give --unit, such as us, GB/s or J; of a pure"
                " number --unit 1"
            )
        for row in rows:
            place = f"line {rows.line_num}"
            if not row:
                continue
            if len(row) != len(header):
                raise ResultFileError(
                    f"{place}: {len(row)} cells under {len(header)} columns: the file is cut off,"
                    " or a text with a comma is not quoted"
                )
            cells = dict(zip(header, row, strict=True))
            taken.add(
                place, columns.metric or columns.value, columns.unit, columns.better,
                [_number(cells[columns.value], place)],
                case={name: _value(cells[name]) for name in columns.case},
            )  # fmt: skip
    except csv.Error as error:
        raise ResultFileError(f"line {rows.line_num}: {error}: the file is cut off") from None
    if not text.endswith(("\n", "\r")):
        raise ResultFileError(
            f"line {rows.line_num}: no line ends here: the file is cut off; if it is whole, end its"
            " last line"
        )
    return taken


def _number(text: str, place: str) -> float | None:
    if not text.strip():
        return None
    # Python takes 1_000 and the digits of every script.
    with contextlib.suppress(ValueError):
        if text.isascii() and "_" not in text:
            return float(text)
    raise ResultFileError(f"{place}: {text[:40]!r} is no number; write digits only")


def _value(text: str) -> Any:
    """A cell of a case: a number where it is written as that number is, so 2.10 stays a text."""
    for number, form in ((int, r"-?\d{1,18}"), (float, r"-?\d{1,18}\.\d{1,18}")):
        if re.fullmatch(form, text, re.ASCII) and str(number(text)) == text:
            return number(text)
    return text
