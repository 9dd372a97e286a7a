"""The table of sessions, and the page of each."""

from __future__ import annotations

from kbtool.model.session import Decision, Measurement, Plan, Session
from kbtool.site import addresses as at
from kbtool.site.escape import code, inline
from kbtool.site.figures import headline, minutes
from kbtool.site.index import Index
from kbtool.site.markup import (
    anchor,
    bullets,
    chip,
    facts,
    heading,
    join,
    nothing,
    nowrap,
    slim_table,
    table,
)
from kbtool.site.parts import (
    backlinks,
    cite,
    claimed,
    claims,
    crumb,
    optional,
    page_title,
    section,
    session_cell,
    turned,
    unknowns,
    why_unknown,
    yes_no,
)
from kbtool.site.prose import rendered
from kbtool.site.quoted import in_html, line, paragraphs
from kbtool.site.sums import stated, unstated
from kbtool.store.prose import notes


def listing(index: Index) -> str:
    """Every session, in the order of the work."""
    if not index.sessions:
        return join(
            [page_title("Sessions"), nothing(
                "There are no sessions yet. `kbtool session new TITLE` starts one."
            )]
        )  # fmt: skip
    rows = []
    for session in index.sessions.values():
        rows.append(
            [
                session_cell(index, session, at.SESSIONS),
                nowrap(session.day) if session.day else "undated",
                inline(session.title),
                chip(session.status),
                minutes(session.minutes) if session.minutes is not None else "unknown",
                stated([session]),
                inline(_clipped(session.outcome or "")) or "–",
            ]
        )
    header = ["Session", "Date", "Title", "Status", "Time", "Money stated", "Outcome"]
    return join(
        [
            page_title("Sessions"),
            "In the order of the work: each after the one that it follows.",
            table(header, rows, {4, 5}),
        ]
    )


def _clipped(text: str, longest: int = 240) -> str:
    words = " ".join(text.split())
    return words if len(words) <= longest else words[:longest].rsplit(" ", 1)[0] + " …"


def page(index: Index, session: Session) -> str:
    """One session, with everything that its record says."""
    here = at.session_page(session.id)
    return join(
        [
            page_title(inline(f"{session.label}: {session.title}")),
            crumb(here, at.SESSIONS, "Sessions", session.id, index.base.sessions[session.id].path),
            _summary(index, session, here),
            _neighbours(index, session, here),
            *(
                section(name.capitalize(), name, paragraphs(index, text, session.id, here))
                for name in ("objective", "outcome")
                if (text := getattr(session, name))
            ),
            _environment(session),
            _steps(session),
            _costs(session),
            _runs(index, session, here),
            _measurements(session),
            _bugs(index, session, here),
            _fixes(index, session, here),
            _commits(session),
            _decisions(index, session),
            _evidence(index, session, here),
            claims(index, session),
            _plans(index, session),
            _deliverables(session),
            section(
                "Lessons",
                "lessons",
                bullets(line(index, lesson, session.id, here) for lesson in session.lessons),
            ),
            unknowns(session),
            _notes(index, session),
            _sources(session),
            backlinks(index, here),
        ]
    )


def _summary(index: Index, session: Session, here: str) -> str:
    reason = why_unknown(session, "duration")
    money = stated([session]) if session.costs else ""
    met = [index.bugs[session.id, bug.id] for bug in session.bugs]
    is_open = sum(case.is_open for case in met)
    return facts(
        [
            ("Status", chip(session.status)),
            ("Date", session.day or "undated"),
            ("Began", optional(session.started) or why_unknown(session, "started")),
            ("Ended", optional(session.ended) or why_unknown(session, "ended")),
            ("Time", minutes(session.minutes) if session.minutes is not None else reason),
            ("Time box", optional(session.budget_time)),
            ("Money", f"[{money}](#costs)" if money else why_unknown(session, "costs")),
            ("Cost not stated", unstated(session)),
            ("Money box", optional(session.budget_money)),
            ("Engineer", optional(session.engineer)),
            ("Kernels", ", ".join(index.link(at.kernel_page(k), here) for k in session.kernels)),
            ("Own mark", optional(session.grade)),
            ("Bugs met", f"[{len(met)}, {is_open} open](#bugs)" if met else ""),
            ("Record", _ORIGINS[session.origin]),
        ]
    )  # fmt: skip


_ORIGINS = {
    "log": "transcribed from its log",
    "mention": "known from other logs only",
    "tool": "made by kbtool",
    "person": "written by hand",
}


def _neighbours(index: Index, session: Session, here: str) -> str:
    said = []
    if session.follows:
        said.append(f"Before: {index.link(at.session_page(session.follows), here)}")
    after = index.followers.get(session.id)
    if after:
        links = ", ".join(index.link(at.session_page(s.id), here) for s in after)
        said.append(f"After: {links}")
    return " · ".join(said)


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
        slim_table(["What", "Value", "Source"], rows)
        if rows
        else nothing("The record states nothing of it.")
    )
    return section(f"{place}Environment", "environment", body)


