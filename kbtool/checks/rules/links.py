"""Links have a target, and chains of links have no cycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbtool.checks.excuses import Forgotten
from kbtool.checks.facts import BUG_ROLES, PATTERN_ROLES, SESSION_ROLES, Facts, Location, Ref, fact
from kbtool.checks.rules.names import label
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.pattern import Pattern
    from kbtool.model.session import Session


@fact("pattern", empty=[])
def decisions(pattern: Pattern) -> list[int]:
    """The numbers of a pattern's decisions."""
    return pattern.decisions


@fact("session", empty=[])
def lessons(session: Session) -> list[str]:
    """What a session learned."""
    return session.lessons


class LearnedFacts(NamedTuple):
    """A lesson that a pattern names."""

    location: Location
    session: str
    text: str


@fact("pattern", LearnedFacts)
def learned(pattern: Pattern) -> Iterator[LearnedFacts]:
    """The lessons that became a pattern."""
    for place, one in enumerate(pattern.lessons):
        yield LearnedFacts(["lessons", place, "text"], one.session, one.text)


def links_lead_somewhere(tree: Tree) -> Iterator[Finding]:
    """Every link names an existing record, and a path that exists in it. A session may still name
    the patterns and kernels of a recipe that was forgotten."""
    gone = Forgotten(tree)
    for facts in tree.facts:
        for ref in facts.refs:
            named = gone.kernels if ref.role == "kernel" else gone.patterns
            if facts.kind == "session" and ref.role in _OF_THE_PAST and ref.target in named:
                continue  # it was there then, and was deleted with its recipe
            problem = _broken(tree, ref)
            if problem is not None:
                yield tree.at(facts, ref.location, "link", problem)


_OF_THE_PAST = frozenset(("evidence", "evidence against", "step", "kernel"))
"""Links of a session that say what it worked with."""


def decisions_are_written_down(tree: Tree) -> Iterator[Finding]:
    """Every decision that a pattern names is a page under docs/adr/."""
    pages = (re.fullmatch(r"docs/adr/(\d{4})-[^/]+\.md", facts.path) for facts in tree.facts)
    written = {int(page[1]) for page in pages if page}
    for facts in tree.patterns.values():
        for place, number in enumerate(decisions.of(facts)):
            if number not in written:
                message = f"there is no decision {number}: no docs/adr/{number:04}-*.md"
                yield tree.at(facts, ["decisions", place], "link", message)


def lessons_are_there(tree: Tree) -> Iterator[Finding]:
    """The words of a lesson that a pattern names stand in exactly one lesson of its session."""
    for facts in tree.patterns.values():
        for one in learned.of(facts):
            session = tree.sessions.get(one.session)
            if session is None or not session.valid:
                continue  # another finding says so
            words = " ".join(one.text.split())
            count = sum(words in " ".join(lesson.split()) for lesson in lessons.of(session))
            if count != 1:
                among = f"{count} lessons" if count else "no lesson"
                message = f"these words stand in {among} of {one.session}; quote one of its lessons"
                yield tree.at(facts, one.location, "link", message)


def sessions_follow_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No session follows itself, directly or through others."""
    edges = _edges(tree.sessions.values(), "follows")
    for circle in _cycles(edges):
        yield _circle(tree, tree.sessions[circle[0]], "follows", circle)


def patterns_supersede_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No pattern supersedes itself, directly or through others."""
    edges = _edges(tree.patterns.values(), "supersedes")
    for circle in _cycles(edges):
        yield _circle(tree, tree.patterns[circle[0]], "supersedes", circle)


def superseded_patterns_rest(tree: Tree) -> Iterator[Finding]:
    """No record made after a pattern was superseded relies on it, nor is its recipe run.

    A session that speaks against the pattern may cite it and run its recipe: it tried it again.
    """
    for newer in tree.patterns.values():
        since = {ref.location[1]: ref.target for ref in newer.refs if ref.role == "since"}
        for ref in newer.refs:
            session = since.get(ref.location[1]) if ref.role == "supersedes" else None
            if session is not None:
                yield from _still_cited(tree, ref.target, newer.id, session)


def _still_cited(tree: Tree, old: str, newer: str, since: str) -> Iterator[Finding]:
    later = _later(tree, since)
    replaced = f"{old}, which {newer} superseded in {since}"
    hint = "; if it was tried again, record that as evidence (contradicted, not_reproduced)"
    silent = set()
    for id_ in later:
        facts = tree.sessions[id_]
        cited = [ref for ref in facts.refs if ref.target.partition("#")[0] == old]
        if any(ref.role == "evidence against" for ref in cited):
            continue
        silent.add(id_)
        for ref in cited:
            yield tree.at(facts, ref.location, "superseded", f"relies on {replaced}{hint}")
    for facts in tree.patterns.values():
        stated = [ref.target for ref in facts.refs if ref.role == "stated_in"]
        if facts.id == newer or not stated or not later.issuperset(stated):
            continue
        for ref in facts.refs:
            if ref.target.partition("#")[0] == old and ref.role != "supersedes":
                yield tree.at(facts, ref.location, "superseded", f"leads to {replaced}")
    for facts in tree.runs:
        if facts.run.get("pattern") == old and facts.run["session"] in silent:
            recipe = facts.run["recipe"]
            message = f"ran {recipe!r}, a recipe of {replaced}{hint} in {facts.run['session']}"
            yield Finding(facts.path, 1, "superseded", message)


