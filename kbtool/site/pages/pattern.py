"""The table of patterns, and the page of each."""

from __future__ import annotations

from collections import Counter

from kbtool.model.pattern import Pattern
from kbtool.site import addresses as at
from kbtool.site.escape import block, code, inline, prose
from kbtool.site.index import Index
from kbtool.site.markup import (
    anchor,
    bullets,
    chip,
    facts,
    heading,
    join,
    nothing,
    slim_table,
    table,
)
from kbtool.site.pages.recipe import command, steps_table
from kbtool.site.parts import (
    backlinks,
    cite,
    claims,
    crumb,
    optional,
    page_title,
    section,
    session_cell,
    unknowns,
    why_unknown,
)

FOR = ("discovered", "applied", "proved")
AGAINST = ("contradicted", "not_reproduced")


def standing(verdicts: Counter[str]) -> str:
    """The verdicts in words, most telling first: ``2 proved, 3 applied, 1 contradicted``."""
    order = ("proved", "applied", "contradicted", "not_reproduced", "discovered")
    said = [f"{verdicts[v]} {v.replace('_', ' ')}" for v in order if verdicts[v]]
    return ", ".join(said) or "no evidence recorded"


def listing(index: Index) -> str:
    """Every pattern with its standing, which is derived from the evidence."""
    if not index.patterns:
        return join([page_title("Patterns"), nothing(
            "There are no patterns yet: each is one YAML file under `patterns/`."
        )])  # fmt: skip
    rows = []
    for pattern in index.patterns.values():
        verdicts = index.standing(pattern.id)
        rows.append(
            [
                index.link(at.pattern_page(pattern.id), at.PATTERNS, inline(pattern.id)),
                inline(pattern.title),
                inline(pattern.summary),
                *(str(verdicts[v] or "–") for v in ("applied", "proved", "contradicted")),
                chip("superseded" if index.superseded_by[pattern.id] else pattern.stated_status),
                ", ".join(
                    index.link(at.recipe_page(r.name), at.PATTERNS, inline(r.name))
                    for r in pattern.recipes
                )
                or "–",
            ]
        )
    header = [
        "Pattern", "Title", "Lesson", "Applied", "Proved", "Contradicted", "Status", "Recipe"
    ]  # fmt: skip
    return join(
        [
            page_title("Patterns"),
            "Applied, proved and contradicted count what the sessions' records say, not what"
            " anybody says of the pattern.",
            table(header, rows, {3, 4, 5}),
        ]
    )


def page(index: Index, pattern: Pattern) -> str:
    """One pattern, with the evidence for and against it."""
    here = at.pattern_page(pattern.id)
    return join(
        [
            page_title(inline(f"{pattern.id} {pattern.title}")),
            crumb(here, at.PATTERNS, "Patterns", pattern.id, index.base.patterns[pattern.id].path),
            inline(pattern.summary),
            _summary(index, pattern, here),
            _stated(pattern, "Problem", "problem"),
            _stated(pattern, "Solution", "solution"),
            _rules(pattern),
            _list(pattern, "When to use it", "when_to_use"),
            _list(pattern, "When not", "when_not"),
            _symptoms(pattern),
            _recipes(index, pattern, here),
            _evidence(index, pattern, here),
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
    return facts(
        [
            ("Standing", f"[{standing(index.standing(pattern.id))}](#evidence)"),
            ("Stated status", chip(pattern.stated_status)),
            ("Supersedes", patterns(pattern.supersedes)),
            ("Superseded by", patterns(index.superseded_by[pattern.id])),
            ("Related", patterns(pattern.related)),
            ("Described in", stated),
        ]
    )


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


def _symptoms(pattern: Pattern) -> str:
    shown = []
    for symptom in pattern.symptoms:
        shown += [
            anchor(f"symptoms.{symptom.id}") + f"Matched by {code(symptom.match)},"
            f" as in: {cite(symptom.source)}",
            block(symptom.example),
            f"First thing to do: {inline(symptom.advice)}" if symptom.advice else None,
        ]
    return section("Symptoms", "symptoms", *shown)


def _recipes(index: Index, pattern: Pattern, here: str) -> str:
    shown = []
    for recipe in pattern.recipes:
        page = at.recipe_page(recipe.name)
        shown += [
            heading(3, index.link(page, here), f"recipes.{recipe.name}"),
            prose(recipe.about) if recipe.about else None,
            steps_table(recipe),
            block(command(recipe)),
        ]
    if not shown:
        return section(
            "Recipes", "recipes", nothing("The pattern has no recipe: nothing runs it by itself.")
        )
    return section("Recipes", "recipes", *shown)


def _evidence(index: Index, pattern: Pattern, here: str) -> str:
    edges = index.evidence.get(pattern.id, [])
    if not edges:
        return section("Evidence", "evidence", nothing(
            "No session's record says that the pattern was applied, proved or contradicted."
        ))  # fmt: skip
    blocks = []
    for title, name, verdicts in (
        ("For", "evidence-for", FOR), ("Against", "evidence-against", AGAINST)
    ):  # fmt: skip
        rows = [
            [
                f"{session_cell(index, session, here)}",
                chip(edge.verdict.replace("_", " ")),
                inline(edge.note),
                optional(edge.saved),
                optional(edge.lost),
                optional(edge.money),
                cite(edge.source),
            ]
            for session, edge in edges
            if edge.verdict in verdicts
        ]
        header = ["Session", "Verdict", "What happened", "Saved", "Lost", "Money", "Source"]
        blocks += [
            heading(3, title, name),
            slim_table(header, rows, {3, 4, 5}) if rows else nothing("None recorded."),
        ]
    return section("Evidence", "evidence", *blocks)


def _sources(pattern: Pattern) -> str:
    rows = [
        [code(name), inline(s.file), inline(s.about), code(s.url) if s.url else ""]
        for name, s in pattern.sources.items()
    ]
    body = slim_table(["Name", "File", "About", "Where"], rows) if rows else None
    return section("Source files", "sources", body)
