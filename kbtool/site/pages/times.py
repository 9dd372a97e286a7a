"""Ratios, runs and commits as text, for the pages with measurements."""

from __future__ import annotations

from collections.abc import Iterable

from kbtool.ledger.headline import Headline
from kbtool.ledger.measured import Group, Machine, Pairs
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import significant, validation
from kbtool.markdown.markup import bullets, folded, muted, no_ratio, nowrap
from kbtool.model.kernel import Kernel
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.steps.base import not_reached

OLDER = "older than the sources"
"""Marks a run whose sources differ from those of the tree now."""


def results_anchor(machine: Machine) -> str:
    """The anchor of a machine's results on the page of the kernel."""
    return f"results.{at.fragment(f'{machine.target}.{machine.name}')}"


def against(group: Group, arm: str) -> str:
    """An arm's time ÷ ours as text, with the smallest and the largest over the cases."""
    return ratio_text(group, group.against(arm))


def standing(one: Headline) -> list[str]:
    """The cells of a headline: between plain kernels, in a chain, and against which peers."""
    if one.newest.noise_reason:
        cells = [no_ratio(one.newest.result)] * 2
    else:
        means = [one.mean_and_spread(between=between) for between in (True, False)]
        cells = [
            inline(mean) + (f" <br>{muted(_in_pieces(spread))}" if spread else "")
            for mean, spread in means
        ]
    return [*cells, inline(one.against)]


def _in_pieces(spread: str) -> str:
    """A line for each of what semicolons part."""
    return "; <br>".join(nowrap(inline(piece)) for piece in spread.split("; "))


HOW_TO_READ = (
    "Best peer's time ÷ ours, geometric mean over the cases: above 1 ours is faster. Below it the"
    " smallest ratio, and in how many cases ours was slower. The best peer is chosen case by case,"
    " over all runs of the build that were not noisy. Between plain kernels: each call follows a"
    " plain kernel and cannot start before its end, as in a model. In a chain: each call follows"
    " another call of the same implementation, and its launch can overlap that call."
)
"""An explanation of the cells of :func:`standing`."""


def ratio_text(group: Group, pairs: Pairs) -> str:
    """The first time of each pair ÷ the second as text, and the number of cases if not all."""
    ratio, of = group.ratio(pairs), len(group.cases)
    if ratio is None:
        return no_ratio(group.result) if pairs else ""
    spread = nowrap(f"{significant(ratio.least)}–{significant(ratio.most)}")
    part = f" <br>{ratio.cases} of {of} cases" if ratio.cases < of else ""
    return f"{significant(ratio.mean)} <br>{muted(spread + part)}"


def meanings(kernel: Kernel, shown: Iterable[str]) -> str:
    """What the implementations that stand in a table or chart are, folded up; empty where the
    manifest says it of none."""
    told = kernel.implementations
    lines = [f"{code(name)}: {inline(told[name])}" for name in dict.fromkeys(shown) if name in told]
    return folded("What the names of the implementations mean", bullets(lines)) if lines else ""


def passed_text(run: Run) -> str:
    """The cases that passed in the same run."""
    checked = validation(run)
    if checked is None:
        return "no data because the run has no validation"
    return nowrap(
        f"{checked.cases_passed} of {len(checked.cases)}{not_reached(checked.not_reached)}"
    )


def page_of(run: Run) -> str:
    """The page of a run."""
    return at.run_page(run.session, run.id)


def short_commit(run: Run) -> str:
    """The commit of a run, with a plus if there were uncommitted changes."""
    if not run.repository.commit:
        return "unknown"
    return run.repository.commit[:7] + ("+" if run.repository.dirty else "")


def commit_text(run: Run) -> str:
    """``short_commit``, as code."""
    return code(short_commit(run))
