"""A kernel's times commit by commit: a chart of one case, and which commits changed any."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kbtool.ledger.timings.courses import Course, Point
from kbtool.ledger.timings.verdict import Comparison, Side, answer
from kbtool.markdown.escape import attribute, inline
from kbtool.markdown.figures import many, significant
from kbtool.markdown.markup import folded, muted, narrow, nothing, nowrap, slim_table, stacked_table
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
_MORE = {"slower": "more", "faster": "less"}


def by_commit(index: Index, kernel: Kernel) -> Iterator[str]:
    """The chart of a case, commit by commit, and its figures."""
    found = _shown(index, kernel)
    if not found:
        yield nothing("No chart because no case was timed at two commits in quiet runs.")
        return
    # By the measure that a user meets; the longest, and of those the one that was timed last.
    course = max(
        found,
        key=lambda one: (
            one.metric == "between", len(one.points), one.points[-1].side.newest.run.started,
        ),
    )  # fmt: skip
    here = at.topic_page(kernel.id, "history")
    arms = index.arms[kernel.id]
    data = {
        "history": at.relative(at.history_script(kernel.id), here),
        "home": at.relative(at.HOME, here).removesuffix(at.HOME),
        "arms": json.dumps([[name, *mark_of(number)] for number, name in enumerate(arms)]),
        "start": str(found.index(course)),
    }
    told = "".join(f' data-{name}="{attribute(value)}"' for name, value in data.items())
    shown = [
        arm
        for arm in arms
        if any(arm in point.arms and point.times(arm, course.metric) for point in course.points)
    ]
    yield "Time of a call by commit, with the quartiles of its samples. A point leads to its run."
    title = (
        f"**{inline(course.machine)}, {inline(_set_title(kernel, course))}:"
        f" {inline(_label(course))}**, {how(course.metric == 'between')}"
    )
    drawn = _chart(kernel, course, arms, shown, here)
    figures = _figures(index, course, shown, here)
    yield (
        f'<div id="{_MOUNT}"{told} markdown="block">\n\n{title}\n\n{drawn}\n\n{figures}\n\n</div>'
    )


def changes(index: Index, kernel: Kernel) -> Iterator[str]:
    """What became of the cases from commit to commit."""
    found = index.histories[kernel.id].steps
    if not found:
        yield nothing("No data because no two commits were timed under the same conditions.")
        return
    here = at.topic_page(kernel.id, "history")
    changed = [step for step in found if step.of("slower", "faster")]
    same = [step for step in found if not step.of("slower", "faster")]
    yield (
        f"**{len(changed)} of {many(len(found), 'step')} changed a case.** A step is from a commit"
        " to the next that timed a case of it under the same conditions, by the rule and with all"
        " runs of both, as `kbtool compare` takes them. Percentages are of the time: 50 % faster"
        " takes half of it."
    )
    if changed:
        yield _steps(index, changed, here)
    if same:
        yield folded(f"{many(len(same), 'step')} without a change", _steps(index, same, here))


def scripts(index: Index) -> dict[str, bytes]:
    """For each kernel the times of its cases, commit by commit, as a script."""
    return {
        at.history_script(kernel.id): script("kbtoolHistory", _data(index, kernel))
        for kernel in index.kernels.values()
    }


def _shown(index: Index, kernel: Kernel) -> list[Course]:
    """The courses that a chart can show, those of one machine and case set together."""
    found = [one for one in index.histories[kernel.id].courses if len(one.points) > 1]
    order = [(one.machine, one.case_set) for one in found]
    return sorted(found, key=lambda one: order.index((one.machine, one.case_set)))


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


def _ids(side: Side) -> list[str]:
    return [one.run.id for one in side.runs]


def _change(point: Point) -> str:
    """What became of the case since the commit before, in words; empty for the first."""
    row = point.row
    if row is None or row.verdict == "missing":
        return ""
    if row.verdict == "unlike":
        return f"not ranked: {row.why}"
    if row.verdict in _MORE:
        return f"{row.percent:.1f} % {_MORE[row.verdict]} time"
    return row.verdict.replace("_", " ")


def _chart(
    kernel: Kernel, course: Course, arms: Sequence[str], shown: Sequence[str], here: str
) -> str:
    """Of the arms, in the order of their colours, those that are shown."""
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
                if arm in shown and (times := point.times(arm, course.metric))
            ],
            joined=True,
        )
        for arm in arms
    ]  # fmt: skip
    names = {float(n): short_commit(_run(point)) for n, point in enumerate(course.points)}
    title = f"{_set_title(kernel, course)}, {_label(course)}"
    return plot(
        f"Time of a call of {title} on {course.machine}, {how(course.metric == 'between')}, by"
        " commit; the table below has the figures",
        Axis("commits, in the order in which they were first timed", names=names),
        Axis("µs a call, log scale", "log10"),
        series,
    )


def _figures(index: Index, course: Course, shown: Sequence[str], here: str) -> str:
    rows = []
    for point in course.points:
        run, change = _run(point), inline(_change(point))
        if change and point.before:
            before = _ids(point.before)
            change = compare_link(change, _ids(point.side), point.arms[0], here, before)
        rows.append(
            [
                _commit(index, run, here),
                nowrap(f"{run.started:%Y-%m-%d}"),
                change,
                *(_cell(point, arm, course) for arm in shown),
            ]
        )
    header = ["Commit", "Day", "Since the one before", *(f"{narrow(arm)} (µs)" for arm in shown)]
    return slim_table(header, rows, range(3, 3 + len(shown)))


def _cell(point: Point, arm: str, course: Course) -> str:
    times = point.times(arm, course.metric)
    if times is None:
        return ""
    spread = muted(f"{significant(times.low)}–{significant(times.high)}")
    return f"{significant(times.us)} {spread}"


def _commit(index: Index, run: Run, here: str) -> str:
    """The commit of a run, as a link to it."""
    link = at.link(commit_text(run), page_of(run), here, run.id)
    held = (run.id, run.attempt) in index.holders
    return link if held else f"{link} <br>{muted('not in this repository')}"


def _steps(index: Index, found: Sequence[Comparison], here: str) -> str:
    header = ["Day", "Commit", "Compared with", "Machine", "The later commit", "Case by case"]
    return stacked_table(header, [_step(index, step, here) for step in found])


def _step(index: Index, step: Comparison, here: str) -> list[str]:
    before, after = step.a.newest, step.b.newest
    arm = step.b.arm_of(after.results[-1])
    return [
        nowrap(f"{after.run.started:%Y-%m-%d}"),
        _commit(index, after.run, here),
        _commit(index, before.run, here),
        inline(after.machine),
        inline(answer(step.rows, "it")),
        compare_link("compare", _ids(step.b), arm, here, _ids(step.a)),
    ]


def _data(index: Index, kernel: Kernel) -> dict[str, Any]:
    runs: dict[str, int] = {}
    courses = [
        {
            "machine": course.machine,
            "set": course.case_set or "",
            "title": _set_title(kernel, course),
            "case": _label(course),
            "metric": course.metric,
            "points": [_point(course, point, runs) for point in course.points],
        }
        for course in _shown(index, kernel)
    ]
    pages = {run.id: at.published(page_of(run)) for run in index.runs_of(kernel=kernel.id)}
    return {"kernel": kernel.id, "runs": [[id_, pages[id_]] for id_ in runs], "courses": courses}


def _point(course: Course, point: Point, runs: dict[str, int]) -> dict[str, Any]:
    """A point, with the places of its runs among ``runs``, to which they are added."""
    run, row = _run(point), point.row
    told: dict[str, Any] = {
        "commit": short_commit(run),
        "day": f"{run.started:%Y-%m-%d}",
        "run": runs.setdefault(run.id, len(runs)),
        "runs": [runs.setdefault(id_, len(runs)) for id_ in _ids(point.side)],
        "timed": len(point.entries),
        "arms": {
            arm: list(map(_short, found))
            for arm in point.arms
            if (found := point.times(arm, course.metric))
        },
        "margin": point.margin and _short(point.margin),
    }
    if row is not None and (change := _change(point)):
        told |= {"change": change, "ratio": row.ratio and _short(row.ratio)}
        if point.before:
            told["before"] = [runs.setdefault(id_, len(runs)) for id_ in _ids(point.before)]
        if row.verdict in _TONES:
            told["tone"] = _TONES[row.verdict]
    return told


def _short(value: float) -> float:
    """More digits than any is shown with."""
    return float(f"{value:.5g}")
