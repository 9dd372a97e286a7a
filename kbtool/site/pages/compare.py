"""Two arms of benchmarks side by side: the page, and the data that its script loads.

The page holds no figures: a script draws it from the runs that are chosen, each in a file that
calls one function, because a page opened from a disk may load a script but read no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from kbtool.ledger.measured import groups
from kbtool.ledger.timings.conditions import Condition, Timed, conditions
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import instant, noise_reason
from kbtool.markdown.markup import bullets, join, nothing
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.run import commands
from kbtool.site.parts import compare_link, page_title, section


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
        f"{index.link(at.run_page(run.session, run.id), at.COMPARE)}: {inline(run.recipe)},"
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
            "Two arms of benchmarks, case by case: of one run or of two, of one card or of two."
            " The choice and the filters are in the address of the page, so that a link keeps"
            " them.",
            f'<div id="{_MOUNT}"><p>Comparing needs JavaScript, which is off or has'
            " not loaded. The figures themselves are on the pages of the runs below.</p></div>",
            section(
                "How it is reckoned", "reckoned",
                "A ratio is the time of B ÷ the time of A, each the median of its samples: above 1"
                " A is faster. A difference counts only where it is outside of the recorded spread:"
                " where the ranges from the 25th to the 75th percentile overlap, the case is within"
                " noise. Cases are the same where their names and the fields that both records have"
                " are. A case whose figures were refused, or an arm whose output was wrong, proves"
                " nothing and is not compared. The geometric mean is over every case that is"
                " compared, those within noise too. Of a benchmark that was noisy, because other"
                " processes were busy meanwhile, no ratio and no verdict is told: noise can turn"
                " which is faster.",
            ),
            section("Runs with a benchmark", "runs", bullets(links)),
        ]
    )  # fmt: skip


def _words(run: Run) -> str:
    return f"{instant(run.started)}, {run.machine.card or run.machine.cpu}"


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


def _arms(run: Run, results: list[BenchmarkResult]) -> str:
    names = _arm_names(results)
    return ", ".join(compare_link(inline(arm), run.id, arm, at.COMPARE) for arm in names)


def _arm_names(results: list[BenchmarkResult]) -> list[str]:
    """Every arm that was timed, the library's own first."""
    own = [name for result in results for name in (result.subject, *result.variants)]
    timed = {arm: None for result in results for case in result.cases for arm in case.arms}
    return [
        *(arm for arm in dict.fromkeys(own) if arm in timed),
        *(a for a in timed if a not in own),
    ]


def _timed(index: Index) -> list[tuple[Run, list[BenchmarkResult]]]:
    """The runs that timed something, newest first, each with its benchmarks."""
    found = []
    for run in index.runs_of():
        results = [step.result for step in run.steps if isinstance(step.result, BenchmarkResult)]
        if _arm_names(results):
            found.append((run, results))
    return found


def scripts(index: Index) -> dict[str, bytes]:
    """What the script of the page loads: the list of runs, and a file a run."""
    runs = _timed(index)
    cases = _cases(index)
    listed = [
        {
            "id": run.id,
            "script": at.timings(run.session, run.id),
            "label": ", ".join([_words(run), *cases.get(run.id, []), *["noisy"] * _noisy(results)]),
            "noisy": _noisy(results),
            "arms": _arm_names(results),
            "baseline": results[-1].baseline,
        }
        for run, results in runs
    ]
    made = {at.COMPARABLE: _script("kbtoolRuns", listed)}
    for run, results in runs:
        made[at.timings(run.session, run.id)] = _script("kbtoolRun", _data(run, results))
    return made


def _script(function: str, value: Any) -> bytes:
    """A call of ``function``; ASCII, so that no character ends a line or an element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"{function}({text.replace('<', chr(92) + 'u003c')});\n".encode("ascii")


def _data(run: Run, results: list[BenchmarkResult]) -> dict[str, Any]:
    return {
        "id": run.id,
        "page": at.published(at.run_page(run.session, run.id)),
        "kernel": run.kernel,
        "noise": list(dict.fromkeys(filter(None, map(noise_reason, results)))),
        "conditions": [_condition(each) for each in conditions(Timed(run, results))],
        "again": "\n".join(commands(run)),
        "cases": [_case(case, noise_reason(result)) for result in results for case in result.cases],
    }


def _condition(one: Condition) -> dict[str, Any]:
    """A condition; a measured one with the figure that tells whether two are alike."""
    figure = {"figure": one.figure} if one.is_measured else {}
    return {"name": one.name, "value": one.value, "weighs": one.weighs, **figure}


def _case(case: BenchmarkCase, noise: str | None) -> dict[str, Any]:
    """A case with its times in µs: arm → median, 25th, 75th percentile; with noise, why no ratio
    of them is told."""
    return {
        "name": case.name,
        "set": case.case_set,
        "fields": case.case,
        "refused": case.refused,
        "noise": noise,
        "wrong": [arm for arm, output in case.peers.items() if not output.passed],
        "arms": {
            arm: [float(f"{us:.6g}") for us in (t.median_us, t.low_us, t.high_us)]
            for arm, t in case.arms.items()
        },
    }
