"""The table of bugs, and the page of each."""

from __future__ import annotations

from collections import Counter

from kbtool.site import addresses as at
from kbtool.site.escape import block, code, inline, prose
from kbtool.site.figures import many
from kbtool.site.index import OPEN, BugCase, Index
from kbtool.site.markup import (
    anchor,
    bullets,
    chip,
    facts,
    join,
    muted,
    nothing,
    outward,
    slim_table,
    stacked_table,
)
from kbtool.site.pages import mutants
from kbtool.site.paging import Part
from kbtool.site.parts import (
    backlinks,
    cite,
    crumb,
    fixed_place,
    optional,
    page_title,
    section,
    session_cell,
    why_unknown,
    yes_no,
)


def listing(index: Index, part: Part) -> str:
    """A page of the bugs, the last met first; a status is derived from the fixes."""
    if not index.bugs:
        return join([page_title("Bugs"), nothing("No session's record names a bug.")])
    rows = [
        [
            index.link(case.page, part.here),
            chip(case.status),
            inline(case.bug.symptom or "") or muted(f"Cause: {inline(case.bug.cause)}")
            if case.bug.symptom or case.bug.cause
            else "",
            session_cell(index, case.session, part.here),
            ", ".join(_fixers(index, case, part.here)),
            ", ".join(
                index.link(at.bug_page(again.id, bug.id), part.here, inline(again.label))
                for again, bug in case.recurrences
            ),
            optional(case.bug.minutes_lost),
            ", ".join(_words(index, case)),
        ]
        for case in part.rows(list(reversed(index.bugs.values())))
    ]
    header = [
        "Bug", "Status", "Symptom", "Recorded in", "Fixed in", "Met again in", "Lost", "Put back",
    ]  # fmt: skip
    count = sum(case.is_open for case in index.bugs.values())
    statuses = Counter(
        "met again" if case.recurrences and case.status in OPEN else case.status
        for case in index.bugs.values()
    )
    return join(
        [
            page_title(f"Bugs{part.suffix}"),
            f"{many(len(index.bugs), 'bug')}, {count} open. A bug is fixed as soon as a fix refers"
            " to it, unless the record says that no test confirmed the fix; until then it stands as"
            " its session left it; unknown where no record says what became of it, or that it was"
            " ever met here. Of a bug met again, the newest meeting speaks. Put back: what"
            " validation makes of the edits that bring the bug back, in the newest run of each.",
            facts((chip(word), str(count)) for word, count in statuses.most_common()),
            stacked_table(header, rows, {6}),
            part.turn(),
        ]
    )


def page(index: Index, case: BugCase) -> str:
    """One bug: what was seen, why, and what became of it."""
    bug, session, here = case.bug, case.session, case.page
    before = index.bugs.get(index.bug_key(bug.recurrence_of, session.id))
    why = why_unknown(session, f"bugs.{bug.id}.cause")
    reason = session.unknown.get(f"bugs.{bug.id}.cause")
    link = index.terms.linker(here)
    symptom = link(prose(bug.symptom)) if bug.symptom else nothing("The record gives none.")
    cause = link(prose(bug.cause)) if bug.cause else None
    if cause is None and why:
        cause = f"Unknown: {inline(reason)}"
    return join(
        [
            page_title(inline(bug.title)),
            crumb(here, at.BUGS, "Bugs", f"{session.id}#bugs.{bug.id}"),
            facts(
                [
                    ("Status", chip(case.status)),
                    ("As the session left it", chip(bug.status) if case.fixes else ""),
                    (
                        "Recorded in",
                        at.link(
                            inline(session.label), f"{at.session_page(session.id)}#bugs.{bug.id}",
                            here,
                        ),
                    ),
                    ("Component", optional(bug.component)),
                    ("Time lost", optional(bug.minutes_lost)),
                    ("Recurrence of", index.link(before.page, here) if before else ""),
                    ("Fixed in", ", ".join(_fixers(index, case, here))),
                    ("Put back", _put_back(index, case)),
                ]
            ),
            _source(case),
            section("Symptom", "symptom", symptom),
            section("Error message", "error", block(bug.error_text) if bug.error_text else None),
            section("Cause", "cause", cause or nothing("The record gives none.")),
            _hypotheses(case),
            _fixes(index, case, here),
            mutants.edits(index, case, here),
            section(
                "Met again", "recurrences",
                bullets(
                    index.link(at.bug_page(again.id, other.id), here)
                    + f" in {session_cell(index, again, here)}"
                    for again, other in case.recurrences
                ),
            ),
            backlinks(index, here),
        ]
    )  # fmt: skip


def _fixers(index: Index, case: BugCase, here: str) -> list[str]:
    return list(dict.fromkeys(session_cell(index, by, here) for by, _ in case.fixes))


def _source(case: BugCase) -> str | None:
    """What the bug is known from: where that has an address, it too."""
    if not case.bug.source:
        return None
    source = case.session.sources.get(case.bug.source.partition(":")[0])
    parts = [cite(case.bug.source)]
    if source:
        parts += [inline(source.about), outward(source.url) if source.url else ""]
    return f"Source: {' · '.join(part for part in parts if part)}"


def _words(index: Index, case: BugCase) -> list[str]:
    """What validation makes of the bug's edits: a target, and each word once."""
    words: dict[str, dict[str, None]] = {}
    for mutant in case.bug.mutants:
        judged = index.judged.get(mutant.id)
        word = mutants.verdict(judged.one) if judged else "never run"
        words.setdefault(mutant.target, {})[chip(word)] = None
    return [f"{inline(target)} {' '.join(said)}" for target, said in words.items()]


def _put_back(index: Index, case: BugCase) -> str:
    count = len(case.bug.mutants)
    said = f"[{many(count, 'edit')}](#mutants) " if count else ""
    return said + ", ".join(_words(index, case))


def _hypotheses(case: BugCase) -> str:
    rows = [
        [
            anchor(f"hypotheses.{at.fragment(item.id)}") + inline(item.statement),
            optional(item.likelihood),
            chip(item.verdict) if item.verdict != "open" else "open",
            optional(item.note),
            cite(item.source),
        ]
        for item in case.bug.hypotheses
    ]
    header = ["Hypothesis", "Held likely", "Verdict", "Remark", "Source"]
    body = slim_table(header, rows, {1}) if rows else None
    return section("Hypotheses", "hypotheses", body)


def _fixes(index: Index, case: BugCase, here: str) -> str:
    rows = [
        [
            at.link(inline(session.label), f"{at.session_page(session.id)}#fixes", here),
            inline(fix.change),
            fixed_place(index, fix.place, here),
            code(fix.commit) if fix.commit else "",
            yes_no(fix.confirmed, "not recorded"),
            optional(fix.note),
            cite(fix.source),
        ]
        for session, fix in case.fixes
    ]
    header = ["Session", "Change", "Place", "Commit", "Confirmed by a test", "Remark", "Source"]
    body = slim_table(header, rows) if rows else None
    return section("Fixes", "fixes", body or nothing("No session's record has a fix for it."))
