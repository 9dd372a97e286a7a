"""``kbtool compare``: two runs, commits, variants or cards, case by case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import run_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtool.ledger.timings.verdict import Comparison
    from kbtool.runner.pairs import Measured
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool compare best last                   was the newest run slower than the fastest commit?
  kbtool compare main HEAD --fail-over 3%    in CI: exit 1 if a case is slower by more than 3 %
  kbtool compare RUN OTHER_RUN                 by a part of the id of each
  kbtool compare VARIANT OTHER_VARIANT         two variants, at the newest commit that timed both
  kbtool compare last last/sdpa              our kernel and a peer, in the newest run
  kbtool compare H100 H200 --markdown
  kbtool compare main HEAD --measure RECIPE --pairs 5

\b
A and B are each
  a run       its id, or the start of it if no other run starts so
  a commit    its id or the first four digits or more, a branch, a tag, HEAD~1: all its quiet runs
  a card      words of its name: all quiet runs there of the newest commit that the other side has
              too; if there is none, of the newest commit
  a variant   or a peer, by its name: in the other side's runs; if both sides are named so, at the
              newest commit that timed both
  last        the newest run
  best        the fastest other commit, by its quiet runs under the same conditions
/NAME after any of these picks that variant or peer; without it, the kernel chooses the variant. A
run is quiet if other processes used at most 5 % of the cores meanwhile, and did not use the card.

\b
Verdicts are about B. A case is slower or faster if its mean times differ by 2 % or more, and by
more than runs of the same code differ: that spread is taken from all quiet runs of the case on such
a machine. Of the cases called slower or faster, up to 1 % may be wrong. "same" means a difference
of less than 2 %; "too noisy" means one that runs of the same code may show as well. More runs of a
commit detect smaller differences. If the fields of a case or the conditions (card, clock, driver,
protocol) differ, or the harness or a file that it reads ("another problem"), the ratio is shown
without a verdict.

\b
With --measure RECIPE, A and B are commits. Each is checked out apart from your work tree, and the
recipe runs on them in turn: A B, B A, A B, so that a machine that slows down slows both. Every run
builds, validates and times, and is kept in the running session, or in a new one. The verdicts rest
on these runs alone. Both sides may be the same commit: that shows how far the machine's times
differ without any change. On a card, five pairs find nine of
ten cases that are slower by 3 %.

\b
Exit status: 0 done; 1 with --fail-over: a case is slower by more, B is wrong or refused in a case,
or no case has a verdict; 2 usage, or a name that fits nothing. If a run of --measure fails, its
exit status."""


