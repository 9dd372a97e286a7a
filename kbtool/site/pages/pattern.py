"""The table of patterns, and the page of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from kbtool.ledger.faults import bug_at
from kbtool.ledger.patterns import (
    STANDINGS,
    VERDICTS,
    Account,
    Span,
    TimedStep,
    saving_text,
    time_text,
)
from kbtool.ledger.worth import gained_before, in_short, machine_of, newest
from kbtool.markdown.escape import block, code, inline, prose
from kbtool.markdown.figures import many
from kbtool.markdown.markup import (
    anchor,
    bullets,
    chip,
    facts,
    heading,
    join,
    muted,
    nothing,
    optional,
    stacked_table,
)
from kbtool.model.ablation import Edit
from kbtool.model.pattern import Pattern
from kbtool.site import addresses as at
from kbtool.site.index import BugCase, Index, Judged
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.bug import lost_in_all
from kbtool.site.pages.mutants import change, file_link
from kbtool.site.pages.recipe import command, steps
from kbtool.site.pages.symptoms import of_pattern
from kbtool.site.parts import (
    EVIDENCE,
    backlinks,
    cite,
    claims,
    crumb,
    evidence_cells,
    last,
    page_title,
    section,
    session_cell,
    unknowns,
    why_unknown,
)
from kbtool.site.text.quoted import line
from kbtool.steps.ablate.report import factor
from kbtool.store.sources import line_of, place_file


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.PATTERNS, partial(listing, index))
    for pattern in index.patterns.values():
        yield Page(at.pattern_page(pattern.id), partial(page, index, pattern))


PAGES = Pages(_pages, at.PATTERNS, "Patterns")


FOR = ("discovered", "applied", "proved")
AGAINST = ("contradicted", "not_reproduced")


def verdicts(account: Account) -> str:
    """How many sessions gave each verdict, the strongest first: ``2 proved, 1 contradicted``."""
    counts = [f"{account.count(v)} {v.replace('_', ' ')}" for v in VERDICTS if account.count(v)]
    return ", ".join(counts) or "no evidence recorded"


def listing(index: Index) -> str:
    """Every pattern, best standing first, with its evidence."""
    if not index.patterns:
        return join([page_title("Patterns"), nothing(
            "There are no patterns yet: each is one YAML file under `patterns/`."
        )])  # fmt: skip
    rows = []
    for account in index.accounts.values():
        pattern = account.pattern
        page = at.pattern_page(pattern.id)
        rows.append(
            [
                f"{at.link(inline(pattern.title), page, at.PATTERNS)} {muted(inline(pattern.id))}",
                inline(pattern.summary),
                inline(in_short(index.worths.get(pattern.id, ())) or "–"),
                verdicts(account),
                chip(account.standing),
            ]
        )
    header = ["Pattern", "Lesson", "Gain", "Evidence", "Verdict"]
    return join(
        [
            page_title("Patterns"),
            "By rank: the verdict, then the number of sessions that proved it, that applied it,"
            " then minutes saved, which its page has. Gain: the time without the technique ÷ the"
            " time with it, last measured by the recipe `ablate`. Evidence counts sessions."
            " `kbtool patterns` prints them with what each saved and lost.",
            stacked_table(header, rows),
            bullets(f"{chip(name)} {inline(why)}" for name, why in STANDINGS.items()),
        ]
    )


def _minutes(span: Span | None) -> str:
    return f"{inline(span)} min" if span is not None else "–"


def page(index: Index, pattern: Pattern) -> str:
    """One pattern, with the evidence for and against it."""
    here = at.pattern_page(pattern.id)
    link = index.terms.linker(here)
    return join(
        [
            page_title(inline(f"{pattern.id} {pattern.title}")),
            crumb(here, at.PATTERNS, "Patterns", pattern.id, index.base.patterns[pattern.id].path),
            link(inline(pattern.summary)),
            _summary(index, pattern, here),
            link(_stated(pattern, "Problem", "problem")),
            link(_stated(pattern, "Solution", "solution")),
            link(_rules(pattern)),
            link(_list(pattern, "When to use it", "when_to_use")),
            link(_list(pattern, "When not", "when_not")),
            link(_lessons(index, pattern, here)),
            _symptoms(index, pattern, here),
            _in_code(index, pattern, here),
            _worth(index, pattern, here),
            _recipes(index, pattern, here),
            _evidence(index, pattern, here),
            _put_back(index, pattern, here),
            _superseding(index, pattern, here),
            _step_times(index, pattern, here),
            claims(index, pattern),
            unknowns(pattern),
            _sources(pattern),
            backlinks(index, here),
        ]
    )


def _summary(index: Index, pattern: Pattern, here: str) -> str:
    def patterns(ids: list[str]) -> str:
        return ", ".join(index.link(at.pattern_page(p), here, inline(p)) for p in ids)

    stated = ", ".join(
        index.link(
            at.session_page(name), here,
            inline(index.sessions[name].label if name in index.sessions else name),
        )
        for name in pattern.stated_in
    )  # fmt: skip
    bugs = [index.link(at.bug_page(*bug_at(reference, "")), here) for reference in pattern.bugs]
    decisions = [
        at.link(index.decisions[number][1], index.decisions[number][0], here)
        for number in pattern.decisions
        if number in index.decisions
    ]
    machines = {inline(worth.machine) for worth in index.worths.get(pattern.id, ())}
    for reference in pattern.bugs:
        if case := index.bugs.get(bug_at(reference, "")):
            machines.update(_machines(_judged(index, case)))
    account = index.accounts[pattern.id]
    saved, lost = account.claimed("saved"), account.claimed("lost")
    timed = account.timed()
    return facts(
        [
            ("Standing", f"{chip(account.standing)} {inline(STANDINGS[account.standing])}"),
            ("Evidence", f"[{verdicts(account)}](#evidence)"),
            ("Saved, as claimed", _minutes(saved) if saved else ""),
            ("Lost, as claimed", _minutes(lost) if lost else ""),
            ("Money saved, as claimed", _claimed_money(account)),
            ("Expected to save", _expected(account)),
            ("Lost to bugs with its symptoms", ", ".join(_lost(index, pattern, here))),
            (
                "Saved, by step times",
                "" if timed is None else f"[{saving_text(timed)}](#step-times)",
            ),
            ("Stated status", chip(pattern.stated_status)),
            ("Supersedes", patterns([older.pattern for older in pattern.supersedes])),
            ("Superseded by", patterns(account.superseded_by)),
            ("Related", patterns(pattern.related)),
            ("Needs", patterns(pattern.needs)),
            ("Does not go together with", patterns(pattern.conflicts)),
            ("Taught by bugs", ", ".join(bugs)),
            ("Decisions", ", ".join(decisions)),
            ("Seen on", ", ".join(sorted(machines))),
            ("Described in", stated),
        ]
    )


def _claimed_money(account: Account, *, expected: bool = False) -> str:
    sums = sorted(account.claimed_money(expected=expected).items())
    return " + ".join(f"{inline(span)} {inline(currency)}" for currency, span in sums)


def _expected(account: Account) -> str:
    saved = account.claimed("saved", expected=True)
    parts = [_minutes(saved) if saved else "", _claimed_money(account, expected=True)]
    return ", ".join(part for part in parts if part)


def _lessons(index: Index, pattern: Pattern, here: str) -> str:
    """The lessons that became it, each with its session."""
    rows = [
        f"{line(index, lesson, session.id, here)} ({index.link(place, here)})"
        for place, (session, lesson) in index.lessons_of(pattern).items()
    ]
    return section("Lessons that became it", "lessons", bullets(rows) if rows else None)


def _stated(pattern: Pattern, title: str, name: str) -> str:
    text = getattr(pattern, name)
    if text is None:
        return section(title, name, _not_stated(pattern, name))
    return section(title, name, prose(text))


def _list(pattern: Pattern, title: str, name: str) -> str:
    items = getattr(pattern, name)
    if not items:
        return section(title, name, _not_stated(pattern, name))
    return section(title, name, bullets(inline(item) for item in items))


def _not_stated(pattern: Pattern, name: str) -> str:
    if why_unknown(pattern, name):
        return f"Unknown: {inline(pattern.unknown[name])}"
    return nothing("None stated.")


def _rules(pattern: Pattern) -> str:
    lines = [
        f"{anchor(f'rules.{rule.id}')}{inline(rule.text)} {cite(rule.source)}".strip()
        for rule in pattern.rules
    ]
    return section("Rules", "rules", "\n".join(f"1. {line}" for line in lines))


def _lost(index: Index, pattern: Pattern, here: str) -> list[str]:
    """The time lost to bugs whose error message shows a symptom, each linked to its bug."""
    faults = {id(case.meetings): case for case, _ in index.showing(pattern)}
    return [
        at.link(lost, case.page, here) for case in faults.values() if (lost := lost_in_all(case))
    ]


def _symptoms(index: Index, pattern: Pattern, here: str) -> str:
    shown: list[str | None] = [bullets(map(inline, pattern.signs))]
    for symptom in pattern.symptoms:
        bugs = [case for case, match in index.showing(pattern) if match.symptom is symptom]
        shown += [
            anchor(f"symptoms.{symptom.id}") + f"Matched by {code(symptom.match)},"
            f" as in: {cite(symptom.source)}",
            block(symptom.example),
            f"First thing to do: {inline(symptom.advice)}" if symptom.advice else None,
            "Seen in: "
            + ", ".join(index.link(case.page, here, inline(case.title)) for case in bugs)
            if bugs
            else None,
        ]
    return section("Symptoms", "symptoms", *shown, of_pattern(index, pattern.id, here))


def _in_code(index: Index, pattern: Pattern, here: str) -> str:
    """The smallest code that shows it, and where it stands in the sources, or why in none."""
    shown = [block(pattern.code)] if pattern.code else []
    for place in pattern.places:
        edit = Edit(file=place.file, find=place.text, put="")
        path, text = place_file(index.base, place)
        name = code(path)
        if place.commit is not None:
            stays = any(one.commit is None for one in pattern.places)
            told = "which brought it" if stays else "taken out since"
            name += f" of commit {code(place.commit[:12])}, {told}"
        elif place.kernel is not None:
            name = file_link(index, place.kernel, edit, here)
        number = line_of(place.text, text)
        shown += [f"In {name}{f', line {number}' if number else ''}:", block(place.text)]
    if pattern.no_places:
        shown.append(f"In no source: {inline(pattern.no_places)}")
    return section("In code", "code", *shown)


def _worth(index: Index, pattern: Pattern, here: str) -> str:
    """What the technique gains on each machine, over time, and the edits that take it out."""
    title, name = "What it gains", "gains"
    if not pattern.ablations:
        return section(title, name, inline(pattern.not_ablated) if pattern.not_ablated else None)
    found = index.worths.get(pattern.id, [])
    newest_of = {id(worth) for worth in newest(found)}
    rows = [
        [
            code(worth.one.ablation.id),
            inline(worth.machine),
            chip("none any more" if gained_before(found, worth) else worth.verdict),
            factor(worth.one.gain),
            f"{worth.gains} of {len(worth.one.cases)}" if worth.one.cases else "",
            index.run_link(worth.run, here)
            + (f" {muted('the newest')}" if id(worth) in newest_of else ""),
        ]
        for worth in found[:NEWEST]
    ]
    header = ["Without it", "Machine", "Effect", "Ratio", "Cases that gain", "Run"]
    edits = []
    for one in pattern.ablations:
        edits += [
            heading(3, inline(one.id), f"ablations.{one.id}"),
            f"{inline(one.about)} Target {code(one.target)}.",
        ]
        for edit in one.edits:
            edits += [f"In {file_link(index, one.kernel, edit, here)}:", block(change(edit))]
    command = f"kbtool run-recipe ablate --set patterns={pattern.id}"
    return section(
        title, name,
        "The ratio is the time without the technique ÷ the time with it, in the geometric mean over"
        " the cases: above 1 it gains. A case gains if every round shows it, by 1 % or more."
        if rows
        else nothing("Nothing was measured yet."),
        stacked_table(header, rows, {3, 4}) if rows else None,
        f"To measure it on your machine: {code(command)}.",
        *edits,
    )  # fmt: skip


def _recipes(index: Index, pattern: Pattern, here: str) -> str:
    shown = []
    for recipe in pattern.recipes:
        page = at.recipe_page(recipe.name)
        shown += [
            heading(3, index.link(page, here), f"recipes.{recipe.name}"),
            prose(recipe.about) if recipe.about else None,
            *steps(index, recipe, settings=False),
            block(command(recipe)),
        ]
    if not shown:
        return section("Recipes", "recipes", nothing("The pattern has no recipe."))
    return section("Recipes", "recipes", *shown)


def _evidence(index: Index, pattern: Pattern, here: str) -> str:
    edges = index.accounts[pattern.id].edges
    if not edges:
        return section("Evidence", "evidence", nothing(
            "No session's record says that the pattern was applied, proved or contradicted."
        ))  # fmt: skip
    blocks: list[str | None] = []
    for title, name, among in (
        ("For", "evidence-for", FOR), ("Against", "evidence-against", AGAINST)
    ):  # fmt: skip
        matching = [edge for edge in edges if edge.verdict in among]
        shown, more = last(matching, NEWEST, f"kbtool patterns {pattern.id}")
        rows = [
            [
                session_cell(index, edge.session, here),
                *evidence_cells(index, edge, here),
            ]
            for edge in shown
        ]
        header = ["Session", *EVIDENCE]
        blocks += [
            heading(3, title, name),
            stacked_table(header, rows, {3, 4, 5}) if rows else nothing("None recorded."),
            more,
        ]
    return section("Evidence", "evidence", *blocks)


def _put_back(index: Index, pattern: Pattern, here: str) -> str:
    """Whether validation found the edits that put its bugs back, in the newest run of each."""
    rows = []
    for reference in pattern.bugs:
        case = index.bugs.get(bug_at(reference, ""))
        judged = _judged(index, case) if case else []
        if case and judged:
            found = sum(one.one.verdict == "killed" for one in judged)
            runs = {one.run.id: one.run for one in judged}.values()
            rows.append(
                [
                    index.link(case.page, here),
                    f"{found} of {len(judged)}",
                    ", ".join(_machines(judged)),
                    ", ".join(index.run_link(run, here) for run in runs),
                ]
            )
    header = ["Bug put back", "Edits that validation found", "Machine", "Newest runs"]
    return section("Bugs put back", "put-back", stacked_table(header, rows, {1}) if rows else None)


def _judged(index: Index, case: BugCase) -> list[Judged]:
    names = (mutant.id for mutant in case.bug.mutants)
    return [index.judged[name] for name in names if name in index.judged]


def _machines(judged: Iterable[Judged]) -> list[str]:
    names = {machine_of(one.run, one.one.mutant.target) for one in judged}
    return [inline(name) for name in sorted(names)]


def _superseding(index: Index, pattern: Pattern, here: str) -> str:
    """What it replaced, what replaced it, since when and why."""
    newer = [index.patterns[name] for name in index.accounts[pattern.id].superseded_by]
    edges = [("Supersedes", older.pattern, older) for older in pattern.supersedes]
    edges += [
        ("Superseded by", one.id, edge)
        for one in newer
        for edge in one.supersedes
        if edge.pattern == pattern.id
    ]
    rows = [
        [
            how,
            index.link(at.pattern_page(other), here),
            session_cell(index, index.sessions[edge.since], here)
            if edge.since in index.sessions else optional(edge.since),
            optional(edge.reason),
            cite(edge.source),
        ]
        for how, other, edge in edges
    ]  # fmt: skip
    body = stacked_table(["How", "Pattern", "Since", "Why", "Source"], rows) if rows else None
    return section("What replaced what", "superseding", body)


NEWEST = 100
"""The most step times, and the most sessions for and against, on a page."""


def _step_times(index: Index, pattern: Pattern, here: str) -> str:
    account = index.accounts[pattern.id]
    if not account.steps:
        return section("Step times", "step-times", nothing(
            "No step of a session names the pattern, and no recipe of it was run."
        ))  # fmt: skip
    counted = account.counted
    rows = [
        [
            _where(index, step, here),
            inline(step.step),
            time_text(step.planned),
            time_text(step.took),
            saving_text(step.saved),
        ]
        for step in counted[-NEWEST:]
    ]
    reasons = Counter(step.left_out for step in account.steps if step.left_out)
    more = f"The last {NEWEST} are listed." if len(counted) > NEWEST else None
    header = ["Where", "Step", "Planned", "Took", "Saved or lost"]
    return section(
        "Step times", "step-times",
        _in_all(account), more,
        stacked_table(header, rows, {2, 3, 4}) if rows else None,
        "Not counted:" if reasons else None,
        bullets(
            f"{many(count, 'step')}: {inline(why)}" for why, count in reasons.most_common()
        ),
    )  # fmt: skip


def _where(index: Index, step: TimedStep, here: str) -> str:
    if step.run is not None:
        return index.run_link(step.run, here)
    return session_cell(index, index.sessions[step.session], here)


def _in_all(account: Account) -> str:
    counted = f"{len(account.counted)} of {many(len(account.steps), 'step')} counted"
    money = account.timed_money_text()
    at_price = f"; at the cost of their sessions per minute, {inline(money)}" if money else ""
    return f"In all {saving_text(account.timed())}: {counted}{at_price}."


def _sources(pattern: Pattern) -> str:
    rows = [
        [code(name), inline(s.file), inline(s.about), code(s.url) if s.url else ""]
        for name, s in pattern.sources.items()
    ]
    body = stacked_table(["Name", "File", "About", "Where"], rows) if rows else None
    return section("Source files", "sources", body)
