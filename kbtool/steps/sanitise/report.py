"""What compute-sanitizer reported, as text."""

from __future__ import annotations

from kbtool.model.kinds.sanitise import SanitiseResult, ToolReport
from kbtool.model.words import many


def report(result: SanitiseResult) -> list[str]:
    """The number of errors of each tool, in lines."""
    lines = []
    for tool in result.tools:
        lines += [f"{tool.tool}: {count(tool)} in {many(len(tool.cases), 'case')}", *tool.reports]
    return lines


def count(tool: ToolReport) -> str:
    """How many errors a tool counted, if it finished."""
    if tool.errors is None:
        return "no count of errors"
    return many(tool.errors, "error") if tool.errors else "no errors"
