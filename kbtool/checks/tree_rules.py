"""Rules that hold between records: one generator a rule, its docstring the rule.

They see facts only: what a link or a figure leads to inside a record is among the answers of its
facts by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property

from kbtool.checks.facts import (
    BUG_ROLES,
    PATTERN_ROLES,
    SESSION_ROLES,
    Facts,
    FigureFacts,
    InvoiceFacts,
    Location,
    MutantFacts,
    Ref,
)
from kbtool.checks.prose_rules import judged, own_record
from kbtool.model.cards import are_unlike
from kbtool.model.edit import edited
from kbtool.model.finding import Finding
from kbtool.model.validation import Validation, contradiction, still_wrong
from kbtool.store.includes import includes
from kbtool.store.lock import is_locked
from kbtool.store.scan import Scan, inside


@dataclass
class Tree:
    """All files of a knowledge base, as the rules between records see them."""

    root: str
    scan: Scan
    facts: list[Facts]
    sessions: dict[str, Facts] = field(default_factory=dict)
    patterns: dict[str, Facts] = field(default_factory=dict)
    kernels: dict[str, Facts] = field(default_factory=dict)
    runs: list[Facts] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    """Paths of the files whose facts were added to."""

    def __post_init__(self) -> None:
        by_kind = {"session": self.sessions, "pattern": self.patterns, "kernel": self.kernels}
        for facts in self.facts:
            if facts.kind in by_kind:
                known = by_kind[facts.kind].setdefault(facts.id, facts)
                if facts.valid and not known.valid:
                    by_kind[facts.kind][facts.id] = facts
            elif facts.kind == "run":
                self.runs.append(facts)

    def at(self, facts: Facts, location: Location, rule: str, message: str) -> Finding:
        """A finding at a key of a file that was examined; the file is read again for the line."""
        from pathlib import Path

        from kbtool.store.document import DocumentError, parse, read_bytes

        line = 1
        if facts.kind != "run":
            try:
                raw = read_bytes(Path(self.root, facts.path), facts.path)
                line = parse(raw, facts.path).line(location)
            except DocumentError:
                pass  # it has changed under us; the rule was broken all the same
        return Finding(facts.path, line, rule, message)

    def record(self, id_: str) -> Facts | None:
        """The session, the pattern or the run of this id; of a run its last attempt."""
        return self.sessions.get(id_) or self.patterns.get(id_) or self.run_of.get(id_)

    def questions(self) -> dict[str, list[str]]:
        """Path of a file → paths in its record that others lead to, as yet without an answer."""
        asked: dict[str, set[str]] = {}
        for facts in self.facts:
            places = [ref.target for ref in facts.refs if ref.role not in {"label", "kernel"}]
            for figure in facts.figures:
                places += figure.of
            for place in places:
                id_, _, path = place.partition("#")
                target = self.record(id_) if path else None
                if target is not None and target.valid and path not in target.answers:
                    asked.setdefault(target.path, set()).add(path)
        return {path: sorted(paths) for path, paths in asked.items()}

    @cached_property
    def run_of(self) -> dict[str, Facts]:
        """Run id → its last attempt."""
        attempts = sorted(self.runs, key=lambda facts: facts.run.get("attempt", 0))
        return {facts.id: facts for facts in attempts}


Rule = Callable[[Tree], Iterator[Finding]]


def ids_are_unique(tree: Tree) -> Iterator[Finding]:
    """No two records of one kind have one id; no two files hold one attempt of a run."""
    seen: dict[Hashable, str] = {}
    for facts in tree.facts:
        if facts.kind in {"notes", "text"} or (facts.kind == "run" and not facts.run):
            continue
        key = (facts.kind, facts.id, facts.run.get("attempt"))
        if key in seen:
            message = f"{facts.id} stands in {seen[key]} already"
            yield tree.at(facts, ["id"], "unique", message)
        else:
            seen[key] = facts.path


def labels_are_unique(tree: Tree) -> Iterator[Finding]:
    """No two sessions have one label, unless nobody chose it: the name in the id is the default."""
    seen: dict[str, list[Facts]] = {}
    for facts in tree.sessions.values():
        if not facts.label:
            continue
        others = seen.setdefault(facts.label, [])
        if others and any(_chose_label(one) for one in (facts, *others)):
            message = f"session {others[0].id} has the label {facts.label!r} already"
            yield tree.at(facts, ["label"], "unique", message)
        others.append(facts)


def recipe_names_are_unique(tree: Tree) -> Iterator[Finding]:
    """A recipe's name belongs to one recipe in the whole knowledge base."""
    seen: dict[str, str] = {}
    for facts in tree.patterns.values():
        for recipe in facts.recipes:
            if recipe.name in seen:
                yield tree.at(
                    facts, [*recipe.location, "name"], "unique",
                    f"a recipe {recipe.name!r} stands in {seen[recipe.name]} already",
                )  # fmt: skip
            else:
                seen[recipe.name] = facts.path


