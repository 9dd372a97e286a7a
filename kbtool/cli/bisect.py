"""``kbtool bisect``: the commit at which a case became slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import recipe_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbtool.model.pattern import Pattern
    from kbtool.model.recipe import Recipe
    from kbtool.store.tree import KnowledgeBase
    from kbtool.sweeps.bisect import Commit, Found, Judged, Judging, Search

EPILOG = """\b
Examples:
  kbtool bisect SET/CASE v1..HEAD                     A is v1, B is HEAD
  kbtool bisect SET/CASE v1.. --measure RECIPE --dry-run

\b
Only commits that change what the recipe makes of the kernel are looked at: its folder without
prose, and the recipe's parameters and steps; the others cannot be the cause. Each is measured
beside A, as by `kbtool compare A COMMIT --measure RECIPE`, and counts as slower if compare's
verdict on the case is. First B: if it is not slower than A there is nothing to look for. A verdict
needs --pairs quiet runs of each side, made in turn. If it is too noisy, as many more are made, up
to --tries times; then the commit is passed over, as one is that does not build, that validation
refuses or that solves another problem. Nothing is guessed: if such a commit is left, the answer
names all that may be the first.

\b
The runs go into the running session, or into a new one. They are all that is kept: runs that are
there already are not made again, so the same command goes on after Ctrl-C, and gives its answer
again from the records.

\b
Exit status: 0 the first slower commit is found, or B is not slower than A; 1 commits that give no
time are in question too; 2 usage, or A or B gives no time; 4 interrupted; 75 undecided: times were
too noisy."""


@click.command(epilog=EPILOG)
@click.argument("case", metavar="CASE")
@click.argument("commits", metavar="A..B")
@click.option(
    "--measure", "recipe_name", metavar="RECIPE", shell_complete=recipe_names,
    help="The recipe that times the case. Default: the only one.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True,
    help="Set a parameter of the recipe; repeatable.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.IntRange(min=2), metavar="N", default=5, show_default=True,
    help="How many quiet runs of A and of a commit a verdict rests on.",
)  # fmt: skip
@click.option(
    "--tries", type=click.IntRange(min=1), metavar="N", default=3, show_default=True,
    help="How often so many are made while the verdict is too noisy.",
)  # fmt: skip
@click.option(
    "--metric", type=click.Choice(["between", "chain"]),
    help="The time to compare, as `kbtool compare` takes it.",
)  # fmt: skip
@click.option("--again", is_flag=True, default=False, help="Do not count earlier runs.")
@click.option(
    "--dry-run", is_flag=True, default=False,
    help="Show the commits, the most steps and the time expected, and run nothing.",
)  # fmt: skip
@json_option
@click.pass_context
def bisect(
    ctx: click.Context, /, case: str, commits: str, recipe_name: str | None,
    settings: tuple[str, ...], pairs: int, tries: int, metric: Any, again: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Find the first commit in A..B at which CASE is slower than at A."""
    from datetime import UTC, datetime

    from kbtool.cli.compare import commits_to_measure, refuse_unkept
    from kbtool.cli.recipe import values_of
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.errors import UsageError
    from kbtool.runner.signals import signals_interrupt
    from kbtool.sweeps.bisect import Judging, Machine, bisect, line_of

    base = knowledge_base(ctx)
    begin, dots, end = commits.partition("..")
    if not dots or not begin or end.startswith("."):
        raise UsageError(f"{commits!r} is no range of commits; write A..B")
    names = begin, end or "HEAD"
    good, bad = commits_to_measure(base, names, "A..B names two commits")
    values = values_of(settings)
    pattern, recipe, case = _recipe_of(base, case, recipe_name, values)
    refuse_unkept(base, recipe.name)
    line = line_of(base, good, bad, pattern.id, recipe)
    machine = probe_machine()
    view = _View(names, case, pairs)
    bench = Machine(
        base.root, good, pattern.id, recipe.name, values, machine,
        since=datetime.now(UTC) if again else None, metric=metric,
        title=f"Bisection of {case}, {names[0]}..{names[1]}", tell=view.runs,
    )  # fmt: skip
    judging = Judging(bench, case, line, pairs, tries)
    view.begun(judging, recipe)
    if dry_run:
        _print_plan(base, judging, recipe, values, machine, as_json)
        return
    with signals_interrupt():
        found = bisect(judging, view.tell, view.told)
    if bench.session:
        click.echo(f"session: kbtool session show {bench.session}", err=True)
    if as_json:
        print_json(_json(found, judging, recipe, bench.session))
    else:
        _print(found, judging)
    warn_unreadable(base)
    ctx.exit(_EXIT[found.outcome])


