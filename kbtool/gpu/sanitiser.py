"""Parse the output of compute-sanitizer: the number of errors, and the first reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

OPTIONS = {
    # Without padding, an access past the end of a tensor hits its neighbour and is not reported.
    "memcheck": ("--padding", "128"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
"""Tool → its own options, besides the common ones."""
COMMON = ("--print-limit", "200", "--target-processes", "all")
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Without it torch's caching allocator returns parts of one large allocation, and memcheck
cannot see accesses out of bounds."""

_PREFIX = re.compile(r"^=========\s?")
_SUMMARY = re.compile(
    r"^(?:ERROR SUMMARY: (\d+) errors?"
    r"|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\))"
)
_NO_DEVICE = re.compile(
    r"Device not supported|No CUDA-capable device"
    r"|Unable to find (?:a matching|.*injection)|driver version is insufficient"
)
_ENDED_EARLY = "Target application terminated before first instrumented API call"
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")
_REPORT_LINES = 30
_MOST_REPORTS = 20


def command(program: str, tool: str) -> list[str]:
    """The compute-sanitizer command that runs the worker."""
    return [program, "--tool", tool, *OPTIONS[tool], *COMMON]


def read(lines: Iterable[str]) -> tuple[int | None, list[str]]:
    """The tool's error count, and its reports as printed: the first of each place and kind.

    Returns:
        The count is ``None`` if there is no summary, because the tool did not finish.
    """
    messages = [_PREFIX.sub("", line) for line in lines if _PREFIX.match(line)]
    counts = [match for line in messages if (match := _SUMMARY.match(line))]
    count = sum(int(part or 0) for part in counts[-1].groups()) if counts else None
    return count, _reports(messages)


def _reports(messages: list[str]) -> list[str]:
    """The reports, each with its indented lines; reports that differ only in numbers, once."""
    found: dict[str, str] = {}
    for number, line in enumerate(messages):
        if not line.strip() or line.startswith(("COMPUTE-SANITIZER", " ")) or _SUMMARY.match(line):
            continue
        report = [line]
        for more in messages[number + 1 :]:
            if not more.startswith(" ") or len(report) == _REPORT_LINES:
                break
            report.append(more)
        found.setdefault(_NUMBER.sub("", "".join(report[:2])), "\n".join(report))
    return list(found.values())[:_MOST_REPORTS]


def printed_by_program(lines: Iterable[str]) -> list[str]:
    """What the program itself printed."""
    return [line for line in lines if line.strip() and not _PREFIX.match(line)]


def unavailable_reason(lines: Sequence[str]) -> str | None:
    """The line in which the tool says that it cannot work on this machine, if any.

    "Terminated before first instrumented API call" counts only if the program printed nothing.
    """
    messages = [_PREFIX.sub("", line) for line in lines if _PREFIX.match(line)]
    why = next((line for line in messages if _NO_DEVICE.search(line)), None)
    if why is None and not printed_by_program(lines):
        why = next((line for line in messages if _ENDED_EARLY in line), None)
    return why