def links_lead_somewhere(tree: Tree) -> Iterator[Finding]:
    """Every link names a record that is there, and a path that is in it."""
    for facts in tree.facts:
        for ref in facts.refs:
            problem = _broken(tree, ref)
            if problem is not None:
                yield tree.at(facts, ref.location, "link", problem)


def sessions_follow_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No session follows itself, directly or round a circle."""
    edges = _edges(tree.sessions.values(), "follows")
    for circle in _circles(edges):
        yield _circle(tree, tree.sessions[circle[0]], "follows", circle)


def patterns_supersede_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No pattern supersedes itself, directly or round a circle."""
    edges = _edges(tree.patterns.values(), "supersedes")
    for circle in _circles(edges):
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
    mend = "; if it was tried again, say so as evidence against it (contradicted, not_reproduced)"
    silent = set()
    for id_ in later:
        facts = tree.sessions[id_]
        cited = [ref for ref in facts.refs if ref.target.partition("#")[0] == old]
        if any(ref.role == "evidence against" for ref in cited):
            continue
        silent.add(id_)
        for ref in cited:
            yield tree.at(facts, ref.location, "superseded", f"relies on {replaced}{mend}")
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
            message = f"ran {recipe!r}, a recipe of {replaced}{mend} in {facts.run['session']}"
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
    """No bug is a recurrence of itself, directly or round a circle."""
    edges: dict[str, list[str]] = {}
    places: dict[str, tuple[Facts, Location]] = {}
    for facts in tree.sessions.values():
        for name, target, location in facts.bugs:
            source = f"{facts.id}#{name}"
            edges.setdefault(source, []).append(target)
            places[source] = (facts, location)
    for circle in _circles(edges):
        facts, location = places[circle[0]]
        round_ = " → ".join([*circle, circle[0]])
        yield tree.at(facts, location, "cycle", f"recurrence_of runs in a circle: {round_}")


def claims_derive_in_a_line(tree: Tree) -> Iterator[Finding]:
    """No claim derives from itself, directly or round a circle, within a record or across."""
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
    for circle in _circles(edges):
        facts, location = places[circle[0]]
        round_ = " → ".join([*circle, circle[0]])
        yield tree.at(facts, location, "cycle", f"a claim derives from itself: {round_}")


def sessions_end(tree: Tree) -> Iterator[Finding]:
    """A session that kbtool made and that is over has an end, unless a run in it is under way."""
    from pathlib import Path

    for facts in tree.sessions.values():
        if not facts.unended:
            continue
        runs = f"{facts.path.removesuffix('session.yaml')}runs/"
        journals = [path for path in tree.scan.journals if path.startswith(runs)]
        if not any(is_locked(Path(tree.root, path)) for path in journals):
            message = "is over and has a start, but no end: write ended"
            yield tree.at(facts, ["started"], "times", message)


def runs_lie_within_their_session(tree: Tree) -> Iterator[Finding]:
    """A run was made while its session lasted, unless it was made in another one and taken in."""
    there = {file.path for file in tree.scan.files}
    for facts in tree.runs:
        session = tree.sessions.get(facts.run.get("session", ""))
        # Of one that is about to be taken in, the import tells.
        if session is None or facts.run["taken_in"] or facts.path not in there:
            continue
        said = _outside(facts.run, session.times)
        if said is not None:
            yield Finding(
                facts.path, 1, "times",
                f"{said}: mend the times of {session.id}, with `stretches` where the work paused",
            )  # fmt: skip


