"""Two arms of benchmarks side by side: the page, and the data that its script loads.

The page holds no figures: a script draws it from the runs that are chosen, each in a file that
calls one function, because a page opened from a disk may load a script but read no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kbtool.ledger.measured import groups
from kbtool.ledger.timings.conditions import (
    SETTINGS,
    Condition,
    Timed,
    conditions,
    timed,
)
from kbtool.ledger.timings.spread import FALSE, LEAST, METRICS, Spreads, wrong
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import instant, noise_reason, of_implementations
from kbtool.markdown.markup import bullets, join, nothing
from kbtool.model.kernel import case_label
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.times import short_commit
from kbtool.site.parts import compare_link, page_title, script, section


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.COMPARE, partial(page, source.index))


PAGES = Pages(_pages, at.COMPARE, "Compare")


_LISTED = 28
"""Runs that the page itself lists; its script offers all."""

_MOUNT = "kb-compare"
"""The element that ``assets/compare.js`` fills."""


def page(index: Index) -> str:
    """Where two arms are chosen and compared."""
    runs = _timed(index)
    if not runs:
        shown = nothing("No data because no run in this knowledge base has a benchmark.")
        return join([page_title("Compare"), shown])
    cases = _cases(index)
    links = [
        f"{index.run_link(run, at.COMPARE)}: {inline(run.source)},"
        f" {inline(', '.join([_words(run), *cases.get(run.id, [])]))}{', noisy' * _noisy(results)};"
        f" {_arms(run, results)}"
        for run, results in runs[:_LISTED]
    ]
    if len(runs) > _LISTED:
        older = at.link("all runs", at.RUNS, at.COMPARE)
        links.append(f"{len(runs) - _LISTED} older ones; see {older}")
    return join(
        [
            page_title("Compare"),
            "Two implementations, case by case: of one run or of two, of one card or of two. Choose"
            " by commit, card and case set: type a part of one, or take one of the list. The choice"
            " and the filters are in the address of the page, so that a link keeps them.",
            f'<div id="{_MOUNT}"><p>Comparing needs JavaScript, which is off or has'
            " not loaded. The figures themselves are on the pages of the runs below.</p></div>",
            section(
                "How it is computed", "computed",
                "The verdicts are about B, by the rule of <code>kbtool compare</code>, which takes"
                " all runs of a commit together and so sees smaller steps. A ratio is the time of B"
                " ÷ the time of A, each the median of its samples, between plain kernels where both"
                " sides have that: above 1 B is slower. A case is slower or faster if the times"
                " differ by 2 % or more, and by more than quiet runs of the same code do, over all"
                " cases together. A smaller difference is the same. What runs of the same code may"
                " show as well is too noisy to tell, and so is a benchmark during which other"
                " processes were busy. The quartiles beside a time are those inside one run and"
                " decide nothing. Cases are the same where their names and the fields that both"
                " records have are. Runs under other conditions are shown and not ranked. A case"
                " whose figures were refused, or an implementation whose output was wrong, proves"
                " nothing and is not compared.",
            ),
            section("Runs with a benchmark", "runs", bullets(links)),
        ]
    )  # fmt: skip


def _words(run: Run) -> str:
    return f"{instant(run.started)}, {run.made_on}"


def _commit(run: Run) -> str:
    """Its commit, and whether there were further changes."""
    return short_commit(run) if run.repository.commit else "no commit"


def _noisy(results: list[BenchmarkResult]) -> bool:
    """Whether nothing that a run timed proves anything."""
    return all(noise_reason(result) for result in results)


def _cases(index: Index) -> dict[str, list[str]]:
    """Run → the case sets that it timed: what can be compared with what."""
    found: dict[str, list[str]] = {}
    for kernel in index.kernels.values():
        for every in groups(index.runs_of(kernel=kernel.id), kernel).values():
            for group in every:
                found.setdefault(group.run.id, []).append(group.label)
    return found


def case_sets(index: Index, runs: Sequence[Timed]) -> list[str]:
    """The case sets that runs of one kernel timed, by their titles."""
    kernel = index.kernels.get(runs[0].run.kernel or "")
    known = kernel.case_sets if kernel else {}
    names = dict.fromkeys(
        case.case_set
        for one in runs
        for result in one.results
        for case in result.cases
        if case.case_set
    )
    return [known[name].title if name in known else name for name in names]


def _arms(run: Run, results: list[BenchmarkResult]) -> str:
    names = _arm_names(results)
    return ", ".join(compare_link(inline(arm), [run.id], arm, at.COMPARE) for arm in names)


def _arm_names(results: list[BenchmarkResult]) -> list[str]:
    """Every arm that was timed, the library's own first."""
    own = [name for result in results for name in (result.subject, *result.variants)]
    timed = {arm: None for result in results for case in result.cases for arm in case.arms}
    return [
        *(arm for arm in dict.fromkeys(own) if arm in timed),
        *(a for a in timed if a not in own),
    ]