_EXIT = {"found": 0, "unchanged": 0, "between": 1, "interrupted": 4, "undecided": 75}


def _recipe_of(
    base: KnowledgeBase, case: str, name: str | None, values: Mapping[str, str]
) -> tuple[Pattern, Recipe, str]:
    """The recipe that times a case, and SET/CASE.

    Raises:
        NotFoundError: no recipe times such a case.
        UsageError: several do, or the case may be of several sets.
    """
    from kbtool.cli.recipe import bound_recipe
    from kbtool.model.errors import NotFoundError, UsageError

    names = [name] if name else list(base.recipes())
    timed: dict[str, list[str]] = {}
    for one in names:
        _, recipe, _ = bound_recipe(base, one, values if name else {})
        if cases := _cases(base, recipe):
            timed[one] = cases
    asked = {one: [c for c in cases if case in (c, c.partition("/")[2])] for one, cases in
             timed.items()}  # fmt: skip
    fits = {one: cases for one, cases in asked.items() if cases}
    if not fits:
        known = sorted({one for cases in timed.values() for one in cases})
        some = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        whose = f"recipe {name}" if name else "a recipe"
        raise NotFoundError(f"{whose} times no case {case!r}; it times {some or 'none'}")
    if len(fits) > 1:
        raise UsageError(f"recipes {', '.join(fits)} time {case}; name one with --measure")
    ((chosen, cases),) = fits.items()
    if len(cases) > 1:
        raise UsageError(f"{case!r} may be {' or '.join(cases)}; write one of them")
    pattern, recipe, _ = bound_recipe(base, chosen, values)
    return pattern, recipe, cases[0]


def _cases(base: KnowledgeBase, recipe: Recipe) -> list[str]:
    """The cases that a recipe's benchmarks time, as SET/CASE."""
    from kbtool.model.kinds.benchmark import BenchmarkStep

    entry = base.kernels.get(recipe.kernel or "")
    sets = [
        one.strip()
        for step in recipe.steps
        if isinstance(step, BenchmarkStep)
        for one in step.case_sets.split(",")
    ]
    if entry is None:
        return []
    known = [one for one in dict.fromkeys(sets) if one in entry.record.case_sets]
    return [f"{one}/{case['name']}" for one in known for case in entry.record.cases(one)]


class _View:
    """Progress, on stderr."""

    def __init__(self, names: tuple[str, str], case: str, pairs: int) -> None:
        self._names, self._case, self._pairs = names, case, pairs
        self._steps = 0

    def begun(self, judging: Judging, recipe: Recipe) -> None:
        """What is looked for, and where."""
        from kbtool.model.words import many

        line = judging.line
        others = f"; {many(line.others, 'other')} cannot change it" if line.others else ""
        click.echo(
            f"{self._case} by recipe {recipe.name}: {many(len(line.touching), 'commit')} in"
            f" {self._names[0]}..{self._names[1]} may have changed it{others}",
            err=True,
        )

    def tell(self, search: Search, commit: Commit) -> None:
        """A commit is looked at next."""
        from kbtool.sweeps.bisect import most_steps

        where = (
            f"step {self._steps} of at most {self._steps - 1 + most_steps(search, {})}"
            if self._steps
            else f"check: is {self._names[1]} slower than {self._names[0]}?"
        )
        click.echo(f"{where}: {_named(commit)}", err=True)
        self._steps += 1

    def runs(self, commit: str, pairs: int) -> Callable[[int, int], None]:
        """It is measured."""
        from kbtool.cli.compare import told_runs

        good = self._names[0]
        click.echo(f"{pairs} runs of each, in turn: A is {good}, B this commit", err=True)
        return told_runs((good, "this commit"), (self._names[0], commit), pairs)

    def told(self, judged: Judged) -> None:
        """What came of it."""
        made = "" if judged.made else ", by runs that were there"
        click.echo(f"{_verdict(judged)}{made}", err=True)


def _named(commit: Commit) -> str:
    return f"{commit.id[:12]} {commit.title}".strip()


def _verdict(judged: Judged) -> str:
    """slower by 12.3 %; the same; too noisy to tell; skipped: why."""
    if judged.verdict == "skipped":
        return f"skipped: {judged.why}"
    if judged.verdict == "too_noisy":
        return f"undecided: {judged.why}"
    if judged.verdict == "same" or judged.row is None:
        return "the same"
    return f"{judged.verdict} by {judged.row.percent:.1f} %"