def _outside(run: Mapping[str, str], times: Mapping[str, str]) -> str | None:
    """How a run lies outside the times of its session, or ``None``."""
    run_started, run_ended = (datetime.fromisoformat(run[key]) for key in ("started", "ended"))
    if "started" in times:
        began = datetime.fromisoformat(times["started"])
        if run_ended < began - _CLOCK:
            return f"was made before the session began ({times['started']})"
        if run_started < began - _CLOCK:
            return f"began before the session did ({times['started']})"
    if "ended" in times:
        ended = datetime.fromisoformat(times["ended"]) + _CLOCK
        if run_started > ended:
            return f"was made after the session ended ({times['ended']})"
        if run_ended > ended:
            return f"ended after the session did ({times['ended']})"
    return None


_CLOCK = timedelta(minutes=1)
"""Times are stated to the minute at times, and the clocks of two machines differ."""


def confirmed_fixes_stand_validation(tree: Tree) -> Iterator[Finding]:
    """Where the newest verdict of a session's validations is that a kernel is wrong, a fix that a
    test is said to have confirmed, of that kernel or of none, names what showed it."""
    made: dict[str, list[Validation]] = {}
    for facts in tree.runs:
        if facts.run.get("verdicts"):
            at = datetime.fromisoformat(facts.run["validated_at"])
            one = Validation(at, facts.run["kernel"], facts.id, facts.run["verdicts"])
            made.setdefault(facts.run["session"], []).append(one)
    for id_, validations in made.items():
        session = tree.sessions.get(id_)
        for location, kernel in session.confirmed if session else ():
            wrong = still_wrong(validations, kernel)
            if session and wrong:
                yield tree.at(
                    session, location, "unconfirmed",
                    f"is confirmed, and {contradiction(wrong)}; validate again, or name beside it"
                    " what showed that the fault was gone, shown_by: [RUN#steps.ID], or leave"
                    " confirmed out",
                )  # fmt: skip


def figures_agree_with_records(tree: Tree) -> Iterator[Finding]:
    """A figure in prose is the one that stands in the record that it names, at its own digits."""
    for facts in tree.facts:
        for figure in facts.figures:
            problem = _misquoted(tree, facts, figure)
            if problem is not None:
                yield Finding(facts.path, figure.line, "figure", problem)


def recipes_name_what_is_there(tree: Tree) -> Iterator[Finding]:
    """A recipe's kernel is in the knowledge base and has its targets and case sets."""
    for facts in tree.patterns.values():
        for recipe in facts.recipes:
            if recipe.kernel is None:
                continue
            kernel = tree.kernels.get(recipe.kernel)
            if kernel is None:
                known = ", ".join(sorted(tree.kernels)) or "none"
                message = f"there is no kernel {recipe.kernel!r}; there is {known}"
                yield tree.at(facts, [*recipe.location, "kernel"], "recipe", message)
                continue
            if not kernel.valid:
                continue
            for location, name in recipe.case_sets:
                if name not in kernel.names["case_sets"]:
                    known = ", ".join(kernel.names["case_sets"])
                    message = f"kernel {kernel.id} has no case set {name!r}; it has {known}"
                    yield tree.at(facts, location, "recipe", message)
            for location, name in recipe.targets:
                if name != "auto" and name not in kernel.names["targets"]:
                    known = ", ".join(["auto", *kernel.names["targets"]])
                    message = f"kernel {kernel.id} has no target {name!r}; it has {known}"
                    yield tree.at(facts, location, "recipe", message)


def commands_stay_inside(tree: Tree) -> Iterator[Finding]:
    """A command step runs, and leaves its products, inside the knowledge base."""
    root = os.path.realpath(tree.root)
    for facts in tree.patterns.values():
        for recipe in facts.recipes:
            for location, path in recipe.paths:
                if not _stays(root, path):
                    yield tree.at(facts, location, "path", _LEAVES.format(path, "knowledge base"))


def manifests_name_files(tree: Tree) -> Iterator[Finding]:
    """Every file that a kernel's manifest names is there, inside the kernel's own folder."""
    for facts in tree.kernels.values():
        folder = os.path.realpath(os.path.join(tree.root, os.path.dirname(facts.path)))  # noqa: PTH118, PTH120
        for location, path in facts.files:
            if not _stays(folder, path):
                yield tree.at(facts, location, "path", _LEAVES.format(path, "kernel's folder"))
            elif not os.path.isfile(os.path.join(folder, path)):  # noqa: PTH113, PTH118
                message = f"there is no file {path!r} in the kernel's folder"
                yield tree.at(facts, location, "manifest", message)


