"""The measurements in a session's log, one table each."""

from __future__ import annotations

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import anchor, chip, heading, join, optional, slim_table
from kbtool.model.measurement import Measurement
from kbtool.model.session import Session
from kbtool.site.parts import cite, section, why_unknown


def measurements(session: Session) -> str:
    """Every measurement, with its conditions and whether the kernel was validated before."""
    tables = []
    for number, measurement in enumerate(session.measurements):
        first = all(m.id != measurement.id for m in session.measurements[:number])
        tables.append(_measurement(session, measurement, first))
    return section("Measurements", "measurements", *tables)


def _measurement(session: Session, measurement: Measurement, first: bool) -> str:
    prefix = f"measurements.{measurement.id}"
    keys = list(dict.fromkeys(key for row in measurement.rows for key in row.case))
    header = [
        "Case", *map(inline, keys),
        *(inline(column.title) + (f" ({inline(column.unit)})" if column.unit else "")
          for column in measurement.columns.values()),
        "Verdict", "Remark",
    ]  # fmt: skip
    rows = []
    seen: set[str] = set()
    for row in measurement.rows:
        place = anchor(f"{prefix}.{row.id}") if first and row.id not in seen else ""
        seen.add(row.id)
        figures = []
        for column in measurement.columns:
            figure = row.values.get(column)
            reason = why_unknown(session, f"{prefix}.{row.id}.{column}")
            figures.append(inline(f"{figure:f}") if figure is not None else reason)
        rows.append(
            [
                place + inline(row.id),
                *(inline(row.case.get(key, "")) for key in keys),
                *figures,
                chip(row.verdict) if row.verdict else "",
                optional(row.note),
            ]
        )
    start = 1 + len(keys)
    about = [inline(measurement.kind), optional(measurement.about)]
    if measurement.artifact:
        about.append(f"measured: {inline(measurement.artifact)}")
    about.append({
        True: "validated before it was measured",
        False: "**not validated** before it was measured",
        None: "whether it was validated before is not recorded",
    }[measurement.validated])  # fmt: skip
    about.append(cite(measurement.source))
    return join(
        [
            heading(3, inline(measurement.title), prefix if first else f"{prefix}-again"),
            " · ".join(part for part in about if part),
            slim_table(header, rows, range(start, start + len(measurement.columns))),
        ]
    )
