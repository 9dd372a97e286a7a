"""A kernel's times commit by commit: a chart of one case, and which commits changed any."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kbtool.ledger.timings.courses import Course, Point, Step, steps
from kbtool.ledger.timings.spread import METRICS, Metric
from kbtool.ledger.timings.verdict import answer
from kbtool.markdown.escape import attribute, inline
from kbtool.markdown.figures import many, significant
from kbtool.markdown.markup import muted, narrow, nothing, slim_table, stacked_table
from kbtool.markdown.plot import Axis, Series, mark_of, plot, timed
from kbtool.markdown.plot import Point as Drawn
from kbtool.model.kernel import Kernel, case_label
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.charts import how
from kbtool.site.pages.times import commit_text, page_of, short_commit
from kbtool.site.parts import compare_link, script

_MOUNT = "kb-history"
"""The element that ``assets/history.js`` fills."""
_TONES = {"slower": "slower", "faster": "faster", "unlike": "break"}
"""Verdict → how the chart shows it; of the others there is nothing to show."""


def by_commit(index: Index, kernel: Kernel) -> Iterator[str]:
    """The chart of a case, commit by commit, and its figures."""
    found = _shown(index, kernel)
    if not found:
        yield nothing("No chart because no case was timed at two commits in quiet runs.")
        return
    # The longest, and of those the one that was timed last.
    course = max(found, key=lambda one: (len(one.points), one.points[-1].side.newest.run.started))
    here = at.topic_page(kernel.id, "history")
    arms = index.arms[kernel.id]
    data = {
        "history": at.relative(at.history_script(kernel.id), here),
        "home": at.relative(at.HOME, here).removesuffix(at.HOME),
        "arms": json.dumps([[name, *mark_of(number)] for number, name in enumerate(arms)]),
        "start": str(found.index(course)),
    }
    told = "".join(f' data-{name}="{attribute(value)}"' for name, value in data.items())
    metric = _metrics(course)[0]
    shown = [arm for arm in arms if any(point.times(arm, metric) for point in course.points)]
    yield (
        "Time of a call by commit, with the quartiles of its samples. The band holds 95 of 100 runs"
        " of the same code. A percentage: so much slower or faster than the commit before, by the"
        " rule of `kbtool compare`. A dotted line: from here on other conditions, across which"
        " nothing is ranked. A point leads to its run."
    )
    drawn = _chart(kernel, course, metric, arms, here)
    figures = _figures(course, metric, shown, here)
    yield f'<div id="{_MOUNT}"{told} markdown="block">\n\n{drawn}\n\n{figures}\n\n</div>'


def changes(index: Index, kernel: Kernel) -> Iterator[str]:
    """What became of the cases from commit to commit."""
    found = steps(index.courses[kernel.id])
    if not found:
        yield nothing("No data because no two commits were timed under the same conditions.")
        return
    changed = [step for step in found if any(row.verdict in _TONES for row in step.rows)]
    yield (
        f"**{len(changed)} of {many(len(found), 'step')} changed a case.** A step is from a commit"
        " to the next that timed the same cases under the same conditions."
    )
    here = at.topic_page(kernel.id, "history")
    header = ["Day", "Commit", "Compared with", "Machine", "The later commit", "Case by case"]
    yield stacked_table(header, [_step(step, here) for step in found])


def scripts(index: Index) -> dict[str, bytes]:
    """For each kernel the times of its cases, commit by commit, as a script."""
    return {
        at.history_script(kernel.id): script("kbtoolHistory", _data(index, kernel))
        for kernel in index.kernels.values()
    }


def _shown(index: Index, kernel: Kernel) -> list[Course]:
    """The courses that a chart can show, those of one machine and case set together."""
    found = [one for one in index.courses[kernel.id] if len(one.points) > 1 and _metrics(one)]
    order = [(one.machine, one.case_set) for one in found]
    return sorted(found, key=lambda one: order.index((one.machine, one.case_set)))


def _metrics(course: Course) -> list[Metric]:
    """The metrics that two commits have, the one that a user meets first."""
    arm = course.points[-1].arms[0]
    return [
        metric
        for metric in METRICS
        if sum(point.times(arm, metric) is not None for point in course.points) > 1
    ]


def _set_title(kernel: Kernel, course: Course) -> str:
    """What the case set is called; older records name none."""
    if course.case_set is None:
        return "no case set"
    known = kernel.case_sets.get(course.case_set)
    return known.title if known else course.case_set


def _label(course: Course) -> str:
    return case_label(course.points[-1].entries[0].case)


def _run(point: Point) -> Run:
    """The newest run that timed the case."""
    return point.entries[0].run.run


def _before(course: Course, number: int) -> Run | None:
    return _run(course.points[number - 1]) if number else None


def _change(point: Point) -> str:
    """What became of the case since the commit before, in words; empty for the first."""
    row = point.row
    if row is None or row.verdict == "missing":
        return ""
    if row.verdict == "unlike":
        return f"not ranked: {row.why}"
    if row.verdict in {"slower", "faster"}:
        return f"{row.percent:.1f} % {row.verdict}"
    return row.verdict.replace("_", " ")


def _chart(kernel: Kernel, course: Course, metric: Metric, arms: Sequence[str], here: str) -> str:
    series = [
        Series(
            arm,
            [
                Drawn(
                    float(number), times.us,
                    f"{short_commit(_run(point))}, {timed(arm, *times).tooltip}",
                    times.low, times.high, at.published(at.relative(page_of(_run(point)), here)),
                )
                for number, point in enumerate(course.points)
                if (times := point.times(arm, metric))
            ],
            joined=True,
        )
        for arm in arms
    ]  # fmt: skip
    names = {float(n): short_commit(_run(point)) for n, point in enumerate(course.points)}
    title = f"{_set_title(kernel, course)}, {_label(course)}"
    return plot(
        f"Time of a call of {title} on {course.machine}, {how(metric == 'between')}, commit by"
        " commit; the table below has the figures",
        Axis("commits, in the order in which they were first timed", names=names),
        Axis("µs a call, log scale", "log10"),
        series,
    )


def _figures(course: Course, metric: Metric, shown: Sequence[str], here: str) -> str:
    rows = []
    for number, point in enumerate(course.points):
        run, before = _run(point), _before(course, number)
        change = inline(_change(point))
        linked = before is not None and change
        rows.append(
            [
                at.link(commit_text(run), page_of(run), here, run.id),
                f"{run.started:%Y-%m-%d}",
                *(_cell(point, arm, metric) for arm in shown),
                compare_link(change, run.id, point.arms[0], here, before.id)
                if linked and before
                else change,
            ]
        )
    header = ["Commit", "Day", *(f"{narrow(arm)} (µs)" for arm in shown), "Since the one before"]
    return slim_table(header, rows, range(2, 2 + len(shown)))


def _cell(point: Point, arm: str, metric: Metric) -> str:
    times = point.times(arm, metric)
    if times is None:
        return ""
    spread = muted(f"{significant(times.low)}–{significant(times.high)}")
    return f"{significant(times.us)} {spread}"


def _step(step: Step, here: str) -> list[str]:
    before, after = step.before.newest, step.after.newest
    arm = step.after.arm_of(after.results[-1])
    return [
        f"{after.run.started:%Y-%m-%d}",
        at.link(commit_text(after.run), page_of(after.run), here, after.run.id),
        at.link(commit_text(before.run), page_of(before.run), here, before.run.id),
        inline(after.machine),
        inline(answer(step.rows, "it")),
        compare_link("compare", after.run.id, arm, here, before.run.id),
    ]


def _data(index: Index, kernel: Kernel) -> dict[str, Any]:
    runs: dict[str, int] = {}
    courses = [
        {
            "machine": course.machine,
            "set": course.case_set or "",
            "title": _set_title(kernel, course),
            "case": _label(course),
            "metrics": _metrics(course),
            "points": [_point(point, runs) for point in course.points],
        }
        for course in _shown(index, kernel)
    ]
    pages = {run.id: at.published(page_of(run)) for run in index.runs_of(kernel=kernel.id)}
    return {"kernel": kernel.id, "runs": [[id_, pages[id_]] for id_ in runs], "courses": courses}


def _point(point: Point, runs: dict[str, int]) -> dict[str, Any]:
    """A point, with the place of its newest run among ``runs``, to which that is added."""
    run, row = _run(point), point.row
    told: dict[str, Any] = {
        "commit": short_commit(run),
        "day": f"{run.started:%Y-%m-%d}",
        "run": runs.setdefault(run.id, len(runs)),
        "runs": len(point.entries),
        "arms": {
            arm: {
                metric: list(map(_short, found))
                for metric in METRICS
                if (found := point.times(arm, metric))
            }
            for arm in point.arms
        },
        "deviation": {metric: _short(share) for metric, share in point.deviation.items()},
    }
    if row is not None and (change := _change(point)):
        told |= {"change": change, "metric": row.metric, "ratio": row.ratio and _short(row.ratio)}
        if row.verdict in _TONES:
            told["tone"] = _TONES[row.verdict]
    return told


def _short(value: float) -> float:
    """More digits than any is shown with."""
    return float(f"{value:.5g}")
