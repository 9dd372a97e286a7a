"""The table of sessions, and the page of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from kbtool.ledger.faults import bug_at
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import UNKNOWN, many, minutes, money
from kbtool.markdown.markup import (
    anchor,
    bullets,
    chip,
    clipped,
    facts,
    join,
    nothing,
    nowrap,
    optional,
    outward,
    stacked_table,
)
from kbtool.model.base import Quantity
from kbtool.model.price import currency_of
from kbtool.model.session import Session
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import choices, measurements, sweep, timeline
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import (
    EVIDENCE,
    GRADES,
    backlinks,
    cite,
    claims,
    confirmed,
    crumb,
    evidence_cells,
    fixed_place,
    in_words,
    page_title,
    patterns_of,
    section,
    session_cell,
    status_chip,
    unknowns,
    why_unknown,
)
from kbtool.site.sums import unstated
from kbtool.site.text.prose import rendered
from kbtool.site.text.quoted import files_beside, in_html, line, paragraphs
from kbtool.store.prose import notes


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.SESSIONS, partial(listing, index))
    for session in index.sessions.values():
        yield Page(at.session_page(session.id), partial(page, index, session))


PAGES = Pages(_pages, at.SESSIONS, "Sessions")


_OUTCOME = 140
"""The most characters of an outcome in the list of sessions."""


def listing(index: Index) -> str:
    """The sessions, newest first."""
    if not index.sessions:
        return join(
            [page_title("Sessions"), nothing(
                "There are no sessions yet. `kbtool session new TITLE` starts one."
            )]
        )  # fmt: skip
    rows = []
    for session in index.newest:
        rows.append(
            [
                index.link(at.session_page(session.id), at.SESSIONS, inline(session.label)),
                nowrap(session.day) if session.day else "undated",
                inline(session.title),
                chip(session.status),
                minutes(session.minutes) if session.minutes is not None else "unknown",
                index.money(session.id),
                inline(clipped(session.outcome or "", _OUTCOME)) or "–",
            ]
        )
    header = ["Session", "Date", "Title", "Status", "Time", "Money", "Outcome"]
    return join(
        [
            page_title("Sessions"),
            "Those that ended or began last come first; those without a date last.",
            stacked_table(header, rows, {4, 5}),
        ]
    )


def page(index: Index, session: Session) -> str:
    """One session with everything in its record."""
    here = at.session_page(session.id)
    link = index.terms.linker(here)
    return join(
        [
            page_title(inline(f"{session.label}: {session.title}")),
            crumb(here, at.SESSIONS, "Sessions", session.id, index.base.sessions[session.id].path),
            _summary(index, session, here),
            _neighbours(index, session, here),
            _absent(session),
            *(
                section(name.capitalize(), name, link(paragraphs(index, text, session.id, here)))
                for name in ("objective", "outcome")
                if (text := getattr(session, name))
            ),
            _environment(session),
            timeline.steps(index, session, here),
            _costs(index, session),
            _runs(index, session, here),
            sweep.listing(index, session.id, here),
            measurements.measurements(session),
            _bugs(index, session, here),
            _fixes(index, session, here),
            _commits(session),
            choices.decisions(index, session),
            _evidence(index, session, here),
            claims(index, session),
            choices.plans(index, session),
            _deliverables(session),
            section(
                "Lessons",
                "lessons",
                link(bullets(_lessons(index, session, here))),
            ),
            unknowns(session),
            link(_notes(index, session)),
            _sources(session),
            backlinks(index, here),
        ]
    )


def _lessons(index: Index, session: Session, here: str) -> Iterator[str]:
    """Each lesson, with the patterns that it became."""
    for number, lesson in enumerate(session.lessons, 1):
        place = at.lesson_place(session.id, number)
        became = patterns_of(index, place)
        told = anchor(place.partition("#")[2]) + line(index, lesson, session.id, here)
        yield f"{told} Became {became}." if became else told


def _summary(index: Index, session: Session, here: str) -> str:
    reason = why_unknown(session, "duration")
    costs = index.costs.sessions[session.id]
    spent = index.money(session.id) if costs.costs else ""
    met = [index.bugs[session.id, bug.id] for bug in session.bugs]
    is_open = sum(case.is_open for case in met)
    runs = Counter[str](run.outcome for run in index.runs_of(session=session.id))
    verdicts = Counter[str](
        row.verdict for one in session.measurements for row in one.rows if row.verdict
    )
    grades = Counter[str](
        GRADES[index.audited[session.id, f"claims.{one.id}"].grade] for one in session.claims
    )
    return facts(
        [
            ("Status", chip(session.status)),
            ("Date", session.day or "undated"),
            ("Began", optional(session.started) or why_unknown(session, "started")),
            ("Ended", optional(session.ended) or why_unknown(session, "ended")),
            ("Time", minutes(session.minutes) if session.minutes is not None else reason),
            ("Time budget", optional(session.budget_time)),
            ("Money", f"[{spent}](#costs)" if spent else why_unknown(session, "costs")),
            ("Cost not known", unstated(costs)),
            ("Money budget", optional(session.budget_money)),
            ("Engineer", optional(session.engineer)),
            ("Kernels", ", ".join(index.link(at.kernel_page(k), here) for k in session.kernels)),
            ("Grade it gave itself", optional(session.grade)),
            ("Runs", _counted(runs, "#runs")),
            ("Measured", _counted(verdicts, "#measurements")),
            ("Bugs met", f"[{len(met)}, {is_open} open](#bugs)" if met else ""),
            ("Fixes", f"[{len(session.fixes)}](#fixes)" if session.fixes else ""),
            ("Commits", f"[{len(session.commits)}](#commits)" if session.commits else ""),
            ("Claims", _counted(grades, "#claims")),
            (
                "Record",
                f"[{_ORIGINS[session.origin]}](#sources)"
                if session.sources
                else _ORIGINS[session.origin],
            ),
        ]
    )  # fmt: skip


_ORIGINS = {
    "log": "transcribed from its log",
    "mention": "known from other logs only",
    "tool": "made by kbtool",
    "person": "written by hand",
}


def _counted(words: Counter[str], place: str) -> str:
    """How often each word: ``6 fail, 1 pass``; empty without any."""
    text = ", ".join(f"{count} {word}" for word, count in words.most_common())
    return f"[{text}]({place})" if text else ""


def _neighbours(index: Index, session: Session, here: str) -> str:
    """The session that it follows and those that follow it, and its neighbours in the list."""
    order = list(index.sessions)
    place = order.index(session.id)
    before, after = order[max(place - 1, 0) : place], order[place + 1 : place + 2]
    followers = [one.id for one in index.followers.get(session.id, [])]
    groups = [
        ("Continues", [session.follows] if session.follows else []),
        ("Continued in", followers),
        ("Earlier in the list", [one for one in before if one != session.follows]),
        ("Later in the list", [one for one in after if one not in followers]),
    ]
    return " · ".join(
        f"{word}: " + ", ".join(index.link(at.session_page(one), here) for one in ids)
        for word, ids in groups
        if ids
    )


_PARTS = (
    "steps", "costs", "measurements", "bugs", "fixes", "commits", "decisions", "evidence", "claims",
    "plans", "lessons",
)  # fmt: skip


def _absent(session: Session) -> str:
    """The parts that the record lacks."""
    missing = [
        "cost lines" if name == "costs" else name for name in _PARTS if not getattr(session, name)
    ]
    return nothing(f"The record has no {', '.join(missing)}.") if missing else ""


def _environment(session: Session) -> str:
    environment, repository = session.environment, session.repository
    if environment is None and repository is None:
        return ""
    rows = []
    if environment:
        where = cite(environment.source)
        for name in type(environment).model_fields:
            value = getattr(environment, name)
            if name not in {"details", "source"} and value is not None:
                rows.append([name.replace("_", " "), inline(value), where])
        rows += [[inline(k), inline(v), where] for k, v in environment.details.items()]
    if repository:
        where = cite(repository.source)
        rows += [["branch", code(repository.branch), where]] if repository.branch else []
        rows += [["commit", code(repository.commit), where]] if repository.commit else []
        if repository.dirty is not None:
            rows.append(["work tree", "changed" if repository.dirty else "clean", where])
    # Both fields of the record may be referred to; they share a section.
    place = anchor("repository") if repository else ""
    body = (
        stacked_table(["What", "Value", "Source"], rows)
        if rows
        else nothing("The record states nothing of it.")
    )
    return section(f"{place}Environment", "environment", body)


def _costs(index: Index, session: Session) -> str:
    rows = [
        [
            anchor(f"costs.{line.id or line.kind}") + inline(line.id or line.kind),
            f"{line.amount} {line.currency}" if line.amount is not None
            else why_unknown(session, f"costs.{line.id or line.kind}.amount") or "unknown",
            line.basis,
            optional(line.duration),
            optional(line.rate),
            optional(line.card),
            optional(line.note),
            cite(line.source),
        ]
        for line in session.costs
    ]  # fmt: skip
    rows += [
        [
            "gpu", money(one.money, currency_of(one.price.rate)) if one.price else UNKNOWN,
            "estimated", minutes(one.minutes), inline(one.price.rate) if one.price else UNKNOWN,
            inline(one.card),
            "Time of its runs on the card, at the rate "
            + (f"{code(one.price.id)} of the ledger." if one.price else "that the ledger lacks.")
            + " No cost line pays for it.",
            "",
        ]
        for one in index.costs.held[session.id]
    ]  # fmt: skip
    header = ["For", "Amount", "Basis", "Time", "Rate", "Card", "Remark", "Source"]
    added = f"Sum of what is known: **{index.money(session.id)}**"
    if not rows:
        return section("Costs", "costs", nothing("The record has no cost lines."))
    return section("Costs", "costs", stacked_table(header, rows, {1, 3, 4}), added)


def _runs(index: Index, session: Session, here: str) -> str:
    rows = [
        [
            index.run_link(run, here),
            index.made_by(run, here),
            chip(run.outcome),
            inline(headline(run)),
        ]
        for run in index.runs_of(session=session.id)
    ]
    return section(
        "Runs", "runs", stacked_table(["Run", "Recipe", "Status", "Result"], rows) if rows else None
    )


def _bugs(index: Index, session: Session, here: str) -> str:
    rows = []
    for bug in session.bugs:
        case = index.bugs[session.id, bug.id]
        fixed_in = "; ".join(dict.fromkeys(session_cell(index, by, here) for by, _ in case.fixes))
        rows.append(
            [
                anchor(f"bugs.{bug.id}")
                + "".join(anchor(f"bugs.{bug.id}.{h.id}") for h in bug.hypotheses)
                + index.link(case.page, here),
                status_chip(case.status),
                optional(bug.symptom),
                optional(bug.cause) or why_unknown(session, f"bugs.{bug.id}.cause"),
                optional(bug.minutes_lost),
                fixed_in,
                cite(bug.source),
            ]
        )
    header = ["Bug", "Status", "Symptom", "Cause", "Lost", "Fixed in", "Source"]
    return section("Bugs", "bugs", stacked_table(header, rows, {4}) if rows else None)


def _fixes(index: Index, session: Session, here: str) -> str:
    anchors = index.anchors(session)
    rows = []
    for fix in session.fixes:
        target = at.bug_page(*bug_at(fix.bug, session.id))
        fixed = fixed_place(index, fix.place, here)
        rows.append(
            [
                (anchor(place) if (place := anchors.get(fix)) else "")
                + (index.link(target, here) if target in index.titles else code(fix.bug)),
                inline(fix.change),
                f'<span class="kb-long">{fixed}</span>' if fixed else "",
                code(fix.commit) if fix.commit else "",
                confirmed(index, session, fix, here),
                optional(fix.note),
                cite(fix.source),
            ]
        )
    header = ["Bug", "Change", "Place", "Commit", "Confirmed by a test", "Remark", "Source"]
    return section("Fixes", "fixes", stacked_table(header, rows) if rows else None)


def _commits(session: Session) -> str:
    rows = []
    for commit in session.commits:
        size = [
            many(commit.files, "file") if commit.files is not None else "",
            f"+{commit.insertions}" if commit.insertions is not None else "",
            f"−{commit.deletions}" if commit.deletions is not None else "",
        ]
        rows.append(
            [
                anchor(f"commits.{commit.id}")
                + (code(commit.sha) if commit.sha else inline(commit.id)),
                optional(commit.title),
                inline(commit.role),
                optional(commit.branch),
                " ".join(part for part in size if part),
                cite(commit.source),
            ]
        )
    header = ["Commit", "Title", "Role", "Branch", "Size", "Source"]
    return section("Commits", "commits", stacked_table(header, rows) if rows else None)


def _evidence(index: Index, session: Session, here: str) -> str:
    anchors = index.anchors(session)
    rows = [
        [
            (anchor(place) if (place := anchors.get(edge.evidence)) else "")
            + index.link(at.pattern_page(edge.evidence.pattern), here)
            + ("" if edge.evidence.pattern in index.patterns else " (no such pattern)"),
            *evidence_cells(index, edge, here),
        ]
        for edge in index.evidence(session)
    ]
    header = ["Pattern", *EVIDENCE]
    return section(
        "Evidence for patterns",
        "evidence",
        stacked_table(header, rows, {3, 4, 5}) if rows else None,
    )


def _size(name: str, value: Quantity) -> str:
    """How large something is; without the name where that is the unit."""
    has_name = str(value).endswith(f" {name}")
    return inline(value) if has_name else f"{in_words(name)}: {inline(value)}"


def _deliverables(session: Session) -> str:
    rows = [
        [
            anchor(f"deliverables.{item.id}") + inline(item.title),
            chip(item.state),
            optional(item.about),
            "; ".join(_size(key, value) for key, value in item.sizes.items()),
            cite(item.source),
        ]
        for item in session.deliverables
    ]
    header = ["What", "State", "For", "Size", "Source"]
    return section("Deliverables", "deliverables", stacked_table(header, rows) if rows else None)


def _notes(index: Index, session: Session) -> str:
    text = notes(index.base, session.id)
    if not text:
        return ""
    here = at.session_page(session.id)
    figure = in_html(index, session.id, here)
    file = files_beside(index, index.base.sessions[session.id].path, here)
    return section("Notes", "notes", rendered(text, "notes", 3, figure, file))


def _sources(session: Session) -> str:
    rows = [
        [
            anchor(f"sources.{at.fragment(name)}") + code(name),
            inline(source.file),
            inline(source.about),
            outward(source.url) if source.url else "",
        ]
        for name, source in session.sources.items()
    ]
    key = "What stands behind a figure in small type, as `name:lines`."
    body = join([key, stacked_table(["Name", "File", "About", "Where"], rows)]) if rows else None
    return section("Source files", "sources", body)
