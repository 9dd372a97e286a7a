"""The values that a command logs: ``KBTOOL_RESULT`` lines of its output, and a JSON file.

    KBTOOL_RESULT {"name": "tokens/s", "value": 1830, "unit": "1/s", "case": {"batch": 8}}

The file holds a list of such objects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kbtool.checks.text_rules import WRITTEN_RULES, private
from kbtool.model.errors import first_problem
from kbtool.model.kinds.logged import Collector, LoggedValue, Series

MARK = "KBTOOL_RESULT"
_EXAMPLE = '{"name": "tokens/s", "value": 1830, "unit": "1/s"}'


class Values:
    """What a command logs, and the first problem with it."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._before = _stamp(file)
        self._collector = Collector()
        self._lines = 0
        self.problem: str | None = None

    @property
    def series(self) -> list[Series]:
        """The values, by metric and case."""
        return self._collector.series

    def line(self, text: str) -> None:
        """Take a line of output, if it is for kbtool."""
        self._lines += 1
        if MARK not in text:
            return
        place = f"line {self._lines} of the output"
        # A progress bar is written over: it stands before the last return.
        before, _, last = text.strip().rpartition("\r")
        mark, *rest = last.split(maxsplit=1) or [""]
        if mark == MARK and MARK not in before:
            self._add_json(place, rest[0] if rest else "")
        else:
            shown = without_private(f"{text!r:.200}")
            self._fault(f"{place}: {MARK} must begin a line, with a space after it: {shown}")

    def read_file(self) -> None:
        """Take the values of the JSON file; called after the command has ended."""
        if self._file is None:
            return
        name = self._file.name
        if _stamp(self._file) in {None, self._before}:
            self._fault(f"{name} was not written; the step says that results are in it")
            return
        try:
            found = json.loads(self._file.read_text("utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            self._fault(f"{name} is no JSON ({error}); was the command cut off?")
            return
        if not isinstance(found, list):
            self._fault(f"{name}: write a list of objects like {_EXAMPLE}")
            return
        for number, one in enumerate(found, 1):
            self._add(f"{name}, entry {number}", one)

    def _add_json(self, place: str, text: str) -> None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            self._fault(f"{place}: write {MARK} {_EXAMPLE}")
            return
        self._add(place, found)

    def _add(self, place: str, given: Any) -> None:
        if not isinstance(given, dict):
            self._fault(f"{place}: write an object like {_EXAMPLE}")
            return
        try:
            value = LoggedValue.model_validate(given)
            if (found := private(value.model_dump(mode="json"))) is not None:
                raise ValueError(f"it {found[1]}")
            self._collector.add(value)
        except ValidationError as error:
            self._fault(f"{place}: {first_problem(error)}")
        except ValueError as error:
            self._fault(f"{place}: {error}")

    def _fault(self, problem: str) -> None:
        self.problem = self.problem or problem


def without_private(line: str) -> str:
    """A line of output as a record may hold it, if it has the mark."""
    if MARK not in line or private(line, WRITTEN_RULES) is None:
        return line
    return f"{MARK} …"


def _stamp(file: Path | None) -> int | None:
    return file.stat().st_mtime_ns if file is not None and file.is_file() else None
