"""What the places of a report share: its habits, its day, and which figures were placed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from kbtool.logs import words
from kbtool.logs.blocks import Blocks, Cell, Line, Table
from kbtool.logs.clock import Clock, clocks, days
from kbtool.logs.draft import Draft, Item
from kbtool.logs.figures import Habits, Stated, figures


@dataclass
class Reader:
    """A report being read into a draft."""

    blocks: Blocks
    style: Habits
    halves: bool
    """Whether it writes AM and PM."""
    draft: Draft
    label: str | None = None
    day: date | None = None
    own: tuple[str, ...] = ("",)
    """The headings of the section that states the session's name."""
    placed: set[tuple[int, int]] = field(default_factory=set)
    """Part of the report, by its identity, and where in it a figure begins that has a place."""
    used: set[int] = field(default_factory=set)
    """Identities of the lines whose text has a place."""
    whole: set[int] = field(default_factory=set)
    """Identities of the lines and cells of which every number has a place."""
    costs: dict[int, list[tuple[Line | Cell, Stated]]] = field(default_factory=dict)
    """Identity of a cost line → the amounts of the log that it was made from."""
    claimed: set[tuple[int, str, str]] = field(default_factory=set)
    """Line, words and figure of each claim."""
    commits: dict[str, Item] = field(default_factory=dict)
    _found: dict[int, list[Stated]] = field(default_factory=dict)

    def figures(self, part: Line | Cell) -> list[Stated]:
        """The figures of a line or a cell."""
        if id(part) not in self._found:
            self._found[id(part)] = figures(part.text, self.style)
        return self._found[id(part)]

    def free(self, part: Line | Cell) -> list[Stated]:
        """Those of them that have no place yet."""
        return [one for one in self.figures(part) if (id(part), one.start) not in self.placed]

    def place(self, part: Line | Cell, *stated: Stated) -> None:
        """Note that figures of a line or a cell have a place."""
        self.placed |= {(id(part), one.start) for one in stated}
        self.used.add(id(part))

    def value_figures(self, line: Line) -> list[Stated]:
        """The figures of what stands after the key of a line, that have no place yet."""
        begins = len(line.text) - len(line.value)
        return [one for one in self.free(line) if one.start >= begins]

    def clocks(self, text: str) -> list[Clock]:
        """The times of day in a text."""
        return clocks(text, halves=self.halves)

    def days(self, text: str) -> set[date]:
        """The days in a text."""
        return {day for _, _, day in days(text)}

    @cached_property
    def sections(self) -> list[tuple[tuple[str, ...], list[Line | Table]]]:
        """The parts of the report by their headings, in order."""
        found: list[tuple[tuple[str, ...], list[Line | Table]]] = []
        for part in self.blocks.parts:
            at = part.headings
            if isinstance(part, Line) and part.kind == "heading":
                found.append(((*at, part.text), []))
            elif not found or found[-1][0] != at:
                found.append((at, [part]))
            else:
                found[-1][1].append(part)
        return found

    def heading_line(self, headings: tuple[str, ...]) -> Line | None:
        """The line of the innermost of these headings."""
        return self._headings.get(headings)

    @cached_property
    def _headings(self) -> dict[tuple[str, ...], Line]:
        found: dict[tuple[str, ...], Line] = {}
        for line in self.blocks.lines:
            if line.kind == "heading":
                found.setdefault((*line.headings, line.text), line)
        return found

    def of_another(self, text: str) -> bool:
        """Whether a text names a session that is not this one."""
        named = {found[1].lower() for found in words.SESSION.finditer(text)}
        return bool(named - {(self.label or "").lower()})

    def is_header(self, line: Line) -> bool:
        """Whether a line stands before the first section, or in front matter."""
        return line.kind == "meta" or len(line.headings) <= 1


def plain_title(text: str) -> str:
    """A heading without its number, its sign and what is in brackets at its end."""
    text = re.sub(r"\s*\((?:[^()]*)\)\s*$", "", text)
    return re.sub(r"^[\W_]+", "", text).strip(" :–—-") or text.strip()
