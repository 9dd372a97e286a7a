"""The charts of a kernel: times over its scaling axis, and a map of ratios, shape by peer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from kbtool.ledger.fastest import fields
from kbtool.ledger.scaling import Line, axes, lines
from kbtool.ledger.timings.spread import LEAST
from kbtool.markdown.escape import attribute, inline, raw
from kbtool.markdown.figures import many, significant
from kbtool.markdown.markup import folded, heading, muted, narrow, nothing, slim_table
from kbtool.markdown.plot import Axis, Point, Series, mark_of, plot, timed
from kbtool.model.kernel import Kernel, case_label, value_text
from kbtool.model.twin import ArmTime, MeasuredCase, MeasuredSet, ProblemField
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.measured import roofs
from kbtool.site.pages.times import meanings
from kbtool.site.parts import section

_MOUNT = "kb-chart"
"""The element that ``assets/charts.js`` fills."""
_SIGNS = (
    "Time of each peer ÷ ours. ▲: ours is faster. ▼: the peer is faster. ≈: no difference that"
    " counts, less than 2 % or less than the quartiles spread."
)
_ROOF = (
    "Below the slope reading bounds a case, below the level arithmetic does. Both ceilings are"
    " measured, so a point may lie a little above. A point leads to its run."
)


def charts(index: Index, kernel: Kernel) -> list[str]:
    """Times over the field that varies most, for the line of most points; and the map."""
    results = index.measured[kernel.id]
    known = fields(kernel, results)
    over = axes(known, results)
    ratios = list(_map(index, kernel, results))
    roofline = roofs(index, kernel, at.topic_page(kernel.id, "charts"))
    return [
        *(
            [
                heading(2, "Time over size", "size"),
                *_over_size(index, kernel, known, over, lines(known, results, over[0])[0]),
            ]
            if over
            else [nothing("No data because no field was timed at three sizes, the others alike.")]
        ),
        meanings(kernel, index.arms[kernel.id]),
        section("Ratios, shape by peer", "map", *([_SIGNS, *ratios] if ratios else [])),
        section("Rooflines", "roofline", *([_ROOF, *roofline] if roofline else [])),
    ]


def _over_size(
    index: Index, kernel: Kernel, known: Sequence[ProblemField], over: Sequence[str], line: Line
) -> Iterator[str]:
    here = at.topic_page(kernel.id, "charts")
    between = any(of.measure == "between" for _, of, _ in line.points)
    arms = index.arms[kernel.id]
    data = {
        "measured": at.relative(at.measured_script(kernel.id), here),
        "home": at.relative(at.HOME, here).removesuffix(at.HOME),
        "arms": json.dumps([[name, *mark_of(number)] for number, name in enumerate(arms)]),
        "axes": json.dumps(list(over)),
        "start": json.dumps({"machine": line.machine, "target": line.target, "shape": line.shape}),
    }
    told = "".join(f' data-{name}="{attribute(value)}"' for name, value in data.items())
    drawn = _chart(known, line, arms, between)
    yield (
        "Time of a call, with the quartiles of its samples, by the newest commit that timed each"
        " case. The dashed line is the time at the ceilings measured on the machine; they are"
        " measurements too, so a point may lie a little below. A point leads to its run."
    )
    figures = _figures(line, arms, between)
    yield f'<div id="{_MOUNT}"{told} markdown="block">\n\n{drawn}\n\n{figures}\n\n</div>'


def _chart(known: Sequence[ProblemField], line: Line, arms: Sequence[str], between: bool) -> str:
    series = [
        Series(
            arm,
            [
                point
                for size, _, case in line.points
                if arm in case.arms
                if (point := _point(size, arm, case, between)) is not None
            ],
            joined=True,
        )
        for arm in arms
    ]
    floor = [(size, case.floor_us) for size, _, case in line.points if case.floor_us is not None]
    (field,) = (one for one in known if one.name == line.axis)
    return plot(
        f"Time of a call over {line.axis}, {how(between)}, on {line.machine}: {said(known, line)};"
        " both axes are logarithmic, and the table below has the figures",
        Axis(f"{line.axis}, {field.help.rstrip('.')}, log scale", "log2"),
        Axis("µs a call, log scale", "log10"),
        series,
        ("time at the measured ceilings", floor) if len(floor) > 1 else None,
    )


def said(known: Sequence[ProblemField], line: Line) -> str:
    """The fields that the cases of a line share, where measured cases differ in them."""
    return " ".join(
        f"{field.name}={value_text(line.shape[field.name])}"
        for field in known
        if field.name in line.shape and len(field.values) > 1
        if line.shape[field.name] is not None
    )


def how(between: bool) -> str:
    """By what measure a time is."""
    return "between plain kernels" if between else "in a chain of its own calls"


def _times(arm: ArmTime, between: bool) -> tuple[float | None, float | None, float | None]:
    """The lower quartile, the median and the upper quartile."""
    if between:
        return arm.between_low_us, arm.between_us, arm.between_high_us
    return arm.low_us, arm.us, arm.high_us


def _point(size: float, arm: str, case: MeasuredCase, between: bool) -> Point | None:
    low, us, high = _times(case.arms[arm], between)
    if us is None:
        return None
    tooltip = timed(arm, us, low or us, high or us).tooltip
    return Point(size, us, f"{case_label(case)}, {tooltip}", low, high)


def _figures(line: Line, arms: Sequence[str], between: bool) -> str:
    shown = [arm for arm in arms if any(arm in case.arms for _, _, case in line.points)]
    rows = [
        [
            f"{size:,.0f}",
            *(_cell(case, arm, between) for arm in shown),
            significant(case.floor_us) if case.floor_us is not None else "",
        ]
        for size, _, case in line.points
    ]
    header = [line.axis, *(f"{narrow(arm)} (µs)" for arm in shown), "At the measured ceilings (µs)"]
    return slim_table(header, rows, range(len(header)))


def _cell(case: MeasuredCase, arm: str, between: bool) -> str:
    if arm not in case.arms:
        return ""
    low, us, high = _times(case.arms[arm], between)
    if us is None:
        return ""
    spread = f" {muted(f'{significant(low)}–{significant(high)}')}" if low and high else ""
    return f"{significant(us)}{spread}"


# ---- the map ----


def _map(index: Index, kernel: Kernel, results: Sequence[MeasuredSet]) -> Iterator[str]:
    where = dict.fromkeys((of.machine, of.target, of.dtype) for of in results)
    for machine, target, dtype in where:
        found = [
            (case, ratios)
            for of in results
            if (of.machine, of.target, of.dtype) == (machine, target, dtype)
            for case in of.cases
            if case.current and (ratios := _ratios(case))
        ]
        peers = [arm for arm in index.arms[kernel.id] if any(arm in ratios for _, ratios in found)]
        if peers:
            rows = [
                [inline(case_label(case)), *(ratios.get(peer, "") for peer in peers)]
                for case, ratios in found
            ]
            title = ", ".join(filter(None, [machine, target, dtype]))
            table = slim_table(["Case", *map(narrow, peers)], rows, range(1, len(peers) + 1))
            yield folded(f"{inline(title)}: {many(len(rows), 'case')}", table)


def _ratios(case: MeasuredCase) -> dict[str, str]:
    """Peer → its cell."""
    cells = {}
    for name, arm in case.arms.items():
        if arm.ratio is not None:
            sign, kind = _outcome(arm.ratio, arm.ratio_low, arm.ratio_high)
            cells[name] = raw(
                f'<span class="kb-heat kb-heat--{kind}" data-sort="{arm.ratio:.6g}">{sign}'
                f" {significant(arm.ratio)}</span>"
            )
    return cells


def _outcome(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """The sign of a ratio and its class: won, lost, or the size of noise."""
    if (low or ratio) <= 1 <= (high or ratio) or abs(math.log(ratio)) < LEAST:
        return "≈", "same"
    return ("▲", "won") if ratio > 1 else ("▼", "lost")