def _steps(session: Session) -> str:
    rows = [
        [
            anchor(f"steps.{step.id}") + inline(step.title),
            optional(step.target),
            optional(step.actual) or why_unknown(session, f"steps.{step.id}.actual"),
            _overrun(step.target, step.actual),
            chip(step.status),
            optional(step.note),
            cite(step.source),
        ]
        for step in session.steps
    ]
    header = ["Step", "Target", "Actual", "Difference", "Status", "Remark", "Source"]
    return section("Steps", "steps", slim_table(header, rows, {1, 2, 3}) if rows else None)


def _overrun(target: object, actual: object) -> str:
    from kbtool.model.base import Quantity

    if not (isinstance(target, Quantity) and isinstance(actual, Quantity)):
        return ""
    if target.high is not None or actual.high is not None:
        return ""
    late = actual.minutes - target.minutes
    return f"{'+' if late > 0 else '−' if late < 0 else '±'}{minutes(abs(late))}"


def _costs(session: Session) -> str:
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
    header = ["For", "Amount", "Basis", "Time", "Rate", "Card", "Remark", "Source"]
    added = f"Sum of what is stated: **{stated([session])}**"
    body = slim_table(header, rows, {1, 3, 4}) if rows else nothing("The record has no cost lines.")
    return section("Costs", "costs", body, added if rows else None)


def _runs(index: Index, session: Session, here: str) -> str:
    rows = [
        [
            index.link(at.run_page(run.session, run.id), here, code(run.id)),
            index.link(at.recipe_page(run.recipe), here, inline(run.recipe)),
            chip(run.status),
            inline(headline(run)),
        ]
        for run in index.runs_of(session=session.id)
    ]
    return section(
        "Runs", "runs", table(["Run", "Recipe", "Status", "Result"], rows) if rows else None
    )


def _measurements(session: Session) -> str:
    tables = []
    for number, measurement in enumerate(session.measurements):
        first = all(m.id != measurement.id for m in session.measurements[:number])
        tables.append(_measurement(session, measurement, first))
    return section("Measurements", "measurements", *tables)


def _measurement(session: Session, measurement: Measurement, first: bool) -> str:
    prefix = f"measurements.{measurement.id}"
    keys = list(dict.fromkeys(key for row in measurement.rows for key in row.case))
    header = [
        "Case", *map(inline, keys),
        *(inline(column.title) + (f" ({inline(column.unit)})" if column.unit else "")
          for column in measurement.columns.values()),
        "Verdict", "Remark",
    ]  # fmt: skip
    rows = []
    seen: set[str] = set()
    for row in measurement.rows:
        place = anchor(f"{prefix}.{row.id}") if first and row.id not in seen else ""
        seen.add(row.id)
        figures = []
        for column in measurement.columns:
            figure = row.values.get(column)
            reason = why_unknown(session, f"{prefix}.{row.id}.{column}")
            figures.append(inline(f"{figure:f}") if figure is not None else reason)
        rows.append(
            [
                place + inline(row.id),
                *(inline(row.case.get(key, "")) for key in keys),
                *figures,
                chip(row.verdict) if row.verdict else "",
                optional(row.note),
            ]
        )
    start = 1 + len(keys)
    about = [inline(measurement.kind), optional(measurement.about)]
    if measurement.artifact:
        about.append(f"measured: {inline(measurement.artifact)}")
    about.append({
        True: "validated before it was measured",
        False: "**not validated** before it was measured",
        None: "whether it was validated before is not recorded",
    }[measurement.validated])  # fmt: skip
    about.append(cite(measurement.source))
    return join(
        [
            heading(3, inline(measurement.title), prefix if first else f"{prefix}-again"),
            " · ".join(part for part in about if part),
            slim_table(header, rows, range(start, start + len(measurement.columns))),
        ]
    )


def _bugs(index: Index, session: Session, here: str) -> str:
    rows = []
    for bug in session.bugs:
        case = index.bugs[session.id, bug.id]
        fixed_in = ", ".join(dict.fromkeys(session_cell(index, by, here) for by, _ in case.fixes))
        rows.append(
            [
                anchor(f"bugs.{bug.id}")
                + "".join(anchor(f"bugs.{bug.id}.{h.id}") for h in bug.hypotheses)
                + index.link(case.page, here),
                chip(case.status),
                optional(bug.symptom),
                optional(bug.cause) or why_unknown(session, f"bugs.{bug.id}.cause"),
                optional(bug.minutes_lost),
                fixed_in,
                cite(bug.source),
            ]
        )
    header = ["Bug", "Status", "Symptom", "Cause", "Lost", "Fixed in", "Source"]
    return section("Bugs", "bugs", slim_table(header, rows, {4}) if rows else None)


