"""What compute-sanitizer prints, read: how many errors, and the first of them as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

OPTIONS = {
    # One past the end of a tensor is its neighbour, and goes unseen but for a gap between them.
    "memcheck": ("--padding", "128"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
"""Tool → its options, beside those that all take."""
COMMON = ("--print-limit", "200", "--target-processes", "all")
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Without it torch hands out parts of one large allocation, and no access leaves that."""

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
    """The command line under which the worker runs."""
    return [program, "--tool", tool, *OPTIONS[tool], *COMMON]


def read(lines: Iterable[str]) -> tuple[int | None, list[str]]:
    """Errors that the tool counted, and reports as printed: the first of each place and kind.

    Returns:
        ``None`` for the count if there was no summary: the tool did not come to its end.
    """
    said = [_PREFIX.sub("", line) for line in lines if _PREFIX.match(line)]
    counts = [match for line in said if (match := _SUMMARY.match(line))]
    count = sum(int(part or 0) for part in counts[-1].groups()) if counts else None
    return count, _reports(said)


def _reports(said: list[str]) -> list[str]:
    """Each a paragraph with what is indented under it; those alike but for numbers once."""
    found: dict[str, str] = {}
    for number, line in enumerate(said):
        if not line.strip() or line.startswith(("COMPUTE-SANITIZER", " ")) or _SUMMARY.match(line):
            continue
        report = [line]
        for more in said[number + 1 :]:
            if not more.startswith(" ") or len(report) == _REPORT_LINES:
                break
            report.append(more)
        found.setdefault(_NUMBER.sub("", "".join(report[:2])), "\n".join(report))
    return list(found.values())[:_MOST_REPORTS]


def printed_by_program(lines: Iterable[str]) -> list[str]:
    """What the program under the tool printed itself."""
    return [line for line in lines if line.strip() and not _PREFIX.match(line)]


def lacking(lines: Sequence[str]) -> str | None:
    """The line with which the tool says that it cannot work here, if it does.

    A program that ended before any call of CUDA is taken for such a tool only if it said nothing.
    """
    said = [_PREFIX.sub("", line) for line in lines if _PREFIX.match(line)]
    why = next((line for line in said if _NO_DEVICE.search(line)), None)
    if why is None and not printed_by_program(lines):
        why = next((line for line in said if _ENDED_EARLY in line), None)
    return why
