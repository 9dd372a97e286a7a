"""What became slower: each kernel's newest commit beside the earlier ones, case by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from kbtool.ledger.timings.commits import Line, lines, shared
from kbtool.ledger.timings.conditions import Timed
from kbtool.ledger.timings.verdict import Comparison, Row, answer, cells, told
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many
from kbtool.markdown.markup import (
    anchor,
    bullets,
    chip,
    folded,
    join,
    nothing,
    slim_table,
    stacked_table,
)
from kbtool.model.kernel import Kernel
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.compare import case_sets
from kbtool.site.parts import case_title, page_title, section


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.REGRESSIONS, partial(page, source.index))


PAGES = Pages(_pages, at.REGRESSIONS, "Regressions")

_SHORT = 8
"""Characters of a commit."""


def page(index: Index) -> str:
    """The verdicts in a table, then a section for each kernel, machine and kind of conditions."""
    found, alone = lines(entry.record for entry in index.base.runs)
    if not found:
        why = "No data because no two commits were timed under the same conditions, in quiet runs."
        return join([page_title("Regressions"), nothing(why), _alone(index, alone)])
    header = ["Kernel", "Machine", "Cases", "Newest commit", "Compared with", "Verdict"]
    return join(
        [
            page_title("Regressions"),
            _slower(index, found),
            folded("How it is computed", _HOW),
            stacked_table(header, [_overview(index, line) for line in found]),
            *(_section(index, line) for line in found),
            _alone(index, alone),
        ]
    )


_HOW = (
    "Each case of the newest commit of a kernel is compared with the last commit before it that"
    " timed the case, by the verdicts of `kbtool compare`: slower or faster if the times differ by"
    " 2 % or more, and by more than runs of the same code do (the spread). Percentages are of the"
    " time: 50 % faster takes half of it. Open any commit below to compare all cases with it. Only"
    " commits that were timed for the same problem under the same conditions stand together."
    " Commits are in the order in which they were first timed."
)


def _slower(index: Index, found: Sequence[Line]) -> str:
    """Whether anything became slower, over all the newest commits, and where."""
    rows = [row for line in found for row in line.rows]
    places = [
        at.link(_title(index, line), f"{at.REGRESSIONS}#{_anchor(line)}", at.REGRESSIONS)
        for line in found
        if any(row.verdict == "slower" for row in line.rows)
    ]
    slower = sum(row.verdict == "slower" for row in rows)
    judged = any(row.verdict in {"same", "faster", "slower"} for row in rows)
    told = (
        f"**{many(slower, 'case')} slower at the newest commits**, in {'; '.join(places)}"
        if places
        else "**Nothing slower at the newest commits**"
        if judged
        else "**Whether anything became slower is not known**"
    )
    return f"{told}. Over all kernels and machines: {inline(answer(rows, 'the newest'))}."


def _overview(index: Index, line: Line) -> list[str]:
    kernel = index.link(at.kernel_page(line.kernel), at.REGRESSIONS)
    newest = at.link(
        code(_commit(line.commits[0])), f"{at.REGRESSIONS}#{_anchor(line)}", at.REGRESSIONS
    )
    commits = ", ".join(code(_commit(one.a.newest)) for one in line.last)
    new = f"; {many(line.new, 'case')} new" if line.new else ""
    told = inline(answer(line.rows, "the newest") + new) if line.last else _NO_CASE
    return [kernel, inline(line.machine), inline(_cases(index, line)), newest, commits, told]


_NO_CASE = "no other commit timed any of its cases"


def _section(index: Index, line: Line) -> str:
    newest = line.commits[0]
    cases = _cases(index, line)
    parts = [
        f"Cases: {inline(cases)}." if cases else "",
        f"Newest commit: {_told(index, newest)}.",
    ]
    if not line.last:
        parts.append(nothing(f"Not compared because {_NO_CASE}."))
    for one in line.last:
        parts += [
            f"Compared with {_told(index, one.a.newest)}: **{inline(_answer(one))}**.",
            _body(index, one),
        ]
    if line.last and line.new:
        parts.append(f"{many(line.new, 'case')} of it, no commit before timed.")
    whole = {one.a.name: len(one.rows) for one in line.last}
    parts += [
        folded(_summary(one, line), _body(index, one))
        for one in line.beside
        if (rows := shared(one)) and len(rows) != whole.get(one.a.name)
    ]
    apart = [_told(index, one.a.newest) for one in line.beside if not shared(one)]
    if apart:
        parts.append(f"No case in common with {', '.join(apart)}.")
    return section(_title(index, line), _anchor(line), *parts)


def _title(index: Index, line: Line) -> str:
    """The kernel, the machine and the newest commit."""
    kernel, newest = index.kernels.get(line.kernel), line.commits[0]
    title = (
        f"{kernel.title if kernel else line.kernel}, {line.machine},"
        f" {newest.run.started:%Y-%m-%d}, {_commit(newest)}"
    )
    return inline(title)


def _cases(index: Index, line: Line) -> str:
    """The case sets that the newest commit timed; older records do not name them."""
    return "; ".join(case_sets(index, line.beside[0].b.runs))


def _anchor(line: Line) -> str:
    return at.fragment(f"{line.kernel}-{line.machine}-{_commit(line.commits[0])}")


def _summary(one: Comparison, line: Line) -> str:
    """What is folded up: the commit, and the verdict."""
    place = anchor(f"{_anchor(line)}-{_commit(one.a.newest)}")
    day = f"{one.a.newest.run.started:%Y-%m-%d}"
    commit = code(_commit(one.a.newest))
    return f"{place}All cases compared with {commit} of {day}: {inline(_answer(one))}"


def _answer(one: Comparison) -> str:
    """The verdicts in a line; the page calls no commit B."""
    return answer(one.rows, "the newest")


def _alone(index: Index, alone: Mapping[tuple[str, str], Sequence[Timed]]) -> str:
    """The commits that are compared with none, and where."""
    rows = [
        [
            index.link(at.kernel_page(kernel), at.REGRESSIONS),
            inline(machine),
            ", ".join(_told(index, one) for one in timed),
        ]
        for (kernel, machine), timed in alone.items()
    ]
    if not rows:
        return ""
    return section(
        "Not compared",
        "not-compared",
        "Commits that were timed for a problem, or under conditions, that no other commit on the"
        " machine has.",
        stacked_table(["Kernel", "Machine", "Commits"], rows),
    )


def _body(index: Index, one: Comparison) -> str:
    kernel = index.kernels.get(one.a.newest.run.kernel or "")
    shown = told(one.rows)
    changed = [_row(kernel, row) for row in shown if row.verdict != "same"]
    same = [_row(kernel, row) for row in shown if row.verdict == "same"]
    alone = len(one.rows) - len(shown)
    header = ["Case", "Verdict", "Newest ÷ earlier", "Spread", "Earlier (µs)", "Newest (µs)", "Why"]
    commands = f"kbtool compare {_commit(one.a.newest)} {_commit(one.b.newest)}"
    return join(
        [
            bullets(map(inline, one.notes)) if one.notes else None,
            slim_table(header, changed, range(2, 6)) if changed else None,
            folded(f"{many(len(same), 'case')} unchanged", slim_table(header, same, range(2, 6)))
            if same
            else None,
            f"{many(alone, 'case')} of one commit alone {'is' if alone == 1 else 'are'} left out."
            if alone
            else None,
            f"In the terminal: {code(commands)}",
        ]
    )


def _row(kernel: Kernel | None, row: Row) -> list[str]:
    """What became of a case, then its figures."""
    _, earlier, newest, ratio, spread, verdict, why = cells(row)
    name = inline(case_title(kernel, row.label))
    return [name, chip(verdict), *map(inline, [ratio, spread, earlier, newest, why])]


def _told(index: Index, one: Timed) -> str:
    page = at.run_page(one.run.session, one.run.id)
    link = index.link(page, at.REGRESSIONS, f"{one.run.started:%Y-%m-%d}")
    return f"{code(_commit(one))} of {link}"


def _commit(one: Timed) -> str:
    return (one.run.repository.commit or "")[:_SHORT]