def manifests_list_what_is_included(tree: Tree) -> Iterator[Finding]:
    """Every file of a kernel's folder that a source or header of a target includes is listed by
    that target: a build is named by a hash of what the manifest lists."""
    for facts in tree.kernels.values():
        folder = os.path.join(tree.root, os.path.dirname(facts.path))  # noqa: PTH118, PTH120
        for target in facts.names.get("targets", ()):
            listed = {
                os.path.normpath(path): path
                for location, path in facts.files
                if location[:2] == ["targets", target] and _stays(os.path.realpath(folder), path)
            }
            for name, path in listed.items():
                try:
                    with open(os.path.join(folder, path), "rb") as file:  # noqa: PTH118, PTH123
                        text = file.read()
                except OSError:
                    continue  # the rule before this one tells
                for included in includes(name, text, listed, folder):
                    if included is not None and included not in listed:
                        yield tree.at(
                            facts, ["targets", target, "headers"], "manifest",
                            f"{name} includes {included}, which target {target} does not list;"
                            " add it to the target's headers",
                        )  # fmt: skip


def mutants_edit_what_is_there(tree: Tree) -> Iterator[Finding]:
    """A mutant's text stands exactly once in a source or header of its kernel's target, which has
    its variant; no two mutants have one id."""
    seen: dict[str, str] = {}
    for facts in tree.sessions.values():
        for mutant in facts.mutants:
            if mutant.id in seen:
                message = f"a mutant {mutant.id!r} stands in {seen[mutant.id]} already"
                yield tree.at(facts, [*mutant.location, "id"], "unique", message)
            seen.setdefault(mutant.id, facts.path)
            problem = _cannot_edit(tree, mutant)
            if problem is not None:
                key, message = problem
                yield tree.at(facts, [*mutant.location, key], "mutant", message)


def lines_take_rates_of_the_ledger(tree: Tree) -> Iterator[Finding]:
    """A rate that a cost line names is in the ledger, of its kind, of its price, of its day, and of
    no other card."""
    ledgers = [facts for facts in tree.facts if facts.kind == "ledger"]
    if any(not facts.valid for facts in ledgers):
        return
    prices = {name: price for facts in ledgers for name, price in facts.prices.items()}
    for facts in tree.sessions.values():
        for line in facts.rates:
            price = prices.get(line.id)
            if price is None:
                known = ", ".join(prices) or "none"
                said = f"there is no rate {line.id!r} in sessions/ledger.yaml; there is {known}"
            else:
                kind, rate, until, card = price
                if line.kind != kind:
                    said = f"{line.id} is a rate of {kind}, the line is of {line.kind}"
                elif line.rate != rate:
                    said = f"{line.id} is {rate}, the line says {line.rate}: name another"
                elif until is not None and line.day is not None and line.day > until:
                    said = f"{line.id} held until {until}; name the rate that replaced it"
                elif card is not None and line.card is not None and are_unlike(card, line.card):
                    said = (
                        f"{line.id} is the price of card {card}; the line pays for card"
                        f" {line.card}: name a rate of that card, or mend the card"
                    )
                else:
                    continue
            yield tree.at(facts, line.location, "rate", said)


def invoices_are_counted_once(tree: Tree) -> Iterator[Finding]:
    """No two cost lines have one invoice and one amount, unless their notes tell them apart."""
    seen: dict[Hashable, list[tuple[str, InvoiceFacts]]] = {}
    for facts in tree.sessions.values():
        for line in facts.invoices:
            others = seen.setdefault((line.number, Decimal(line.amount), line.currency), [])
            for session, other in others:
                if line.note is None or other.note is None or line.note == other.note:
                    yield tree.at(
                        facts, line.location, "invoice",
                        f"{line.amount} {line.currency} of invoice {line.number!r} is counted in"
                        f" {session}#costs.{other.location[1]} already: delete one of the two; if"
                        " the invoice charges it twice, say in the note of each what it is for",
                    )  # fmt: skip
                    break
            others.append((facts.id, line))


