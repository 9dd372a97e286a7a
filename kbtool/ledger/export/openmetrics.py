"""What runs measured as OpenMetrics text, which Prometheus and what reads its format take.

A metric and its unit are a family of gauges; ``low`` and ``high`` of a row are families of their
own. Each sample has the time at which its run began. Units are the base units that OpenMetrics asks
for: seconds, bytes, ratio. A sample in a unit that this module does not know has that unit as a
label too, since names do not tell small letters from large ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbtool.ledger.export.runs import Row

LABELS = (
    "run", "session", "origin", "source", "recipe", "step", "commit", "kernel", "target",
    "problem", "device", "card", "case_set", "name", "case", "dtype", "arm",
    "role", "metric", "better", "counts",
)  # fmt: skip
"""The columns of a row that become labels; one that is null becomes none."""

_BASE = {
    "us": ("seconds", 1e6), "GB/s": ("bytes_per_second", 1e-9),
    "GFLOP/s": ("operations_per_second", 1e-9), "B": ("bytes", 1.0), "1": ("ratio", 1.0),
    "%": ("ratio", 100.0), "ms": ("seconds", 1e3), "ns": ("seconds", 1e9), "s": ("seconds", 1.0),
    "J": ("joules", 1.0), "mJ": ("joules", 1e3), "uJ": ("joules", 1e6), "kJ": ("joules", 1e-3),
    "W": ("watts", 1.0), "mW": ("watts", 1e3), "uW": ("watts", 1e6), "kW": ("watts", 1e-3),
    "MW": ("watts", 1e-6),
}  # fmt: skip
"""Unit of a row → base unit, and how many of the row's make one of it. A micro is written u."""
_MICRO = str.maketrans("\u00b5\u03bc", "uu")
"""The micro sign, and the Greek letter."""

Family = tuple[str, str, dict[str, tuple[float, float]]]
"""Unit, what it is, and labels → value and seconds since 1970."""


def openmetrics(rows: Sequence[Row]) -> bytes:
    """The text, UTF-8, families in alphabetical order."""
    families: dict[str, Family] = {}
    for row in rows:
        labels, when = _labels(row), row.started.timestamp()
        known = _BASE.get(row.unit.translate(_MICRO))
        unit, per_base = known or (_word(row.unit.replace("/", " per ")), 1.0)
        if known is None:
            labels += f',unit="{_escaped(row.unit)}"'
        for of, value in (("", row.value), (" low", row.low), (" high", row.high)):
            if value is not None:
                name = f"kbtool_{_word(row.metric + of)}_{unit}"
                family = families.setdefault(name, (unit, row.metric + of, {}))
                family[2][labels] = (value / per_base, when)
    return "".join(f"{line}\n" for line in _lines(families)).encode()


def _lines(families: dict[str, Family]) -> Iterator[str]:
    for name, (unit, text, samples) in sorted(families.items()):
        yield f"# TYPE {name} gauge"
        yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {_escaped(text)}, as kbtool recorded it."
        for labels, (value, when) in samples.items():
            yield f"{name}{{{labels}}} {value!r} {when!r}"
    yield "# EOF"


def _labels(row: Row) -> str:
    found = []
    for name in LABELS:
        value = getattr(row, name)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append(f'{name}="{_escaped(text)}"')
    return ",".join(found)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _word(text: str) -> str:
    """``text`` as part of a name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "other"
