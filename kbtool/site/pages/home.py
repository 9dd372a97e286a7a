"""The first page: what is going on, what it cost, where to start."""

from __future__ import annotations

from datetime import date

from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.escape import code, inline
from kbtool.site.figures import headline, instant
from kbtool.site.index import Index
from kbtool.site.markup import admonition, bullets, cards, chip, join, nothing, nowrap, table
from kbtool.site.parts import page_title, section
from kbtool.site.sums import stated, time

NEWEST = 5
LEFT_OUT = 20


def page(index: Index, today: date | None) -> str:
    """The home page; every figure leads to what it is made of."""
    return join(
        [
            page_title("Lab notebook"),
            _left_out(index),
            _figures(index, today),
            section("Running or paused", "running", _running(index)),
            section("Newest runs", "runs", _runs(index)),
            section("Open bugs", "open-bugs", _bugs(index)),
            section("Where to start", "start", _start(index)),
        ]
    )


def _left_out(index: Index) -> str:
    findings = index.base.findings
    if not findings:
        return ""
    lines = [inline(finding) for finding in findings[:LEFT_OUT]]
    if len(findings) > LEFT_OUT:
        lines.append(f"and {len(findings) - LEFT_OUT} more")
    body = "These records could not be read, so nothing on this site counts them:\n\n"
    return admonition("danger", "Records are missing", body + bullets(lines))


def _figures(index: Index, today: date | None) -> str:
    sessions = list(index.sessions.values())
    bugs = list(index.bugs.values())
    is_open = sum(case.is_open for case in bugs)
    evidence = sum(len(account.edges) for account in index.accounts.values())
    spent = time(sessions) if sessions else "none yet"
    money = stated(sessions) if any(s.costs for s in sessions) else "none"

    def figure(value: object, target: str, about: str) -> str:
        return f"[**{value}**]({target}){{ .kb-figure }}<br>{about}"

    return cards(
        [
            figure(len(sessions), at.SESSIONS, f"sessions, {spent}"),
            figure(money, at.COSTS, _month(index, today)),
            figure(is_open, at.BUGS, f"open bugs, of {len(bugs)} met"),
            figure(len(index.patterns), at.PATTERNS, f"patterns, {evidence} pieces of evidence"),
        ]
    )


def _month(index: Index, today: date | None) -> str:
    if not any(session.costs for session in index.sessions.values()):
        return "no cost is recorded"
    if today is None:
        return "known in all"
    months: dict[str, list[Session]] = {}
    for session in index.sessions.values():
        if session.day:
            months.setdefault(session.day[:7], []).append(session)
    this = f"{today:%Y-%m}"
    if this in months:
        return f"known in all; this month: [{stated(months[this])}]({at.COSTS}#by-month)"
    if not months:
        return "known in all; nothing this month"
    last = max(months)
    spent = f"[{stated(months[last])}]({at.COSTS}#by-month)"
    return f"known in all; nothing this month; last in {last}: {spent}"


def _running(index: Index) -> str:
    going = [
        s
        for s in index.sessions.values()
        if s.status == "running" or (s.status == "paused" and s.id not in index.followers)
    ]
    if not going:
        return nothing("No session is running, and none is paused that was not gone on with.")
    return bullets(
        f"{index.link(at.session_page(s.id), at.HOME)} {chip(s.status)}"
        + (f" since {inline(s.started)}" if s.started else "")
        for s in going
    )


def _runs(index: Index) -> str:
    runs = index.runs_of()[:NEWEST]
    if not runs:
        return nothing("No recipe was run in this knowledge base yet.")
    rows = [
        [
            index.link(at.run_page(run.session, run.id), at.HOME, code(run.id)),
            nowrap(instant(run.started)),
            inline(run.machine.card or run.machine.cpu),
            chip(run.status),
            inline(headline(run)) or "–",
        ]
        for run in runs
    ]
    more = f"\n\n[Every run]({at.RUNS})"
    return table(["Run", "When", "Machine", "Status", "Result"], rows) + more


def _bugs(index: Index) -> str:
    found = [case for case in index.bugs.values() if case.is_open]
    if not found:
        return nothing("No bug is open." if index.bugs else "No session's record names a bug.")
    return bullets(
        f"{index.link(case.page, at.HOME)} {chip(case.status)} met in "
        + index.link(at.session_page(case.session.id), at.HOME, inline(case.session.label))
        for case in reversed(found)
    )


def _start(index: Index) -> str:
    lines = [
        f"[What was learned]({at.PATTERNS}): the patterns, with the evidence for and against each",
        f"[What was done]({at.SESSIONS}): the sessions, in the order of the work",
        f"[What to run]({at.RECIPES}): the recipes, step by step",
    ]
    if index.sessions:
        last = list(index.sessions.values())[-1]
        where = index.link(at.session_page(last.id), at.HOME)
        lines.insert(0, f"Where the work stands: {where}")
    return bullets(lines)


def tags() -> str:
    """The page that the tags plugin fills."""
    return join([page_title("Tags"), "<!-- material/tags -->"])
