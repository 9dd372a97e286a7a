"""Profiles as tables: what Nsight Compute and Nsight Systems measured of each kernel, as lines.

``ncu --csv`` writes a row for each metric of a kernel, or with ``--page raw`` a row for each kernel
and a column for each metric, with the units in the first row. ``nsys stats --format csv`` writes a
row for each kernel or call. Each figure becomes one line, in the order of ncu's own text: metric,
unit, value, kernel. So an expression sees a figure with its unit, whichever way it was written.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_MOST = 200_000
"""Figures of a profile that are kept: nobody profiles more kernels at once."""
_LONGEST_NAME = 100
_SHARE = 0.05
_HEADERS = (b"Metric Name", b"Kernel Name", b"Time (%)", b"Time(%)")
_METRIC = re.compile(r"[a-z0-9]+__\w|\.(?:sum|avg|min|max|pct|ratio)\b")
_NUMBER = re.compile(r"-?[\d.,]*\d(?:[eE][+-]?\d+)?")
_TIMES = {"second": 1e6, "s": 1e6, "msecond": 1e3, "ms": 1e3, "usecond": 1.0, "us": 1.0,
          "nsecond": 1e-3, "ns": 1e-3}  # fmt: skip
"""Unit → microseconds."""
_DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput",
            "Compute (SM) [%]")  # fmt: skip
_MEMORY = ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory Throughput",
           "Memory [%]")  # fmt: skip
_READ = re.compile(r"(?P<metric>.+?) (?P<unit>\S*) (?P<value>-?[\d.]+(?:e[+-]?\d+)?) in kernel"
                   r" (?P<kernel>.+)", re.DOTALL)  # fmt: skip


class Reading(NamedTuple):
    """A figure that a profiler measured of a kernel, or a remark of it."""

    number: int
    """Its line in the text."""
    kernel: str
    line: str


@dataclass
class Profile:
    """The tables of a text, read while it goes by."""

    readings: dict[tuple[str, str, str], Reading] = field(default_factory=dict)
    """Kernel, metric and unit → the first figure."""
    capabilities: set[str] = field(default_factory=set)
    """Of the cards that were profiled, as digits: 90."""
    _times: dict[str, float] = field(default_factory=dict)
    _shares: dict[str, dict[str, float]] = field(default_factory=dict)
    _columns: list[str] = field(default_factory=list)
    _units: list[str] | None = None
    _quoted: bool = False
    _line: int = 0

    def without(self, text: Iterable[bytes]) -> Iterator[bytes]:
        """The text, with an empty line for each row of a table."""
        rest = b""
        for block in text:
            whole, end, rest = (rest + block).rpartition(b"\n")
            if not end:
                if len(rest) > len(block) + (1 << 16):
                    yield rest  # one long line: no table
                    rest = b""
                continue
            yield self._rest_of(whole) + b"\n"
        if rest:
            yield self._rest_of(rest)

    def _rest_of(self, block: bytes) -> bytes:
        if not self._columns and not any(title in block for title in _HEADERS):
            self._line += block.count(b"\n") + 1
            return block
        lines = block.split(b"\n")
        kept = [b"" if self._take(line) else line for line in lines]
        return b"\n".join(kept)

    def _take(self, raw: bytes) -> bool:
        """Whether a line is a row of a table; if so, its figures are noted."""
        self._line += 1
        may_be_header = any(title in raw for title in _HEADERS)
        if not self._columns and not may_be_header:
            return False
        row = _cells(raw)
        if row is None:
            return False
        if may_be_header and _is_header(row):
            self._columns = [title.strip() for title in row]
            self._units, self._quoted = None, b'"' in raw
            return True
        if not self._columns:
            return False
        if not self._is_row(raw, row):
            self._columns = []  # the table has ended
            return False
        self._note(row)
        return True

    def _is_row(self, raw: bytes, row: list[str]) -> bool:
        if self._quoted:
            # ncu leaves out the last cells of a row, and ends it with a comma.
            return raw.lstrip()[:1] == b'"' and 2 <= len(row) <= len(self._columns) + 1
        return len(row) == len(self._columns)

    def _note(self, row: list[str]) -> None:
        cells = dict(zip(self._columns, row, strict=False))
        kernel = _short(cells.get("Kernel Name") or cells.get("Name") or "")
        capability = cells.get("CC", "").replace(".", "")
        if capability.isdecimal() and capability.isascii() and len(capability) in {2, 3}:
            self.capabilities.add(capability)
        if "Metric Name" in cells:
            metric, unit = cells["Metric Name"], cells.get("Metric Unit", "")
            if (kernel, metric, unit) not in self.readings or metric in _DURATION:
                self._figure(kernel, metric, unit, cells.get("Metric Value", ""))
            if remark := cells.get("Rule Description"):
                self._add(kernel, remark, "", f"{remark} in kernel {kernel}")
        elif "Kernel Name" in cells:
            if self._units is None:
                # The row of units has no kernel; some exports leave it out.
                self._units = row if not kernel else [""] * len(row)
                if not kernel:
                    return
            units = dict(zip(self._columns, self._units, strict=False))
            for metric, value in cells.items():
                if _METRIC.search(metric):
                    self._figure(kernel, metric, units.get(metric, ""), value)
        else:
            self._of_system(kernel, cells)

    def _figure(self, kernel: str, metric: str, unit: str, stated: str) -> None:
        value = _value(stated)
        if value is None or not kernel or not metric:
            return
        unit = unit or ("%" if re.search(r"[._]pct\b|\.pct_", metric) else "")
        if unit in _TIMES:
            value, unit = value * _TIMES[unit], "us"
            if metric in _DURATION:
                self._times[kernel] = self._times.get(kernel, 0) + value
        self._add(kernel, metric, unit, f"{metric} {unit} {_shown(value)} in kernel {kernel}")
        if unit == "%":
            for names in (_COMPUTE, _MEMORY):
                if metric in names:
                    self._both(kernel, names[0], value)

    def _both(self, kernel: str, name: str, value: float) -> None:
        """The higher of the two throughputs, once both are known: low if neither is busy."""
        shares = self._shares.setdefault(kernel, {})
        shares[name] = value
        if len(shares) == 2:
            highest = "higher of compute and memory throughput"
            line = f"{highest} % {_shown(max(shares.values()))} in kernel {kernel}"
            self._add(kernel, highest, "%", line)

    def _of_system(self, name: str, cells: dict[str, str]) -> None:
        """A row of ``nsys stats``: how much of the time, how often, how long each time."""
        calls = cells.get("Instances") or cells.get("Num Calls") or cells.get("Calls")
        share = _value(cells.get("Time (%)") or cells.get("Time(%)") or "")
        average = _value(cells.get("Avg (ns)") or cells.get("Average") or "")
        if not name or not calls or share is None or average is None:
            return
        kind = "kernel" if "Instances" in cells else "call"
        self._times[name] = self._times.get(name, 0) + share
        self._add(name, kind, "", f"Time % {_shown(share)}, Avg us {_shown(average / 1e3)}, {calls}"
                                  f" times in {kind} {name}")  # fmt: skip

    def _add(self, kernel: str, metric: str, unit: str, line: str) -> None:
        if len(self.readings) < _MOST:
            self.readings.setdefault((kernel, metric, unit), Reading(self._line, kernel, line))

    @property
    def lines(self) -> list[tuple[int, str]]:
        """The figures as lines with their numbers, of the kernel that took longest first.

        Left out is a kernel that took less than a twentieth of the time of all, unless it is among
        the three that took longest.
        """
        longest = sorted(self._times.values(), reverse=True)
        least = min([sum(longest) * _SHARE, *longest[2:3]])
        ranked = sorted(self.readings.values(), key=lambda one: -self._times.get(one.kernel, least))
        return [(one.number, one.line) for one in ranked
                if self._times.get(one.kernel, least) >= least]  # fmt: skip


def lines_of(text: str) -> list[str]:
    """The lines of a text, those of tables as their figures."""
    profile = Profile()
    rest = b"".join(profile.without([text.encode("utf-8", "replace")])).decode("utf-8", "replace")
    return [*rest.splitlines(), *(line for _, line in profile.lines)]


def shown(line: str) -> str:
    """A line as a reader wants a figure: kernel, metric, value, unit. Any other stays as it is."""
    found = _READ.fullmatch(line)
    if found is None:
        return line
    return (
        f"kernel {found['kernel']}: {found['metric']} = {found['value']} {found['unit']}".rstrip()
    )


def _cells(raw: bytes) -> list[str] | None:
    text = raw.decode("utf-8", "replace").strip("\r\n\ufeff ")
    if "," not in text or text.startswith("=="):
        return None
    try:
        [row] = csv.reader([text])
    except (csv.Error, ValueError):
        return None
    return row


def _is_header(row: list[str]) -> bool:
    titles = {title.strip() for title in row}
    if "Metric Name" in titles:
        return "Metric Value" in titles
    if "Kernel Name" in titles:
        return any(map(_METRIC.search, row))
    return bool(titles & {"Time (%)", "Time(%)"}) and "Name" in titles


def _value(stated: str) -> float | None:
    """A number as the locale of the machine writes it: 1,205.00 and 9,00."""
    stated = stated.strip()
    if not _NUMBER.fullmatch(stated):
        return None
    last = max(stated.rfind(","), stated.rfind("."))
    if stated.count(",") + stated.count(".") == 1 and stated[last] == ",":
        is_decimal = len(stated) - last - 1 != 3
    else:
        is_decimal = last >= 0 and stated.count(stated[last]) == 1
    digits = re.sub("[.,]", "", stated)
    if is_decimal:
        after = len(stated) - last - 1
        digits = f"{digits[: len(digits) - after]}.{digits[len(digits) - after :]}"
    try:
        return float(digits)
    except ValueError:
        return None


def _shown(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else f"{value:e}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
