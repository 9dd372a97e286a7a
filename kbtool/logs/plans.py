"""What a later session is to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kbtool.logs import words
from kbtool.logs.blocks import Line
from kbtool.logs.draft import Names, slug
from kbtool.logs.figures import Stated
from kbtool.logs.reader import Reader, plain_title

_PHASE = re.compile(r"(?i)(?:phase|step)\s*\d")
_IS_PHASE = re.compile(r"(?i)(?:phase|step|part|stage)\b")
_PHASE_NAME = re.compile(r"(?i)^(?:phase|step|part|stage)\s*\w+\s*[:.–—-]\s*")
_TIME = re.compile(r"(?i)(?:time|duration|time estimate|estimated time|total)\Z")
_BUDGET = re.compile(r"(?i)(?:budget|cost|estimated cost|cost estimate)\Z")


def read_plans(reader: Reader) -> None:
    """What a later session is to do: steps with their times, what is expected, figures aimed at."""
    plans: dict[tuple[str, ...], list[tuple[tuple[str, ...], list[Line]]]] = {}
    for headings, parts in reader.sections:
        top = next(
            (at for at, h in enumerate(headings[1:], 2) if words.role_of_heading(h) == "plan"), 0
        )
        if top:
            lines = [part for part in parts if isinstance(part, Line)]
            plans.setdefault(headings[:top], []).append((headings, lines))
    for headings, sections in plans.items():
        heading = reader.heading_line(headings)
        if heading is not None and (len(sections) > 1 or sections[0][1]):
            _plan(reader, heading, headings, sections)


@dataclass
class _Plan:
    """A plan in the making."""

    reader: Reader
    headings: tuple[str, ...]
    data: dict[str, Any]
    cited: set[int]
    steps: list[dict[str, Any]] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    ids: Names = field(default_factory=Names)

    def read(self, under: tuple[str, ...], line: Line) -> None:
        """Place one line of the plan: a step, what is expected, its time or its budget."""
        numbered = line.kind == "item" and line.depth == 1 and line.ordinal
        if line.kind == "item" and re.match(r"(?i)expected|success", line.lead):
            self.expect(line, line.text)
        elif _PHASE.match(line.text) or (numbered and not re.search(r"(?i)prereq", under[-1])):
            self.step(line)
        elif re.match(r"(?i)expected", line.key) and line.value:
            self.expect(line, line.value)
        elif _TIME.match(line.key):
            self.total("target", line, [f for f in self.reader.value_figures(line) if f.is_time])
        elif _BUDGET.match(line.key):
            self.total("budget", line, [f for f in self.reader.value_figures(line) if f.is_money])
        for one in self.reader.free(line):
            self.figures[self.names.fresh(slug(line.text, "figure"))] = one.quantity
            self.place(line, one)

    def place(self, line: Line, one: Stated) -> None:
        self.cited.add(line.line_of(one.start))
        self.reader.place(line, one)

    def total(self, name: str, line: Line, found: list[Stated]) -> None:
        """The time or the budget of the whole plan, where a line has one figure of it."""
        if len(found) == 1 and name not in self.data:
            self.data[name] = found[0].quantity
            self.place(line, found[0])

    def expect(self, line: Line, text: str) -> None:
        self.expected.append(text)
        self.cited.add(line.number)
        self.reader.used.add(id(line))

    def step(self, line: Line) -> None:
        title = plain_title(_PHASE_NAME.sub("", line.text))
        entry: dict[str, Any] = {"id": self.ids.fresh(slug(title, "step")), "title": title[:1000]}
        own = [one for one in self.reader.free(line) if one.is_time]
        in_brackets = [one for one in own if re.match(r"[^()]*\)", line.text[one.end :])]
        if len(in_brackets) == 1 or (len(own) == 1 and line.kind == "heading"):
            one = (in_brackets or own)[0]
            entry["target"] = one.quantity
            self.reader.place(line, one)
        self.steps.append(entry)
        self.cited.add(line.number)
        self.reader.used.add(id(line))

    def write(self) -> None:
        """Add it to the draft, if it says anything."""
        if not (self.steps or self.expected or self.figures or "target" in self.data):
            return
        lists = {"steps": self.steps, "expected": self.expected, "figures": self.figures}
        data = self.data | {name: found for name, found in lists.items() if found}
        self.reader.draft.add("plans", data, self.cited)


def _plan(
    reader: Reader,
    heading: Line,
    headings: tuple[str, ...],
    sections: list[tuple[tuple[str, ...], list[Line]]],
) -> None:
    title = plain_title(heading.text)
    data: dict[str, Any] = {"id": slug(title, "plan"), "title": title[:1000]}
    named = re.search(r"\bN\+\d+[A-Za-z]?\b", heading.text) or words.SESSION.search(heading.text)
    if named:
        data["for_session"] = named[1] if named.re.groups else named[0]
    plan = _Plan(reader, headings, data, {heading.number})
    plan.total("target", heading, [one for one in reader.free(heading) if one.is_time])
    for under, lines in sections:
        below = reader.heading_line(under)
        is_step = below is not None and (_IS_PHASE.match(below.text) or not lines)
        if under != headings and below is not None and is_step:
            plan.step(below)
        for line in lines:
            plan.read(under, line)
    plan.write()