def committed_runs_stay(tree: Tree) -> Iterator[Finding]:
    """A run file that git has committed is not changed."""
    sound = {facts.path for facts in tree.runs if facts.valid}
    if not sound:
        return
    from kbtool.store.history import changed_since_commit

    for path in changed_since_commit(tree.root, "sessions/*/runs/*.json"):
        if path in sound:  # of the others, their own fault tells
            yield Finding(
                path, 1, "run",
                "is not what git has committed; runs are written once and never changed: restore it"
                f" (git restore --source=HEAD {path})",
            )  # fmt: skip


def runs_name_what_is_there(tree: Tree) -> Iterator[Finding]:
    """A run's pattern, recipe and kernel are in the knowledge base, as is every pattern matched."""
    owners = {r.name: facts.id for facts in tree.patterns.values() for r in facts.recipes}
    readable = all(facts.valid for facts in tree.patterns.values())
    for facts in tree.runs:
        if not facts.valid:
            continue
        run = facts.run
        for id_ in {run["pattern"], *run["matched"]} - tree.patterns.keys():
            yield Finding(facts.path, 1, "link", f"names pattern {id_}, which is not there")
        if run["kernel"] is not None and run["kernel"] not in tree.kernels:
            yield Finding(
                facts.path, 1, "link", f"names kernel {run['kernel']}, which is not there"
            )
        if run["recipe"] not in owners:
            if readable:
                message = f"names recipe {run['recipe']!r}, which no pattern has"
                yield Finding(facts.path, 1, "link", message)
        elif owners[run["recipe"]] != run["pattern"] and run["pattern"] in tree.patterns:
            owner = owners[run["recipe"]]
            message = f"says {run['pattern']}, but recipe {run['recipe']!r} is of {owner}"
            yield Finding(facts.path, 1, "link", message)


def attempts_are_complete(tree: Tree) -> Iterator[Finding]:
    """A resumed run has a record of each attempt before it."""
    there = {(facts.id, facts.run["attempt"]) for facts in tree.runs if facts.run}
    for facts in tree.runs:
        attempt = facts.run.get("attempt", 1)
        if attempt > 1 and (facts.id, attempt - 1) not in there:
            message = f"is attempt {attempt}, and attempt {attempt - 1} is not there"
            yield Finding(facts.path, 1, "run", message)


def runs_are_finished(tree: Tree) -> Iterator[Finding]:
    """No journal is left by a run that was killed; one that a living process holds is fine."""
    from pathlib import Path

    for path in tree.scan.journals:
        if not is_locked(Path(tree.root, path)):
            name = path.rsplit("/", 1)[1].removeprefix(".").removesuffix(".journal")
            yield Finding(
                path, 1, "unfinished-run",
                f"run {name} was cut off before its record was written; run"
                " `kbtool recover`",
            )  # fmt: skip


TREE_RULES: tuple[Rule, ...] = (
    ids_are_unique,
    labels_are_unique,
    recipe_names_are_unique,
    links_lead_somewhere,
    sessions_follow_in_a_line,
    patterns_supersede_in_a_line,
    superseded_patterns_rest,
    bugs_recur_in_a_line,
    claims_derive_in_a_line,
    sessions_end,
    runs_lie_within_their_session,
    confirmed_fixes_stand_validation,
    figures_agree_with_records,
    recipes_name_what_is_there,
    commands_stay_inside,
    manifests_name_files,
    manifests_list_what_is_included,
    mutants_edit_what_is_there,
    lines_take_rates_of_the_ledger,
    invoices_are_counted_once,
    committed_runs_stay,
    runs_name_what_is_there,
    attempts_are_complete,
    runs_are_finished,
)
"""The rules between records."""

_LEAVES = "{!r} leaves the {}; write a relative path that stays inside"