def _later(tree: Tree, since: str) -> set[str]:
    """The sessions known to come after ``since``: by what follows what, else by their days."""
    before = {since}
    followers: dict[str, list[str]] = {}
    follows = _edges(tree.sessions.values(), "follows")
    for id_, earlier in follows.items():
        followers.setdefault(earlier[0], []).append(id_)
    walk = since
    while walk in follows and follows[walk][0] not in before:
        walk = follows[walk][0]
        before.add(walk)
    waiting = list(followers.get(since, []))
    if since[0].isdigit():
        waiting += [id_ for id_ in tree.sessions if id_[0].isdigit() and id_[:10] > since[:10]]
    later: set[str] = set()
    while waiting:
        id_ = waiting.pop()
        if id_ in tree.sessions and id_ not in later and id_ not in before:
            later.add(id_)
            waiting.extend(followers.get(id_, []))
    return later


def bugs_recur_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No bug is a recurrence of itself, directly or through others."""
    edges: dict[str, list[str]] = {}
    places: dict[str, tuple[Facts, Location]] = {}
    for facts in tree.sessions.values():
        for name, target, location in facts.bugs:
            source = f"{facts.id}#{name}"
            edges.setdefault(source, []).append(target)
            places[source] = (facts, location)
    for circle in _cycles(edges):
        facts, location = places[circle[0]]
        round_ = " → ".join([*circle, circle[0]])
        yield tree.at(facts, location, "cycle", f"recurrence_of runs in a circle: {round_}")


def claims_derive_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No claim derives from itself, directly or through others, within or across records."""
    edges: dict[str, list[str]] = {}
    places: dict[str, tuple[Facts, Location]] = {}
    for facts in (*tree.sessions.values(), *tree.patterns.values()):
        for claim, target, location in facts.claims:
            source = f"{facts.id}#claims.{claim}"
            id_, _, path = target.partition("#")
            found = path if not id_ else _claim_in(tree, id_, path)
            if found is not None:
                edges.setdefault(source, []).append(f"{id_ or facts.id}#claims.{found}")
                places.setdefault(source, (facts, location))
    for circle in _cycles(edges):
        facts, location = places[circle[0]]
        round_ = " → ".join([*circle, circle[0]])
        yield tree.at(facts, location, "cycle", f"a claim derives from itself: {round_}")


def _broken(tree: Tree, ref: Ref) -> str | None:
    """The problem with a link, or ``None``."""
    id_, mark, path = ref.target.partition("#")
    if ref.role == "label":
        called = [facts.id for facts in tree.sessions.values() if label.of(facts) == id_]
        if len(called) != 1:
            return None  # the schema says what is wrong
        return f"{id_} is the label of {called[0]}; write {called[0]}{mark}{path}"
    if ref.role == "kernel":
        known = ", ".join(sorted(tree.kernels)) or "none"
        return (
            None if id_ in tree.kernels else f"there is no kernel {id_!r}; the kernels are {known}"
        )
    if ref.role in SESSION_ROLES and id_ not in tree.sessions:
        return f"there is no session {id_!r}"
    if ref.role in PATTERN_ROLES and id_ not in tree.patterns:
        return f"there is no pattern {id_!r}"
    target = tree.record(id_)
    if target is None:
        return f"there is no record {id_!r}"
    if not path or not target.valid:
        return None
    found = target.answers[path]
    if not found.type:
        return f"{ref.target}: {found.problem}"
    if ref.role in BUG_ROLES and found.type != "Bug":
        return f"{ref.target} is not a bug; write {id_}#bugs.ID"
    return None


def _claim_in(tree: Tree, id_: str, path: str) -> str | None:
    """The claim of another record that ``path`` leads to, if it leads to one."""
    target = tree.record(id_)
    if target is None or not target.valid:
        return None
    return target.answers[path].claim or None


def _edges(records: Iterable[Facts], role: str) -> dict[str, list[str]]:
    return {
        facts.id: targets
        for facts in records
        if (targets := [ref.target for ref in facts.refs if ref.role == role])
    }


def _circle(tree: Tree, facts: Facts, key: str, circle: list[str]) -> Finding:
    round_ = " → ".join([*circle, circle[0]])
    return tree.at(facts, [key], "cycle", f"{key} runs in a circle: {round_}")


def _cycles(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Each circle that a walk along ``edges`` closes, from its least member on."""
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        trail: list[str] = []
        position: dict[str, int] = {}
        walks: list[Iterator[str]] = [iter((start,))]
        while walks:
            node = next(walks[-1], None)
            if node is None:
                walks.pop()
                if trail:
                    done.add(trail[-1])
                    del position[trail.pop()]
            elif node in position:
                cycle = trail[position[node] :]
                least = cycle.index(min(cycle))
                yield cycle[least:] + cycle[:least]
            elif node not in done and node in edges:
                position[node] = len(trail)
                trail.append(node)
                walks.append(iter(edges[node]))


RULES: tuple[Rule, ...] = (
    links_lead_somewhere,
    decisions_are_written_down,
    lessons_are_there,
    sessions_follow_in_a_line,
    patterns_supersede_in_a_line,
    superseded_patterns_rest,
    bugs_recur_in_a_line,
    claims_derive_in_a_line,
)