def _timed(index: Index) -> list[Timed]:
    """The runs that timed something, newest first."""
    return [one for run in index.runs_of() if (one := timed(run))]


def script_paths(index: Index) -> list[str]:
    """The paths of ``scripts``."""
    timings = [at.timings(run.session, run.id) for run, _ in _timed(index)]
    return [at.COMPARABLE, *timings]


def scripts(index: Index) -> dict[str, bytes]:
    """What the script of the page loads: the rule and the list of runs, and a file a run."""
    runs = _timed(index)
    cases = _cases(index)
    listed = [
        {
            "id": run.id,
            "script": at.timings(run.session, run.id),
            "label": ", ".join(
                [_commit(run), _words(run), *cases.get(run.id, []), *["noisy"] * _noisy(results)]
            ),
            "commit": (run.repository.commit or "")[:12],
            "card": run.made_on,
            "sets": case_sets(index, [Timed(run, results)]) or [""],
            "noisy": _noisy(results),
            "arms": _arm_names(results),
            "baseline": results[-1].baseline,
        }
        for run, results in runs
    ]
    data = {"rule": {"least": LEAST, "false": FALSE}, "runs": listed}
    made = {at.COMPARABLE: script("kbtoolRuns", data)}
    spreads = Spreads(runs)
    for one in runs:
        path = at.timings(one.run.session, one.run.id)
        made[path] = script("kbtoolRun", _data(index, one, spreads))
    return made


def _data(index: Index, one: Timed, spreads: Spreads) -> dict[str, Any]:
    run, results = one
    kernel = index.kernels.get(run.kernel or "")
    return {
        "id": run.id,
        "page": at.published(at.run_page(run.session, run.id)),
        "kernel": run.kernel,
        "noise": list(dict.fromkeys(filter(None, map(noise_reason, results)))),
        "conditions": [_condition(each) for each in conditions(one)],
        "titles": {name: of.title for name, of in kernel.case_sets.items()} if kernel else {},
        "implementations": kernel.implementations if kernel else {},
        "again": "\n".join(index.commands(run)),
        "cases": [_case(one, result, case, spreads) for result in results for case in result.cases],
    }


def _condition(one: Condition) -> dict[str, Any]:
    """A condition; a measured one with the figure that tells whether two are alike, and a mark on
    one that older records do not state."""
    figure = {"figure": one.figure} if one.is_measured else {}
    new = {"isNew": True} if one.is_new else {}
    value = of_implementations(one.value) if one.name == SETTINGS else one.value
    return {"name": one.name, "value": value, "weighs": one.weighs, **figure, **new}


def _case(
    one: Timed, result: BenchmarkResult, case: BenchmarkCase, spreads: Spreads
) -> dict[str, Any]:
    """A case with the arms that were timed in it; with noise, why no ratio of them is told."""

    def arm(name: str, timing: Timing) -> dict[str, Any]:
        figures = {
            "chain": (timing.median_us, timing.low_us, timing.high_us),
            "between": (timing.between_us, timing.between_low_us, timing.between_high_us),
        }
        return {
            "wrong": wrong(case, name),
            **{
                metric: {"us": us, "spread": spreads.of(one, result, case, name, metric)}
                for metric in METRICS
                if (us := figures[metric])[0] is not None
            },
        }

    return {
        "name": case.name,
        "label": case_label(case),
        "set": case.case_set,
        "fields": case.case,
        "noise": noise_reason(result),
        "arms": {name: arm(name, timing) for name, timing in case.arms.items()},
    }