class Percent(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A share in percent: 3%, or 3."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number before the sign."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", str(value))
        if found is None:
            self.fail(f"{value!r} is no percentage; write 3%", param, ctx)
        return float(found[1])


@click.command(epilog=EPILOG)
@click.argument("a", metavar="A", shell_complete=run_names)
@click.argument("b", metavar="B", shell_complete=run_names)
@click.option(
    "--fail-over", type=Percent(), metavar="PERCENT",
    help="Exit 1 if in one case or more B is slower by more than this, or wrong, or refused where A"
    " is not; also if no case has a verdict. Example: 3%.",
)  # fmt: skip
@click.option(
    "--metric", type=click.Choice(["between", "chain"]),
    help="The time to compare. between: of one call behind a kernel that triggers no early launch"
    " (PDL). chain: of the call repeated, one behind the other. Default: between, if both sides"
    " have it.",
)  # fmt: skip
@click.option(
    "--measure", "recipe", metavar="RECIPE",
    help="Run this recipe on both commits in turn, and compare these runs.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.IntRange(min=2), metavar="N", default=5, show_default=True,
    help="With --measure: how often to run each commit.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True,
    help="With --measure: set a parameter of the recipe; repeatable.",
)  # fmt: skip
@json_option
@click.option(
    "--markdown", "as_markdown", is_flag=True, default=False, help="The table as Markdown."
)
@click.pass_context
def compare(
    ctx: click.Context, /, a: str, b: str, fail_over: float | None, metric: Any,
    recipe: str | None, pairs: int, settings: tuple[str, ...], as_json: bool, as_markdown: bool,
) -> None:  # fmt: skip
    """Say whether B is slower or faster than A, case by case."""
    from kbtool.ledger.timings import verdict
    from kbtool.model.errors import UsageError

    if as_json and as_markdown:
        raise UsageError("--json and --markdown: take one")
    if fail_over is not None and fail_over < verdict.LEAST_PERCENT:
        raise UsageError(
            f"--fail-over {fail_over:g}%: a difference below {verdict.LEAST_PERCENT} % counts as"
            " none; give more"
        )
    if settings and recipe is None:
        raise UsageError("--set is a parameter of a recipe: name one with --measure")
    base = knowledge_base(ctx)
    stopped = 0
    if recipe is None:
        comparison = compared(base, (a, b), metric)
    else:
        measured = _measured(base, (a, b), recipe, settings, pairs)
        stopped, base = measured.stopped, knowledge_base(ctx)
        if not all(measured.sides):
            ctx.exit(stopped)
        comparison = _of_runs(base, (a, b), measured.sides, metric)
    if as_json:
        print_json(verdict.as_json(comparison))
    elif as_markdown:
        click.echo(verdict.as_markdown(comparison))
    else:
        _print(comparison)
    warn_unreadable(base)
    if stopped or (fail_over is not None and comparison.is_past(fail_over)):
        ctx.exit(stopped or 1)


def compared(base: KnowledgeBase, names: tuple[str, str], metric: Any) -> Comparison:
    """What the records say of two sides.

    Raises:
        NotFoundError: a name fits no run.
        UsageError: a name fits several things, or the sides cannot be compared.
    """
    from kbtool.ledger.timings.sides import newest_first, sides
    from kbtool.ledger.timings.spread import Spreads
    from kbtool.ledger.timings.verdict import compare as verdicts
    from kbtool.store.history import commit_named

    every = newest_first(entry.record for entry in base.runs)
    first, second = sides(names, every, lambda name: commit_named(str(base.root), name))
    return verdicts(first, second, Spreads(every), metric)


def _measured(
    base: KnowledgeBase, names: tuple[str, str], recipe: str, settings: tuple[str, ...], pairs: int
) -> Measured:
    """Run the recipe on both commits in turn."""
    from kbtool.runner.destination import session_to_append_to
    from kbtool.runner.pairs import measure_pairs

    first, second = commits_to_measure(base, names, "--measure compares two commits")
    refuse_unkept(base, recipe)
    measured = measure_pairs(
        base.root,
        (first, second),
        [recipe, *(f"--set={setting}" for setting in settings)],
        pairs=pairs,
        session=session_to_append_to(base, None),
        title=f"{names[1]} beside {names[0]}, measured in turn",
        tell=told_runs(names, (first, second), pairs),
    )
    if measured.session and any(measured.sides):
        click.echo(f"session: kbtool session show {measured.session}", err=True)
    return measured


def commits_to_measure(
    base: KnowledgeBase, names: tuple[str, str], because: str
) -> tuple[str, str]:
    """The ids of two commits.

    Args:
        base: the knowledge base.
        names: as a person wrote them.
        because: why they have to be commits, for messages.

    Raises:
        NotFoundError: git knows no such commit.
    """
    from kbtool.model.errors import NotFoundError
    from kbtool.store.history import commit_named

    first, second = (commit_named(str(base.root), name) for name in names)
    for name, commit in zip(names, (first, second), strict=True):
        if commit is None:
            if commit_named(str(base.root), "HEAD") is None:
                raise NotFoundError(
                    f"{because}, and git finds none here: no repository, no commit yet, or no git"
                )
            raise NotFoundError(f"git knows no commit {name!r}; {because}")
    assert first is not None and second is not None
    return first, second


def refuse_unkept(base: KnowledgeBase, recipe: str) -> None:
    """Raise if the runs of a recipe cannot be kept in the work tree."""
    from kbtool.model.errors import NotFoundError

    known = base.recipes()
    kernel = known[recipe][1].kernel if recipe in known else None
    if recipe not in known or (kernel and kernel not in base.kernels):
        what = f"kernel {kernel}" if kernel else f"recipe {recipe!r}"
        raise NotFoundError(
            f"the work tree has no {what}, and the runs are kept here with it; there is"
            f" {', '.join(known) or 'no recipe'}"
        )


def told_runs(
    names: tuple[str, str], commits: tuple[str, str], pairs: int
) -> Callable[[int, int], None]:
    """Says on stderr which run begins, and how long those that are left should take."""
    import time

    start = time.monotonic()

    def tell(done: int, side: int) -> None:
        left = (time.monotonic() - start) / done * (2 * pairs - done) / 60 if done else None
        took = f"; about {max(left, 1):.0f} min left" if left else ""
        commit = commits[side]
        click.echo(
            f"run {done + 1} of {2 * pairs}: {'AB'[side]}, {names[side]} at {commit[:8]}{took}",
            err=True,
        )

    return tell


def _of_runs(
    base: KnowledgeBase, names: tuple[str, str], ids: tuple[list[str], list[str]], metric: Any
) -> Comparison:
    """Compare runs that were made in turn; noisy ones are left out."""
    from kbtool.ledger.timings.sides import newest_first
    from kbtool.ledger.timings.spread import Spreads
    from kbtool.ledger.timings.verdict import Side
    from kbtool.ledger.timings.verdict import compare as verdicts
    from kbtool.model.errors import NotFoundError

    every = newest_first(entry.record for entry in base.runs)
    sides = []
    for name, wanted in zip(names, ids, strict=True):
        runs = [one for one in every if one.run.id in wanted]
        if not runs:
            raise NotFoundError(f"no run of {name} timed anything")
        sides.append(Side(name, [one for one in runs if not one.noise] or runs))
    return verdicts(sides[0], sides[1], Spreads(every), metric)


def _print(comparison: Comparison) -> None:
    from kbtool.ledger.timings.verdict import COLUMNS, cells, told

    click.echo(comparison.answer)
    click.echo(f"A: {comparison.a.label}\nB: {comparison.b.label}")
    for note in comparison.notes:
        click.echo(note)
    rows = told(comparison.rows)
    if rows:
        click.echo()
        print_table(COLUMNS, [cells(row) for row in rows], {1, 2, 3, 4})
    missing = [row for row in comparison.rows if row not in rows]
    if missing:
        click.echo(f"\n{len(missing)} more that only one side has; --json lists them")
