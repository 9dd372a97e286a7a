"""How values are shown that a script logged, or a file of another tool held. No step makes them."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import counted, instant
from kbtool.markdown.markup import admonition, join, stacked_table, table
from kbtool.model.kinds.logged import ImportResult, LogResult, MetricsResult, in_a_line
from kbtool.model.run import StepStatus
from kbtool.steps.base import Links, ResultKind

MOST = 200
"""So many metrics are listed on a page; the record and its export hold all."""


def listed(result: MetricsResult, links: Links) -> str:
    """The metrics as a table, under the remark that nobody validated them."""
    if not result.metrics:
        return ""
    header = ["Metric", "Benchmark and case", "Value", "Unit", "Better", "Quartiles", "Samples"]
    rows = []
    for series in result.metrics[:MOST]:
        low, high = series.quartiles
        quartiles = "" if low is None or high is None else f"{counted(low)} to {counted(high)}"
        rows.append(
            [
                inline(series.name), inline(series.label), counted(series.median),
                inline(series.shown_unit), series.better, quartiles, str(series.count),
            ]
        )  # fmt: skip
    left = len(result.metrics) - MOST
    return join(
        [
            admonition("warning", "Not validated", f"These values were {result.unvalidated}."),
            stacked_table(header, rows, {2, 5, 6}),
            f"The first {MOST} of {len(result.metrics)}; {links.json()} has all."
            if left > 0
            else None,
        ]
    )


class Logged(ResultKind[LogResult]):
    """What a script logged."""

    result = LogResult

    def found(self, result: LogResult, status: StepStatus) -> str:
        """The first metrics."""
        return in_a_line(result)

    def page(self, result: LogResult, links: Links) -> str:
        """The script's hash and the metrics."""
        script = "Python read the script from no file."
        if result.sha256:
            script = f"The script when it began: SHA-256 {code(result.sha256[:12])}."
        return join([script, listed(result, links)])


class Imported(ResultKind[ImportResult]):
    """What a result file of another tool holds."""

    result = ImportResult

    def found(self, result: ImportResult, status: StepStatus) -> str:
        """The first metrics."""
        return in_a_line(result)

    def page(self, result: ImportResult, links: Links) -> str:
        """The file, its tool and its machine, and the metrics."""
        facts = {
            "Tool": f"{inline(result.tool)} {inline(result.tool_version or '')}".strip(),
            "File": f"{code(result.file)}, SHA-256 {code(result.sha256[:12])}",
            "Measured": instant(result.measured_at) if result.measured_at else None,
            "Commit": code(result.commit) + (", and changes" if result.dirty else "")
            if result.commit
            else None,
            **{f"Its machine: {name}": inline(text) for name, text in result.machine.items()},
        }
        known = [[inline(name), text] for name, text in facts.items() if text]
        return join([table(["What", "Value"], known), listed(result, links)])
