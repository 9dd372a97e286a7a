"""The table of bugs, and the page of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial, reduce

from kbtool.ledger.faults import bug_at
from kbtool.ledger.patterns import Span
from kbtool.markdown.escape import block, code, inline, prose
from kbtool.markdown.figures import many
from kbtool.markdown.markup import (
    anchor,
    chip,
    clipped,
    facts,
    folded,
    join,
    muted,
    nothing,
    optional,
    outward,
    stacked_table,
)
from kbtool.model.base import Quantity
from kbtool.model.bug import Bug
from kbtool.site import addresses as at
from kbtool.site.index import OPEN, BugCase, Index
from kbtool.site.pages import mutants
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import (
    backlinks,
    cite,
    confirmed,
    crumb,
    fixed_place,
    page_title,
    patterns_of,
    section,
    session_cell,
    status_chip,
    why_unknown,
)


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.BUGS, partial(listing, index))
    for case in index.bugs.values():
        yield Page(case.page, partial(page, index, case))


PAGES = Pages(_pages, at.BUGS, "Bugs")


def listing(index: Index) -> str:
    """Every bug: open ones first, the most recent first."""
    latest = index.newest_bugs
    edits = [case for case in latest if is_edit_alone(case)]
    met = [case for case in latest if not is_edit_alone(case)]
    still = [case for case in met if case.is_open]
    others = [case for case in met if not case.is_open]
    statuses = Counter(case.status for case in met)
    nowhere = "No bug is unresolved." if latest else "No session's record names a bug."
    counts = {word: sum(case.status == word for case in still) for word in OPEN_WORDS}
    told = ", ".join(f"{count} {OPEN_WORDS[word]}" for word, count in counts.items() if count)
    unresolved = f"{len(still)} unresolved: {told}" if still else "none unresolved"
    about = f"{many(len(met), 'bug')}, {unresolved}."
    as_edits = (
        f"{many(len(edits), 'more bug')} of which records have a cause and the edit that puts it"
        f" into the sources (a mutant), to see whether validation finds it. {_NEVER_MET}"
    )
    return join(
        [
            page_title("Bugs"),
            about if latest else None,
            folded("How the status is found", _STATUSES) if latest else None,
            facts(
                [
                    *(
                        (status_chip(word), f"[{count}](#{'open' if word in OPEN else 'others'})")
                        for word, count in statuses.most_common()
                    ),
                    ("known only as edits", f"[{len(edits)}](#edits)" if edits else ""),
                ]
            ),
            section(
                "Unresolved", "open",
                _table(index, still) or nothing(nowhere),
            ),
            section(
                "The others", "others",
                _table(index, others),
            ),
            section(
                "Known only as edits", "edits",
                as_edits, _edits(index, edits),
            ) if edits else None,
        ]
    )  # fmt: skip


OPEN_WORDS = {"open": "open", "fix unconfirmed": "with a fix that no test confirmed"}
"""The statuses of unresolved bugs, in a sentence."""

_STATUSES = (
    "A bug is fixed by its last fix, unless the record says that no test confirmed it, or the bug"
    " recurred in a later session. Recurred: no later fix is known; its status is that of the"
    " newest recurrence. Every other bug has the status that its session left; unknown if no record"
    " gives one. Put back: the verdict of validation on the edits that put the bug back, in the"
    " newest run of each."
)


def _status(index: Index, case: BugCase, here: str) -> str:
    """What became of a bug; of one that recurred and is open there, where."""
    newest, bug = case.meetings[-1]
    if case.status == "met again" and index.bugs[newest.id, bug.id].status == "open":
        return f"{chip('open')}, recurred in {'; '.join(_again(index, case, here))}"
    return status_chip(case.status)


def _table(index: Index, cases: Sequence[BugCase]) -> str | None:
    here = at.BUGS
    rows = [
        [
            index.link(case.page, here),
            status_chip(case.status),
            _seen(case.bug),
            session_cell(index, case.session, here),
            "; ".join(_fixers(index, case, here)),
            "; ".join(_again(index, case, here)),
            optional(case.bug.minutes_lost),
            ", ".join(_words(index, case)),
        ]
        for case in cases
    ]
    header = [
        "Bug", "Status", "Symptom", "Recorded in", "Fixed in", "Recurred in", "Lost", "Put back",
    ]  # fmt: skip
    # Empty cells have text, so that both tables have the same columns.
    filled = [[cell or "–" for cell in row] for row in rows]
    return stacked_table(header, filled, {6}) if rows else None


def is_edit_alone(case: BugCase) -> bool:
    """Whether nothing is known of a bug but how to put it into the sources."""
    bug = case.bug
    return (
        case.status == "unknown"
        and bool(bug.mutants)
        and len(case.meetings) == 1
        and not (bug.symptom or bug.error_text or bug.minutes_lost or bug.hypotheses)
    )


_NEVER_MET = "No record says that the sources ever had it, so its status is unknown."


def _edits(index: Index, cases: Sequence[BugCase]) -> str:
    rows = [
        [
            index.link(case.page, at.BUGS),
            inline(clipped(case.bug.cause or "", _SEEN)),
            session_cell(index, case.session, at.BUGS),
            ", ".join(_words(index, case)),
        ]
        for case in cases
    ]
    return stacked_table(["Bug", "Cause", "Recorded in", "Put back"], rows)


def _seen(bug: Bug) -> str:
    """The symptom, or else the cause; shortened, because the list has many."""
    if bug.symptom:
        return inline(clipped(bug.symptom, _SEEN))
    return muted(f"Cause: {inline(clipped(bug.cause, _SEEN))}") if bug.cause else ""


_SEEN = 160
"""The most characters of a symptom in the list."""


def page(index: Index, case: BugCase) -> str:
    """One bug: symptom, cause and status."""
    bug, session, here = case.bug, case.session, case.page
    earlier = bug.recurrence_of
    before = index.bugs.get(bug_at(earlier, session.id)) if earlier else None
    why = why_unknown(session, f"bugs.{bug.id}.cause")
    reason = session.unknown.get(f"bugs.{bug.id}.cause")
    link = index.terms.linker(here)
    symptom = link(prose(bug.symptom)) if bug.symptom else nothing("The record gives none.")
    cause = link(prose(bug.cause)) if bug.cause else None
    if cause is None and why:
        cause = f"Unknown: {inline(reason)}"
    lost = lost_in_all(case) if len(case.meetings) > 1 else ""
    status, again = _status(index, case, here), "; ".join(_again(index, case, here))
    return join(
        [
            page_title(inline(case.title)),
            crumb(here, at.BUGS, "Bugs", f"{session.id}#bugs.{bug.id}"),
            facts(
                [
                    ("Status", status),
                    (
                        "As the session left it",
                        chip(bug.status) if bug.status != case.status else "",
                    ),
                    (
                        "Recorded in",
                        session_cell(
                            index, session, here, f"{at.session_page(session.id)}#bugs.{bug.id}"
                        ),
                    ),
                    (
                        "Recurrence of",
                        index.link(before.page, here, inline(before.title)) if before else "",
                    ),
                    ("Recurred in", "" if again in status else again),
                    ("Component", optional(bug.component)),
                    ("Time lost", optional(bug.minutes_lost)),
                    ("Lost in all", f"[{lost}](#recurrences)" if lost else ""),
                    ("Fixed in", "; ".join(_fixers(index, case, here))),
                    ("Cause sought in", "; ".join(_searches(index, case, here))),
                    ("Error known to", ", ".join(_known(index, case, here))),
                    ("Became pattern", patterns_of(index, here)),
                    ("Put back", _put_back(index, case)),
                ]
            ),
            f"Known only as an edit. {_NEVER_MET}" if is_edit_alone(case) else None,
            section("Symptom", "symptom", symptom),
            section("Error message", "error", block(bug.error_text) if bug.error_text else None),
            section("Cause", "cause", cause or nothing("The record gives none.")),
            _source(case),
            _meetings(index, case, here),
            _hypotheses(index, case, here),
            _fixes(index, case, here),
            mutants.edits(index, case, here),
            backlinks(index, here),
        ]
    )  # fmt: skip


def lost_in_all(case: BugCase) -> str:
    """The time lost to a bug in all sessions, and the sessions that do not state it; empty if none
    does."""
    times: list[Span] = []
    stated: dict[str, None] = {}
    silent: dict[str, None] = {}
    for session, bug in case.meetings:
        lost = bug.minutes_lost
        (silent if lost is None else stated)[session.label] = None
        if lost is not None:
            times.append(Span.of(lost, Quantity.MINUTES[lost.unit]))
    if not times:
        return ""
    total = f"{inline(reduce(Span.__add__, times))} min over {many(len(stated), 'session')}"
    if not silent:
        return total
    return f"{total}; {inline(', '.join(silent))} {'does' if len(silent) == 1 else 'do'} not say"


def _meetings(index: Index, case: BugCase, here: str) -> str:
    """Every session with this bug: what it did about it, and the total time lost."""
    if len(case.meetings) == 1:
        return ""
    rows = []
    for session, bug in case.meetings:
        other = index.bugs[session.id, bug.id]
        counts = Counter(item.verdict for item in bug.hypotheses)
        judged = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        rows.append(
            [
                session_cell(index, session, here),
                "this one" if other is case else index.link(other.page, here, inline(bug.title)),
                status_chip(other.status),
                inline(clipped(bug.cause or "")) or "unknown",
                at.link(judged, f"{other.page}#hypotheses", here) if judged else "",
                optional(bug.minutes_lost) or "not said",
            ]
        )
    lost = lost_in_all(case)
    return section(
        "Occurrences", "recurrences",
        stacked_table(["Session", "Bug", "Status", "Cause", "Hypotheses", "Lost"], rows, {5}),
        f"Time lost in all: **{lost}**." if lost else None,
    )  # fmt: skip


def _again(index: Index, case: BugCase, here: str) -> list[str]:
    """The later recurrences: each session, linked to its bug."""
    return [
        session_cell(index, session, here, at.bug_page(session.id, bug.id))
        for session, bug in case.recurrences
    ]


def _searches(index: Index, case: BugCase, here: str) -> list[str]:
    """The sessions whose runs judged hypotheses, and the recipes of those runs."""
    runs = index.searches(case)
    sessions = dict.fromkeys(run.session for run in runs)
    recipes = dict.fromkeys(run.recipe for run in runs if run.recipe)
    return [
        session_cell(index, index.sessions[name], here)
        for name in sessions
        if name in index.sessions
    ] + [f"recipe {index.link(at.recipe_page(name), here, inline(name))}" for name in recipes]


def _known(index: Index, case: BugCase, here: str) -> list[str]:
    """The patterns with a symptom that the error message shows."""
    return [
        index.link(f"{at.pattern_page(match.pattern.id)}#symptoms", here, inline(match.pattern.id))
        for match in index.recognised[case.session.id, case.bug.id]
        if match.pattern is not None
    ]


def _fixers(index: Index, case: BugCase, here: str) -> list[str]:
    return list(dict.fromkeys(session_cell(index, by, here) for by, _ in case.fixes))


def _source(case: BugCase) -> str | None:
    """The sources of the bug, linked if they have an address."""
    if not case.bug.source:
        return None
    source = case.session.sources.get(case.bug.source.partition(":")[0])
    parts = [cite(case.bug.source)]
    if source:
        parts += [inline(source.about), outward(source.url) if source.url else ""]
    return f"Source: {' · '.join(part for part in parts if part)}"


def _words(index: Index, case: BugCase) -> list[str]:
    """The verdicts of validation on the bug's edits, by target, each once."""
    words: dict[str, dict[str, None]] = {}
    for mutant in case.bug.mutants:
        judged = index.judged.get(mutant.id)
        word = mutants.verdict(judged.one) if judged else "never run"
        words.setdefault(mutant.target, {})[chip(word)] = None
    return [f"{inline(target)} {' '.join(verdicts)}" for target, verdicts in words.items()]


