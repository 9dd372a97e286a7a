"""The page of a kernel that says what is fastest for a shape: a form where scripts run, and a table
of every measured case."""

from __future__ import annotations

from collections.abc import Iterator

from kbtool.ledger.fastest import Found
from kbtool.markdown.escape import attribute, code, inline, raw
from kbtool.markdown.figures import significant
from kbtool.markdown.markup import folded, heading, muted, nothing, slim_table
from kbtool.model.kernel import Kernel, case_label
from kbtool.model.twin import MeasuredCase, MeasuredSet
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.times import meanings

_MOUNT = "kb-fastest"
"""The element that ``assets/fastest.js`` fills."""


def fastest(index: Index, kernel: Kernel) -> list[str]:
    """The place of the form, how the answer is found, and a table for each machine."""
    results = index.measured[kernel.id]
    if not results:
        return [nothing("No data because no quiet run timed it.")]
    here = at.topic_page(kernel.id, "fastest")
    data = attribute(at.relative(at.measured_script(kernel.id), here))
    home = attribute(at.relative(at.HOME, here).removesuffix(at.HOME))
    return [
        "Which implementation is fastest for a shape, by what was measured. Nothing is"
        " interpolated: for a shape that was not measured the nearest measured cases answer, and"
        " the page says how far they are.",
        raw(
            f'<div id="{_MOUNT}" data-measured="{data}" data-home="{home}"><p>Asking for a shape'
            " needs JavaScript, which is off or has not loaded. The tables below have every"
            " measured case.</p></div>"
        ),
        heading(2, "How it is found", "how"),
        _how(kernel, here),
        *_tables(kernel, results),
    ]


def _how(kernel: Kernel, here: str) -> str:
    results = at.link("as on the page of results", at.topic_page(kernel.id, "results"), here)
    answers = f'<a href="{attribute(at.relative(at.ANSWERS, here))}">answers.json</a>'
    return (
        "A case answers if every field of text, truth value or list is the same. Its distance is"
        " the product, over the fields of numbers, of the larger value ÷ the smaller: 1 is the same"
        " case, 2 has one field twice as large. Where a case was measured several times the times"
        " between plain kernels count, then the newest. Ratios are times of the implementation ÷"
        f" ours, {results}; the range takes the quartiles of both. Programs find the same in"
        f" {answers}, and {code(f'kbtool fastest {kernel.id}')} prints it."
    )


def _tables(kernel: Kernel, results: list[MeasuredSet]) -> Iterator[str]:
    machines = dict.fromkeys(of.machine for of in results)
    yield heading(2, "Every measured case", "cases")
    yield meanings(kernel, (arm for of in results for case in of.cases for arm in case.arms))
    for machine in machines:
        found = [
            Found(of, case, 1.0, [])
            for of in results
            if of.machine == machine
            for case in of.cases
            if case.current
        ]
        rows = [_row(one) for one in found]
        header = ["Case", "Target", "Fastest", "µs", "Ours (µs)", "Best peer ÷ ours", "Measured"]
        yield folded(f"{inline(machine)}: {len(rows)} cases", slim_table(header, rows, {3, 4}))


def _row(one: Found) -> list[str]:
    first, own = one.fastest, one.own
    return [
        inline(case_label(one.case)),
        code(one.of.target),
        inline(first),
        _us(one, first),
        _us(one, own) + (f" {muted(inline(own))}" if own != one.of.subject else ""),
        _ratio(one.case),
        "between plain kernels" if one.of.measure == "between" else "in a chain",
    ]


def _us(one: Found, arm: str) -> str:
    us = one.us(arm)
    return significant(us) if us is not None else ""


def _ratio(case: MeasuredCase) -> str:
    """The best peer's time ÷ ours, with its range."""
    if case.best_peer is None or case.ratio is None:
        return ""
    arm = case.arms[case.best_peer]
    spread = (
        f"{significant(arm.ratio_low)}–{significant(arm.ratio_high)}, "
        if arm.ratio_low is not None and arm.ratio_high is not None
        else ""
    )
    return f"{significant(case.ratio)} {muted(spread + inline(case.best_peer))}"
