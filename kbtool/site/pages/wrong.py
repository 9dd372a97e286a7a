"""What went wrong? Symptoms in plain words, with the pattern, the bugs that had them, what those
cost, and the command that helps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from kbtool.ledger.faults import Meeting
from kbtool.ledger.lost import Lost, lost
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many, minutes, money
from kbtool.markdown.markup import clipped, join, muted, nothing, nowrap, stacked_table
from kbtool.model.expression import found_in
from kbtool.model.pattern import Pattern
from kbtool.model.symptom import filled
from kbtool.runner.remedies import command_of
from kbtool.site import addresses as at
from kbtool.site.index import BugCase, Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.bug import is_edit_alone
from kbtool.site.parts import page_title, session_cell


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.WRONG, partial(page, source.index))


PAGES = Pages(_pages, at.WRONG, "What went wrong?")

_LONGEST = 160
"""Characters of what a fix changed."""
_MOST = 6
"""Bugs that are named in a row; more are counted."""
_SENTENCE = re.compile(r".*?[.!?](?= |$)")


class _Row(NamedTuple):
    """A symptom, and what the records say of it."""

    seen: str
    """In plain words, as Markdown."""
    where: str
    """The tool that says it, or the part at fault."""
    patterns: Sequence[Pattern]
    cases: Sequence[BugCase]
    """Every meeting of the faults that had it."""
    remedy: str
    """As Markdown."""


def page(index: Index) -> str:
    """The table of symptoms: those that cost most come first."""
    rows = _each_once([*_of_patterns(index), *_of_messages(index), *_of_bugs(index)])
    costs = index.costs.sessions
    told = [
        (row, lost((Meeting(case.session, case.bug) for case in row.cases), costs)) for row in rows
    ]
    told.sort(key=lambda one: (one[1].minutes or Decimal(0), len(one[0].cases)), reverse=True)
    header = ["What you see", "What to do", "Lost", "Pattern", "Bugs that had it"]
    cells = [
        [
            f"{row.seen} <br>{muted(inline(row.where))}" if row.where else row.seen,
            row.remedy,
            _lost(what),
            ", ".join(index.link(at.pattern_page(one.id), at.WRONG) for one in row.patterns),
            _bugs(index, row),
        ]
        for row, what in told
    ]
    return join(
        [
            page_title("What went wrong?"),
            "Symptoms in plain words: the signs and messages of patterns, and what bugs looked"
            " like. Filter by what you see. Have a message of a tool?"
            f" {at.link('All of them', at.SYMPTOMS, at.WRONG)}, or `kbtool explain build.log`.",
            "Lost: the minutes that sessions say their bugs took, and, where the money of such a"
            " session is known, its share in those minutes.",
            # The records themselves are found by their words; this page would be found by all.
            '<div data-search-exclude markdown="block">\n\n'
            + stacked_table(header, cells)
            + "\n\n</div>"
            if cells
            else nothing("No pattern has a sign or a symptom, and no bug is recorded."),
        ]
    )


def _each_once(rows: Iterable[_Row]) -> list[_Row]:
    """What looks the same in several patterns is one row, with all their remedies."""
    alike: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        alike[row.seen].append(row)
    return [
        _Row(
            seen,
            next((row.where for row in same if row.where), ""),
            list({one.id: one for row in same for one in row.patterns}.values()),
            list({case.page: case for row in same for case in row.cases}.values()),
            "<br>".join(dict.fromkeys(row.remedy for row in same)),
        )
        for seen, same in alike.items()
    ]


def _of_patterns(index: Index) -> Iterator[_Row]:
    """The signs of each pattern, and the symptoms that its record has."""
    for pattern in index.patterns.values():
        of_pattern = _cases(index, pattern)
        for sign in pattern.signs:
            yield _Row(inline(sign), "", [pattern], of_pattern, _advice(pattern))
        shown: dict[str, list[BugCase]] = defaultdict(list)
        for case, match in index.showing(pattern):
            shown[match.symptom.id].append(case)
        for symptom in pattern.symptoms:
            cases = _all_meetings(index, shown[symptom.id])
            does = _advice(pattern, symptom.advice)
            yield _Row(code(clipped(symptom.example)), "", [pattern], cases, does)


def _advice(pattern: Pattern, text: str | None = None) -> str:
    """What a pattern says to do: its first rule, or else the first sentence of its lesson, with a
    link to it; and the command that does it, if it has one."""
    lesson = pattern.rules[0].text if pattern.rules else pattern.summary
    first = _SENTENCE.match(" ".join(lesson.split()))
    said = text or (first[0] if first else lesson)
    link = at.link(inline(pattern.id), at.pattern_page(pattern.id), at.WRONG)
    told = f"{inline(clipped(said, _LONGEST))} ({link})"
    return f"{told}<br>{code(command_of(pattern))}" if pattern.recipes else told


def _cases(index: Index, pattern: Pattern) -> list[BugCase]:
    """The bugs that a pattern came from or that show a symptom of it, with all their meetings."""
    found = [case for case in index.bugs.values() if pattern in index.became.get(case.page, ())]
    found += [case for case, _ in index.showing(pattern)]
    return _all_meetings(index, found)


def _all_meetings(index: Index, cases: Iterable[BugCase]) -> list[BugCase]:
    keys = dict.fromkeys((session.id, bug.id) for case in cases for session, bug in case.meetings)
    return [index.bugs[key] for key in keys]


def _of_messages(index: Index) -> Iterator[_Row]:
    """The messages of tools that belong to a pattern."""
    errors = [case for case in index.bugs.values() if case.bug.error_text]
    for tool in index.base.catalogue.values():
        for known in tool.symptoms:
            patterns = [index.patterns[one] for one in known.patterns if one in index.patterns]
            if not patterns:
                continue
            numbers = dict.fromkeys(known.values, "N")
            place = f"{at.symptoms_page(tool.id)}#{known.id}"
            cases = [
                case for case in errors if any(found_in(known.match, line) for line in _lines(case))
            ]
            does = code(filled(known.command, numbers)) if known.command else _advice(patterns[0])
            yield _Row(
                at.link(inline(known.title), place, at.WRONG), tool.title, patterns,
                _all_meetings(index, cases), does,
            )  # fmt: skip


def _lines(case: BugCase) -> list[str]:
    return (case.bug.error_text or "").splitlines()


def _of_bugs(index: Index) -> Iterator[_Row]:
    """Each fault once: what it looked like where it was met last and somebody said so."""
    for case in index.bugs.values():
        if case.recurrences:
            continue  # the last meeting stands for all
        every = _all_meetings(index, [case])
        last = next((one for one in reversed(every) if one.bug.symptom), case)
        if is_edit_alone(last):
            continue  # nobody saw anything of it
        patterns = dict.fromkeys(
            pattern.id for one in every for pattern in index.became.get(one.page, ())
        )
        fixes = [fix.change for one in every for _, fix in one.fixes]
        known = [index.patterns[one] for one in patterns]
        does = [
            *(inline(clipped(fix, _LONGEST)) for fix in fixes[-1:]),
            *(_advice(one) for one in known[:1]),
        ] or ["no fix is recorded"]
        yield _Row(
            inline(last.bug.symptom or last.bug.title), last.bug.component or "", known, every,
            "<br>".join(does),
        )  # fmt: skip


def _bugs(index: Index, row: _Row) -> str:
    """Each fault by the title of its last occurrence, then the sessions that had it before; of many
    the number, which leads to the page of the pattern, or where there is none, to the list of
    bugs."""
    told = []
    faults = [case for case in row.cases if not case.recurrences]
    if len(faults) > _MOST:
        place = at.pattern_page(row.patterns[0].id) if row.patterns else at.BUGS
        return at.link(many(len(faults), "bug"), place, at.WRONG)
    for case in faults:
        before = [
            session_cell(index, session, at.WRONG, at.bug_page(session.id, bug.id))
            for session, bug in case.meetings[:-1]
        ]
        link = at.link(inline(case.bug.title), case.page, at.WRONG)
        told.append(f"{link} ({'; '.join(before)} too)" if before else link)
    return "<br>".join(told)


def _lost(what: Lost) -> str:
    if what.minutes is None:
        return ""
    amounts = [money(amount, currency) for currency, amount in what.money.items()]
    return "<br>".join(nowrap(one) for one in (minutes(what.minutes), *amounts))
