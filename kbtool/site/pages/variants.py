"""The variants of a kernel's targets, simplest first, and the speed of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbtool.ledger.measured import (
    Group,
    Machine,
    newer_than,
    newest_of_sets,
)
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many, validation
from kbtool.markdown.markup import heading, join, nothing, nowrap, stacked_table
from kbtool.markdown.plot import Axis, Row, rows, timed
from kbtool.model.kernel import Kernel, case_label
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.times import (
    OLDER,
    commit_text,
    ratio_text,
)
from kbtool.site.parts import newer_noisy
from kbtool.steps.benchmark.page import ceiling


def ladder(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """The variants of each target, simplest first, with the speed of those that were timed."""
    here = at.topic_page(kernel.id, "variants")
    parts: list[str] = []
    for name, target in kernel.targets.items():
        if len(target.variants) < 2:
            continue
        parts.append(heading(2, code(name), f"ladder.{at.fragment(name)}"))
        timed_here = [
            (machine, group)
            for machine, every in found.items()
            if machine.target == name
            for group in newest_of_sets(group for group in every if group.result.variants)
        ]
        for number, (machine, group) in enumerate(timed_here, 1):
            place = f"ladder.{at.fragment(name)}.{number}"
            parts.append(heading(3, f"{inline(group.label)}, {inline(machine.name)}", place))
            newer = newer_than((one for one in found[machine] if one.result.variants), group)
            parts.append(_rungs(index, kernel, machine, group, newer, here))
        if not timed_here:
            rungs = ", ".join(code(variant) for variant in target.variants)
            parts += [
                rungs,
                nothing("No figures because no run of this target timed its variants."),
            ]
    return parts


def _rungs(
    index: Index, kernel: Kernel, machine: Machine, group: Group, newer: Group | None, here: str
) -> str:
    target = kernel.targets[machine.target]
    order = [name for name in target.variants if name in group.result.variants]
    order += [name for name in group.result.variants if name not in order]
    checked = validation(group.run)
    lines = []
    for name in order:
        judged = [case.passed for case in checked.cases if case.variant == name] if checked else []
        spec = target.variants.get(name)
        lines.append(
            [
                code(name),
                ", ".join(map(inline, spec.architectures)) or "every" if spec else "",
                f"{sum(judged)} of {many(len(judged), 'case')}"
                if judged
                else "not tried by itself",
                ratio_text(group, group.both(order[0], name)),
                ratio_text(group, group.both(group.result.baseline, name)),
                ratio_text(group, group.both(group.subject, name)),
                _workspace(group, name),
            ]
        )
    header = [
        "Variant", "Architectures", "Right in the same run", f"{code(order[0])} ÷ it",
        f"{inline(group.result.baseline)} ÷ it", "Default choice ÷ it", "Workspace (bytes)",
    ]  # fmt: skip
    run = index.run_link(group.run, here)
    age = f", {OLDER}" if index.is_older(group.run) else ""
    noise = f", {inline(why)}" if (why := group.noise_reason) else ""
    noise += f"; {newer_noisy(index, newer.run, here)}" if newer else ""
    return join(
        [
            f"Run of {run}, commit {commit_text(group.run)}{age}{noise}. Above 1 the variant is"
            " faster.",
            stacked_table(header, lines, {3, 4, 5, 6}),
            _chart(machine, group, order, index.arms[kernel.id]),
        ]
    )


def _chart(machine: Machine, group: Group, order: Sequence[str], arms: Sequence[str]) -> str:
    """The time of every variant and of the baseline, case by case."""
    shown = [group.result.baseline, *order]
    cases = [
        Row(
            case_label(case),
            {
                arm: timed(arm, one.median_us, one.low_us, one.high_us)
                for arm in shown
                if (one := case.arms.get(arm)) is not None
            },
            ceiling(group.result, case),
        )
        for case in group.cases
    ]
    return rows(
        f"Time of a call of each variant on {machine.name}, {group.title}, with quartiles;"
        " the page of the run has the figures",
        Axis("µs a call, log scale", "log10"),
        arms,
        cases,
    )


def _workspace(group: Group, arm: str) -> str:
    """The memory that an arm needs besides inputs and outputs, as a range over the cases."""
    needs = group.workspace(arm)
    if needs is None:
        return ""
    low, high = needs
    return f"{high:,}" if low == high else nowrap(f"{low:,}–{high:,}")