def _cannot_edit(tree: Tree, mutant: MutantFacts) -> tuple[str, str] | None:
    """The key of a mutant that is wrong, and what is wrong with it, or ``None``."""
    kernel = tree.kernels.get(mutant.kernel)
    if kernel is None:
        known = ", ".join(sorted(tree.kernels)) or "none"
        return "kernel", f"there is no kernel {mutant.kernel!r}; there is {known}"
    if not kernel.valid:
        return None
    if mutant.target not in kernel.names["targets"]:
        known = ", ".join(kernel.names["targets"])
        return "target", f"kernel {kernel.id} has no target {mutant.target!r}; it has {known}"
    variant = f"{mutant.target}/{mutant.variant}"
    if mutant.variant is not None and variant not in kernel.names["variants"]:
        known = ", ".join(kernel.names["variants"]) or "none"
        return "variant", f"kernel {kernel.id} has no variant {variant}; it has {known}"
    if not any(at[:2] == ["targets", mutant.target] and f == mutant.file for at, f in kernel.files):
        return "file", f"{mutant.file!r} is no source or header of target {mutant.target}"
    try:
        path = os.path.join(tree.root, os.path.dirname(kernel.path), mutant.file)  # noqa: PTH118, PTH120
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            edited(file.read(), mutant.find, "")
    except OSError:
        return None  # the manifest's own finding
    except ValueError as error:
        return "find", f"{mutant.file}: {error}"
    return None


def _chose_label(facts: Facts) -> bool:
    """Whether a session's label is more than the name in its id, ``DATE-NAME``."""
    name = facts.id.split("-", 1 if facts.id.startswith("undated-") else 3)[-1]
    return facts.label != name


def _broken(tree: Tree, ref: Ref) -> str | None:
    """What is wrong with a link, or ``None``."""
    id_, mark, path = ref.target.partition("#")
    if ref.role == "label":
        called = [facts.id for facts in tree.sessions.values() if facts.label == id_]
        if len(called) != 1:
            return None  # the schema says what is wrong
        return f"{id_} is the label of {called[0]}; write {called[0]}{mark}{path}"
    if ref.role == "kernel":
        known = ", ".join(sorted(tree.kernels)) or "none"
        return None if id_ in tree.kernels else f"there is no kernel {id_!r}; there is {known}"
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
        return f"{ref.target} is no bug; write {id_}#bugs.ID"
    return None


def _claim_in(tree: Tree, id_: str, path: str) -> str | None:
    """The claim of another record that ``path`` leads to, if it leads to one."""
    target = tree.record(id_)
    if target is None or not target.valid:
        return None
    return target.answers[path].claim or None


def _misquoted(tree: Tree, facts: Facts, figure: FigureFacts) -> str | None:
    """What is wrong with a figure in prose, or ``None``."""
    values = []
    for place in figure.of:
        record, _, path = place.partition("#")
        target = tree.record(record)
        if target is None:
            return f"{figure.target}: there is no record {record!r}"
        if not target.valid:
            return None
        found = target.answers[path]
        if not found.figure:
            return f"{record}#{path}: {found.problem}"
        values.append(found.figure)
    known = "\n".join([figure.text, figure.target, *values])
    if known not in facts.judged:
        facts.judged[known] = judged(figure.text, figure.target, own_record(facts), values)
        tree.asked.add(facts.path)
    return facts.judged[known] or None


def _edges(records: Iterable[Facts], role: str) -> dict[str, list[str]]:
    return {
        facts.id: targets
        for facts in records
        if (targets := [ref.target for ref in facts.refs if ref.role == role])
    }


def _circle(tree: Tree, facts: Facts, key: str, circle: list[str]) -> Finding:
    round_ = " → ".join([*circle, circle[0]])
    return tree.at(facts, [key], "cycle", f"{key} runs in a circle: {round_}")


def _circles(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Each circle that a walk along ``edges`` closes, from its least member on."""
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        way: list[str] = []
        on_way: dict[str, int] = {}
        walks: list[Iterator[str]] = [iter((start,))]
        while walks:
            node = next(walks[-1], None)
            if node is None:
                walks.pop()
                if way:
                    done.add(way[-1])
                    del on_way[way.pop()]
            elif node in on_way:
                circle = way[on_way[node] :]
                least = circle.index(min(circle))
                yield circle[least:] + circle[:least]
            elif node not in done and node in edges:
                on_way[node] = len(way)
                way.append(node)
                walks.append(iter(edges[node]))


def _stays(folder: str, path: str) -> bool:
    """Whether ``path``, relative, with links followed, stays in ``folder``."""
    if not path or "\0" in path or path.startswith(("/", "~")) or "\\" in path:
        return False
    return inside(folder, os.path.join(folder, path))  # noqa: PTH118