def _fixes(index: Index, session: Session, here: str) -> str:
    rows = []
    for fix in session.fixes:
        bug = at.bug_of(fix.bug, session.id)
        target = at.bug_page(*bug) if bug else ""
        rows.append(
            [
                index.link(target, here) if target in index.titles else code(fix.bug),
                inline(fix.change),
                code(fix.place) if fix.place else "",
                code(fix.commit) if fix.commit else "",
                yes_no(fix.confirmed),
                optional(fix.note),
                cite(fix.source),
            ]
        )
    header = ["Bug", "Change", "Place", "Commit", "Confirmed by a test", "Remark", "Source"]
    return section("Fixes", "fixes", slim_table(header, rows) if rows else None)


def _commits(session: Session) -> str:
    rows = []
    for commit in session.commits:
        size = [
            f"{commit.files} files" if commit.files is not None else "",
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
    return section("Commits", "commits", slim_table(header, rows) if rows else None)


def _decisions(index: Index, session: Session) -> str:
    made = (_decision(index, session, decision) for decision in session.decisions)
    return section("Decisions", "decisions", *made)


def _decision(index: Index, session: Session, decision: Decision) -> str:
    prefix = f"decisions.{decision.id}"
    rows = []
    for option in decision.options:
        taken = option.id == decision.chosen
        figures = "; ".join(f"{inline(k)} {inline(v)}" for k, v in option.figures.items())
        rows.append(
            [
                anchor(f"{prefix}.{option.id}")
                + (f"**{inline(option.title)}**" if taken else inline(option.title)),
                "taken" if taken else "not taken" if decision.chosen else "open",
                optional(option.detail),
                figures,
                cite(option.source),
            ]
        )
    verdict = "" if decision.chosen else why_unknown(session, f"{prefix}.chosen")
    reason = f"Why: {inline(decision.reason)}" if decision.reason else None
    return join(
        [
            heading(3, inline(decision.question), prefix),
            slim_table(["Option", "Taken", "Grounds", "Figures", "Source"], rows) if rows else None,
            f"No choice recorded: {verdict}" if verdict else None,
            reason,
            turned(index, session, prefix),
            cite(decision.source),
        ]
    )


def _evidence(index: Index, session: Session, here: str) -> str:
    anchors = index.anchors(session)
    rows = [
        [
            (anchor(place) if (place := anchors.get(edge)) else "")
            + index.link(at.pattern_page(edge.pattern), here)
            + ("" if edge.pattern in index.patterns else " (no such pattern)"),
            chip(edge.verdict.replace("_", " ")),
            line(index, edge.note, session.id, here),
            *claimed(edge),
            cite(edge.source),
        ]
        for edge in session.evidence
    ]
    header = ["Pattern", "Verdict", "What happened", "Saved", "Lost", "Money", "Source"]
    return section(
        "Evidence for patterns", "evidence", slim_table(header, rows, {3, 4, 5}) if rows else None
    )


def _plans(index: Index, session: Session) -> str:
    return section("Plans", "plans", *(_plan(index, session, plan) for plan in session.plans))


def _plan(index: Index, session: Session, plan: Plan) -> str:
    prefix = f"plans.{plan.id}"
    about = [
        f"for {inline(plan.for_session)}" if plan.for_session else "",
        f"time {inline(plan.target)}" if plan.target else "",
        f"budget {inline(plan.budget)}" if plan.budget else "",
        *(f"{inline(key)} {inline(value)}" for key, value in plan.figures.items()),
    ]
    rows = [
        [anchor(f"{prefix}.{s.id}") + inline(s.title), optional(s.target), optional(s.detail)]
        for s in plan.steps
    ]
    expected = [f"Expected: {inline(item)}" for item in plan.expected]
    return join(
        [
            heading(3, inline(plan.title), prefix),
            " · ".join(part for part in about if part),
            slim_table(["Step", "Time", "How"], rows, {1}) if rows else None,
            bullets(expected),
            turned(index, session, prefix),
            cite(plan.source),
        ]
    )


def _deliverables(session: Session) -> str:
    rows = [
        [
            anchor(f"deliverables.{item.id}") + inline(item.title),
            chip(item.state),
            optional(item.about),
            "; ".join(f"{inline(key)}: {inline(value)}" for key, value in item.sizes.items()),
            cite(item.source),
        ]
        for item in session.deliverables
    ]
    header = ["What", "State", "For", "Size", "Source"]
    return section("Deliverables", "deliverables", slim_table(header, rows) if rows else None)


def _notes(index: Index, session: Session) -> str:
    text = notes(index.base, session.id)
    if not text:
        return ""
    figure = in_html(index, session.id, at.session_page(session.id))
    return section("Notes", "notes", rendered(text, "notes", 3, figure))


def _sources(session: Session) -> str:
    rows = [
        [
            code(name),
            inline(source.file),
            inline(source.about),
            code(source.url) if source.url else "",
        ]
        for name, source in session.sources.items()
    ]
    body = slim_table(["Name", "File", "About", "Where"], rows) if rows else None
    return section("Source files", "sources", body)