def _print_plan(
    base: KnowledgeBase, judging: Judging, recipe: Recipe, values: Mapping[str, str], machine: Any,
    as_json: bool,
) -> None:  # fmt: skip
    """What a dry run shows."""
    from kbtool.model.sweep import Cell
    from kbtool.runner.progress import seconds
    from kbtool.sweeps.bisect import Search, most_steps
    from kbtool.sweeps.plan import estimate

    touching = judging.line.touching
    known = {n: j for n, one in enumerate(touching) if (j := judging.known(one)) is not None}
    search = Search(-1, len(touching) - 1)
    verdicts = {number: judged.verdict for number, judged in known.items()}
    last = known.get(search.bad)
    steps = 0
    if touching and (last is None or last.verdict == "slower"):
        steps = (last is None) + most_steps(search, verdicts)
    cell = Cell(id="1", parameters=dict(values))
    expected = estimate(base, recipe, [cell], machine)
    runs = steps * 2 * judging.pairs
    told = {"steps_at_most": steps, "runs_at_most": runs, "expected_s": expected.total * runs}
    if as_json:
        print_json({
            **_asked(judging, recipe),
            "commits": [
                {**one._asdict(), "known": verdicts.get(number)}
                for number, one in enumerate(touching)
            ],
            **told,
        })  # fmt: skip
        return
    rows = [
        [one.id[:12], one.title, _verdict(known[n]) if n in known else ""]
        for n, one in enumerate(touching)
    ]
    print_table(["commit", "title", "by runs that are there"], rows, numeric=set())
    by = "by past runs" if expected.from_history else "by the recipe"
    click.echo(
        f"\nat most {steps} steps of {2 * judging.pairs} runs, about"
        f" {seconds(told['expected_s'])} ({by}); more where times are too noisy, or commits give"
        " none"
    )
    click.echo("dry run: nothing was run", err=True)


def _answer(found: Found, judging: Judging) -> str:
    """What came of it, in a line."""
    from kbtool.model.words import many

    case, touching, search = judging.case, judging.line.touching, found.search
    if not found.steps and found.outcome == "unchanged":
        return f"{case}: no commit in A..B changes what it is made of, so none made it slower"
    if found.outcome == "interrupted":
        return f"{case}: interrupted; the same command goes on from the runs that were made"
    last = found.steps[0]
    if found.outcome == "unchanged":
        return f"{case}: B is not slower than A: {_verdict(last)}"
    if last.verdict == "too_noisy":
        return f"{case}: undecided whether B is slower than A: {last.why}"
    before = _named(touching[search.good]) if search.good >= 0 else "A"
    first = _named(touching[search.bad])
    slower = next(_verdict(one) for one in found.steps if one.commit == touching[search.bad])
    if found.outcome == "found":
        return f"{case}: {first} is the first that is slower than A: {slower}; before it: {before}"
    if found.outcome == "undecided":
        return f"{case}: undecided between {before} and {first}, which is {slower}"
    number = many(search.bad - search.good, "commit")
    return (
        f"{case}: {first} is {slower}, but the first may be any of {number} after {before}: the"
        " others give no time"
    )


def _print(found: Found, judging: Judging) -> None:
    from kbtool.model.words import significant

    click.echo(_answer(found, judging))
    place = {one: number for number, one in enumerate(judging.line.touching)}
    rows = []
    for one in sorted(found.steps, key=lambda one: place[one.commit]):
        ratio, spread = (one.row.ratio, one.row.spread) if one.row else (None, None)
        figures = significant(ratio) if ratio else "–", "–" if spread is None else f"{spread:.1%}"
        rows.append([_named(one.commit), *figures, _verdict(one), f"{len(one.runs[1])}"])
    if rows:
        click.echo()
        print_table(["commit", "÷ A", "±", "beside A", "runs"], rows, {1, 2, 4})


def _asked(judging: Judging, recipe: Recipe) -> dict[str, Any]:
    line = judging.line
    return {
        "case": judging.case, "recipe": recipe.name, "good": line.good, "bad": line.bad,
        "others": line.others,
    }  # fmt: skip


def _json(found: Found, judging: Judging, recipe: Recipe, session: str | None) -> dict[str, Any]:
    touching, search = judging.line.touching, found.search
    is_slower = any(one.verdict == "slower" for one in found.steps)
    return {
        **_asked(judging, recipe),
        "outcome": found.outcome,
        "answer": _answer(found, judging),
        "first": touching[search.bad]._asdict() if found.outcome == "found" else None,
        "in_question": [
            one._asdict() for one in touching[search.good + 1 : search.bad + 1] if is_slower
        ],
        "steps": [
            {
                **one.commit._asdict(), "verdict": one.verdict, "why": one.why,
                "case": None if one.row is None else one.row._asdict(),
                "runs": {"good": one.runs[0], "commit": one.runs[1]}, "made": one.made,
            }
            for one in found.steps
        ],
        "session": session,
    }  # fmt: skip
