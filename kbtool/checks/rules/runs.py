"""Runs refer to existing records, are complete, and never change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.checks.excuses import CASE_BOUNDS, Forgotten
from kbtool.checks.facts import Location, fact
from kbtool.checks.rules.kernels import bounds, divisors, recipes
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding
from kbtool.model.validation import Validation, contradiction, still_wrong
from kbtool.store.lock import is_abandoned

if TYPE_CHECKING:
    from kbtool.model.kinds import StepResult
    from kbtool.model.run import Run
    from kbtool.model.session import Session


class Confirmed(NamedTuple):
    """A fix marked as confirmed."""

    location: Location
    kernel: str | None
    """That it was made in, if it says so."""
    shown_by: list[str]
    """The runs that are said to have shown it."""


@fact("session", Confirmed)
def confirmed(session: Session) -> Iterator[Confirmed]:
    """Fixes of a session that are confirmed."""
    from kbtool.model.address import split_reference  # a check of unchanged files loads no model

    for at, fix in enumerate(session.fixes):
        if fix.confirmed:
            runs = [split_reference(reference)[0] or "" for reference in fix.shown_by]
            yield Confirmed(["fixes", at, "confirmed"], fix.kernel, runs)


def confirmed_fixes_stand_validation(tree: Tree) -> Iterator[Finding]:
    """Where the newest verdict of a session's validations is that a kernel is wrong, a fix that a
    test is said to have confirmed, of that kernel or of none, names what showed it. A value that
    a script logged or that was imported shows nothing."""
    no_tests = {facts.id for facts in tree.runs if facts.run and facts.run["recipe"] is None}
    made: dict[str, list[Validation]] = {}
    for facts in tree.runs:
        if facts.run.get("verdicts"):
            at = datetime.fromisoformat(facts.run["validated_at"])
            one = Validation(at, facts.run["kernel"], facts.id, facts.run["verdicts"])
            made.setdefault(facts.run["session"], []).append(one)
    for id_, validations in made.items():
        session = tree.sessions.get(id_)
        for location, kernel, shown_by in confirmed.of(session) if session else ():
            if not no_tests.issuperset(shown_by):
                continue
            wrong = still_wrong(validations, kernel)
            if session and wrong:
                yield tree.at(
                    session, location, "unconfirmed",
                    f"is confirmed, but {contradiction(wrong)}; validate again, or add the step"
                    " that showed that the fault was gone, shown_by: [RUN#steps.ID], or remove"
                    " confirmed",
                )  # fmt: skip


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
                "differs from the committed file; runs are never changed: restore it"
                f" (git restore --source=HEAD {path})",
            )  # fmt: skip


def runs_name_what_is_there(tree: Tree) -> Iterator[Finding]:
    """A run's pattern and kernel are in the knowledge base, as is every pattern matched, unless its
    recipe was forgotten (`kbtool forget`). A recipe that has the name of the run's is of its
    pattern; there may be none any more."""
    gone = Forgotten(tree)
    owners = {r.name: facts.id for facts in tree.patterns.values() for r in recipes.of(facts)}
    for facts in tree.runs:
        if not facts.valid:
            continue
        run = facts.run
        recipe = run["recipe"]
        if recipe is None:  # of a script or a file, which name none of these
            continue
        was_of_it = gone.pattern_of(recipe, run["pattern"])
        known = {run["pattern"]} if was_of_it else set()
        missing = {run["pattern"], *run["matched"]} - tree.patterns.keys() - known
        hint = (
            f"; if recipe {recipe!r} was deleted on purpose: `kbtool forget {recipe} --reason WHY`"
        )
        for id_ in sorted(missing - gone.patterns | missing & {run["pattern"]}):
            deleted = hint if id_ == run["pattern"] else ""
            message = f"names pattern {id_}, which does not exist{deleted}"
            yield Finding(facts.path, 1, "link", message)
        kernel = run["kernel"]
        if kernel is not None and kernel not in tree.kernels and not gone.kernel_of(recipe, kernel):
            message = f"names kernel {kernel}, which does not exist{hint}"
            yield Finding(facts.path, 1, "link", message)
        owner = owners.get(recipe, run["pattern"])
        if owner != run["pattern"] and not was_of_it and run["pattern"] in tree.patterns:
            message = f"says {run['pattern']}, but recipe {recipe!r} is of {owner}"
            yield Finding(facts.path, 1, "link", message)


def forgotten_recipes_are_gone(tree: Tree) -> Iterator[Finding]:
    """No recipe is listed as forgotten that its pattern still has."""
    owners = {r.name: facts.id for facts in tree.patterns.values() for r in recipes.of(facts)}
    for facts, one in Forgotten(tree).entries:
        if owners.get(one.recipe) in one.patterns:
            yield tree.at(
                facts, one.location, "excuse",
                f"recipe {one.recipe!r} is listed as forgotten, but {owners[one.recipe]} has it:"
                " remove one of the two",
            )  # fmt: skip


class Extreme(NamedTuple):
    """The least or the greatest number that a field has in the cases of a run."""

    field: str
    value: int | float
    step: str
    case: str


@fact("run", Extreme)
def extremes(run: Run) -> Iterator[Extreme]:
    """Of each field of numbers the cases with the least and the greatest one."""
    from kbtool.model.kernel import numbers_in

    least: dict[str, Extreme] = {}
    most: dict[str, Extreme] = {}
    for step in run.steps if run.kernel is not None else ():
        for one in _cases(step.result):
            for name, value in one.case.items():
                for number in numbers_in(value):
                    found = Extreme(name, number, step.id, one.name)
                    if name not in least or not number >= least[name].value:
                        least[name] = found
                    if name not in most or not number <= most[name].value:
                        most[name] = found
    yield from dict.fromkeys((*least.values(), *most.values()))


class Undivided(NamedTuple):
    """Two fields of a case of a run, of which the first does not divide the second."""

    field: str
    value: int
    other: str
    multiple: int
    step: str
    case: str


@fact("run", Undivided)
def undivided(run: Run) -> Iterator[Undivided]:
    """Of each two fields the first case in which one does not divide the other: which ones have to,
    the manifest says."""
    from kbtool.model.kernel import divides

    known: set[tuple[tuple[str, int], ...]] = set()
    found: dict[tuple[str, str], Undivided] = {}
    for step in run.steps if run.kernel is not None else ():
        for one in _cases(step.result):
            ints = tuple((name, v) for name, v in one.case.items() if type(v) is int)
            if ints in known:
                continue
            known.add(ints)
            for (field, value), (other, multiple) in permutations(ints, 2):
                if (field, other) not in found and not divides(value, multiple):
                    held = Undivided(field, value, other, multiple, step.id, one.name)
                    found[field, other] = held
    yield from found.values()


def _cases(result: StepResult | None) -> Iterator[Any]:
    """What holds the fields of a case in a result, whatever the kind of step."""
    for value in vars(result).values() if result is not None else ():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(getattr(one, "case", None), dict):
                yield one


def runs_have_cases_within_bounds(tree: Tree) -> Iterator[Finding]:
    """No case of a run has a number outside the bounds that its kernel's manifest gives a field, or
    one that does not divide another field as the manifest says."""
    for facts in tree.runs:
        kernel = tree.kernels.get(facts.run.get("kernel") or "") if facts.valid else None
        if kernel is None or not kernel.valid:
            continue
        fields, divides = bounds.of(kernel), divisors.of(kernel)
        for one in extremes.of(facts) if fields else ():
            least, most = fields.get(one.field, (None, None))
            if least is not None and not one.value >= least:
                problem = f"below the minimum, {least}"
            elif most is not None and not one.value <= most:
                problem = f"above the maximum, {most}"
            else:
                continue
            yield Finding(
                facts.path, 1, CASE_BOUNDS,
                f"step {one.step}, case {one.case!r}: {one.field} is {one.value}, {problem}, in the"
                f" manifest of kernel {facts.run['kernel']}",
            )  # fmt: skip
        for pair in undivided.of(facts) if divides else ():
            if divides.get(pair.field) == pair.other:
                yield Finding(
                    facts.path, 1, CASE_BOUNDS,
                    f"step {pair.step}, case {pair.case!r}: {pair.other} is {pair.multiple} and"
                    f" {pair.field} is {pair.value}; {pair.field} divides {pair.other} in the"
                    f" manifest of kernel {facts.run['kernel']}",
                )  # fmt: skip


def attempts_are_complete(tree: Tree) -> Iterator[Finding]:
    """A resumed run has a record of each attempt before it."""
    there = {(facts.id, facts.run["attempt"]) for facts in tree.runs if facts.run}
    for facts in tree.runs:
        attempt = facts.run.get("attempt", 1)
        if attempt > 1 and (facts.id, attempt - 1) not in there:
            message = f"is attempt {attempt}, but attempt {attempt - 1} is missing"
            yield Finding(facts.path, 1, "run", message)


def runs_are_finished(tree: Tree) -> Iterator[Finding]:
    """No journal is left by a run that was killed; one that a living process holds is fine."""
    from pathlib import Path

    for path in tree.scan.journals:
        if is_abandoned(Path(tree.root, path)):
            name = path.rsplit("/", 1)[1].removeprefix(".").removesuffix(".journal")
            yield Finding(
                path, 1, "unfinished-run",
                f"run {name} was cut off before its record was written; run"
                " `kbtool recover`",
            )  # fmt: skip


RULES: tuple[Rule, ...] = (
    confirmed_fixes_stand_validation,
    committed_runs_stay,
    runs_name_what_is_there,
    forgotten_recipes_are_gone,
    runs_have_cases_within_bounds,
    attempts_are_complete,
    runs_are_finished,
)
