"""What minimise, profile and sanitise steps found, as parts of a run's page."""

from __future__ import annotations

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.figures import counted, many, significant
from kbtool.markdown.markup import bullets, chip, facts, join, nothing, slim_table
from kbtool.model.kinds.minimise import MinimiseResult
from kbtool.model.kinds.profile import ProfileResult
from kbtool.model.kinds.sanitise import SanitiseResult
from kbtool.runner.words import not_reached
from kbtool.site import addresses as at
from kbtool.site.parts import folded
from kbtool.steps.minimise import fault_of
from kbtool.steps.sanitise import count


def minimised(result: MinimiseResult) -> str:
    """The smallest failing case, what happens beside it, and the parts alone."""
    if result.smallest is None or result.start is None:
        return f"None of {result.cases} cases fails."
    drawn = "{} of {}".format(*result.failed_draws) if result.failed_draws else ""
    return join(
        [
            facts(
                [
                    ("Cases that fail", f"{len(result.failing)} of {result.cases}"),
                    ("Made smaller", inline(f"{result.start.case_set}/{result.start.name}")),
                    ("Smallest", code(result.text)),
                    ("Seed", code(result.smallest_seed)),
                    ("Draws that fail", drawn),
                    ("Parts", inline(fault_of(result) or "none can run alone")),
                    ("Variant", code(result.variant) if result.variant else ""),
                    ("Device", inline(result.device)),
                    ("Cases tried", str(result.probes)),
                    ("Processes lost", str(result.deaths) if result.deaths else ""),
                    ("Ended early", inline(result.unfinished) if result.unfinished else ""),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            slim_table(
                ["Part, alone", "Verdict", "Remark"],
                [
                    [
                        inline(part.name),
                        chip("pass" if part.passed else "fail"),
                        inline(part.message or ""),
                    ]
                    for part in result.parts
                ],
            )
            if result.parts
            else None,
            "One field changed, all else as in the smallest case:",
            bullets(inline(axis.sentence) for axis in result.axes),
            f"Rule: {inline(result.rule)}",
        ]
    )


def profiled(result: ProfileResult, here: str) -> str:
    """The bottleneck of each case, and the figures that say so."""
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
                    ("Cases", f"{len(result.cases)} profiled{not_reached(result)}"),
                    ("Arm", inline(result.arm)),
                    ("Profiler", inline(result.profiler)),
                    ("Launch to launch", interval),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            *cases,
            *_metrics(result, here),
            f"Protocol: {inline(result.protocol)}",
        ]
    )


def _metrics(result: ProfileResult, here: str) -> list[str]:
    """What the profiler counted, folded up; what all launches have alike is left to the JSON."""
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
        every = at.link("JSON", at.twin(here), here)
        shown.append(f"Metrics alike in every launch: {len(alike)}; the {every} has them.")
    return shown


def _value(value: float | None) -> str:
    return "–" if value is None else counted(value)


def sanitised(result: SanitiseResult) -> str:
    """What each tool found, and its reports as printed."""
    about = facts(
        [
            ("compute-sanitizer", inline(result.version)),
            ("Tools", f"{len(result.tools)}{not_reached(result)}"),
            ("Artifact", code(result.sha256[:12])),
        ]
    )
    parts = []
    for tool in result.tools:
        verdict = chip("stopped" if tool.errors is None else "fail" if tool.errors else "pass")
        options = code(" ".join(tool.options))
        left_out = f", but for {', '.join(tool.excluded)}"
        parts += [
            f"**{inline(tool.tool)}** ({options}{inline(left_out) if tool.excluded else ''}):"
            f" {verdict} {count(tool)} in {many(len(tool.cases), 'case')}",
            *(block(report) for report in tool.reports),
        ]
    cases = dict.fromkeys(name for tool in result.tools for name in tool.cases)
    every = folded(f"Cases: {len(cases)}", bullets(inline(name) for name in cases))
    return join([about, *parts, every if cases else None])
