"""A profile on the page of its run."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import counted, significant
from kbtool.markdown.markup import bullets, chip, facts, folded, join, nothing, slim_table
from kbtool.model.kinds.profile import ProfileResult
from kbtool.steps.base import Links, not_reached


def page(result: ProfileResult, links: Links) -> str:
    """The bottleneck of each case, and the figures that show it."""
    cases = []
    for case in result.cases:
        cases += [
            f"**{inline(case.name)}**: {chip(case.bottleneck)} {inline(case.verdict)}",
            bullets(inline(reason) for reason in case.reasons),
        ]
    interval = f"{significant(result.launch_us)} µs" if result.launch_us else "not measured"
    return join(
        [
            facts(
                [
                    ("Cases", f"{len(result.cases)} profiled{not_reached(result.not_reached)}"),
                    ("Implementation", inline(result.arm)),
                    ("Profiler", inline(result.profiler)),
                    ("Launch to launch", interval),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            *cases,
            *_metrics(result, links),
            f"How it was profiled: {inline(result.protocol)}",
        ]
    )


def _metrics(result: ProfileResult, links: Links) -> list[str]:
    """The profiler's metrics, folded up; metrics equal in all launches are only in the JSON."""
    launches = [(case, launch) for case in result.cases for launch in case.launches]
    names = dict.fromkeys(name for _, launch in launches for name in launch.metrics)
    if not names:
        return [nothing("No metrics.")]
    values = {name: [launch.metrics.get(name) for _, launch in launches] for name in names}
    alike = [name for name in names if len(launches) > 1 and len(set(values[name])) == 1]
    differ = [name for name in names if name not in alike]
    header = ["Metric", *(f"{inline(case.name)}: {code(one.kernel)}" for case, one in launches)]
    rows = [[code(name), *map(_value, values[name])] for name in differ]
    shown = []
    if rows:
        figures = slim_table(header, rows, range(1, len(header)))
        shown.append(folded(f"Metrics: {len(rows)}", figures))
    if alike:
        shown.append(f"Metrics equal in every launch: {len(alike)}; the {links.json()} has them.")
    return shown


def _value(value: float | None) -> str:
    return "–" if value is None else counted(value)