def _put_back(index: Index, case: BugCase) -> str:
    count = len(case.bug.mutants)
    edits = f"[{many(count, 'edit')}](#mutants) " if count else ""
    return edits + ", ".join(_words(index, case))


def _hypotheses(index: Index, case: BugCase, here: str) -> str:
    rows = [
        [
            anchor(f"hypotheses.{at.fragment(item.id)}") + inline(item.statement),
            optional(item.likelihood),
            chip(item.verdict) if item.verdict != "open" else "open",
            optional(item.note),
            _cited(index, case, item.source, here),
        ]
        for item in case.bug.hypotheses
    ]
    header = ["Hypothesis", "Thought likely", "Verdict", "Remark", "Source"]
    body = stacked_table(header, rows, {1}) if rows else None
    return section("Hypotheses", "hypotheses", body)


def _cited(index: Index, case: BugCase, source: str | None, here: str) -> str:
    """A citation, linked to its run if it names one."""
    run = index.cited_run(case.session, source)
    if run is None:
        return cite(source)
    return index.link(at.run_page(run.session, run.id), here, cite(source))


def _fixes(index: Index, case: BugCase, here: str) -> str:
    rows = [
        [
            session_cell(index, session, here, f"{at.session_page(session.id)}#fixes"),
            inline(fix.change),
            fixed_place(index, fix.place, here),
            code(fix.commit) if fix.commit else "",
            confirmed(index, session, fix, here, "not recorded"),
            optional(fix.note),
            cite(fix.source),
        ]
        for session, fix in case.fixes
    ]
    header = ["Session", "Change", "Place", "Commit", "Confirmed by a test", "Remark", "Source"]
    body = stacked_table(header, rows) if rows else None
    return section("Fixes", "fixes", body or nothing("No session's record has a fix for it."))
