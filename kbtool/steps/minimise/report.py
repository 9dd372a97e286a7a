"""A smallest failing case, as text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from kbtool.model.kernel import GIVEN
from kbtool.model.kinds.minimise import Axis, MinimiseResult
from kbtool.model.words import many
from kbtool.steps.base import Invocation


def headline(result: MinimiseResult) -> str:
    """The smallest failing case in one line."""
    assert result.smallest is not None
    parts = [f"{_failing(result)}, the smallest: {result.text}"]
    parts += [
        _short(axis)
        for axis in result.axes
        if _tells(axis) and type(axis.value) is int and "=" not in axis.field
    ]
    fault = fault_of(result)
    return "; ".join([*parts, *([fault] if fault else [])])


def _tells(axis: Axis) -> bool:
    """Whether a value passes. 0 does not count: a case of size 0 passes trivially."""
    return any(p.state == "passes" and (p.value is False or p.value != 0) for p in axis.probes)


def _short(axis: Axis) -> str:
    """The results for the values of one field, in short."""
    if axis.boundary is None:
        return axis.sentence
    passes, fails = axis.boundary
    return f"{axis.field} fails from {fails} on, passes up to {passes}, of the values tried"


def fault_of(result: MinimiseResult) -> str | None:
    """The faulty part in words; ``None`` if no part could be tried."""
    if not result.parts:
        if not result.parts_of:
            return None
        others = f"variant{'s' * (len(result.parts_of) > 1)} {' and '.join(result.parts_of)}"
        return f"none of its parts can be run alone; those of {others} can"
    if result.at_fault:
        return f"at fault: {', '.join(result.at_fault)}"
    names = ", ".join(part.name for part in result.parts)
    return f"each part is right alone ({names}): look at the code between them"


def report(result: MinimiseResult, invocation: Invocation) -> list[str]:
    """The smallest failing case, its neighbours, the parts, and the command to run it again."""
    if result.smallest is None or result.start is None:
        return []
    lines = [
        f"{_failing(result)}; from {result.start.case_set}/{result.start.name}, the smallest that"
        " still fails:",
        f"  {result.text}",
        f"  {result.smallest.message}",
    ]
    if result.failed_draws is not None and result.failed_draws[0] < result.failed_draws[1]:
        failed, drawn = result.failed_draws
        lines.append(
            f"  fails in {failed} of {many(drawn, 'draw')} of inputs: what passes below may have"
            " been lucky"
        )
    telling = [axis for axis in result.axes if _tells(axis)]
    lines += [f"  {axis.sentence}" for axis in telling]
    others = [axis for axis in result.axes if axis not in telling]
    if others:
        spared = any(probe.state == "passes" for axis in others for probe in axis.probes)
        lines.append(
            f"  {'of the other fields ' if telling else ''}no value tried passes"
            f"{', but for 0' if spared else ''}:"
        )
        lines += [f"    {axis.sentence}" for axis in others]
    for part in result.parts:
        lines.append(f"  part {part.name}: {'right' if part.passed else part.message}")
    fault = fault_of(result)
    lines += [f"  {fault}"] if fault else []
    if result.unfinished:
        lines.append(f"  the search ended early: {result.unfinished}")
    return lines + [f"  {line}" for line in _again(result, invocation)]


def _again(result: MinimiseResult, invocation: Invocation) -> list[str]:
    """The command that runs the smallest case again on the inputs with which it fails; and the
    values for which the recipe has no parameter."""
    assert result.smallest is not None
    step, recipe, parameters = invocation.step, invocation.recipe, invocation.parameters
    settings = {
        name: value
        for name, value in parameters.items()
        if name in recipe.parameters and value != recipe.parameters[name].default
    }

    def sets(tried: Mapping[str, str], field: str, value: str) -> bool:
        try:
            bound, _ = recipe.bind(tried)
        except ValueError:
            return False
        return any(one.id == step and str(getattr(one, field)) == value for one in bound.steps)

    wanted = {"case": result.text or "", "seed": str(result.smallest_seed)}
    if result.smallest.case_set != GIVEN:  # its inputs depend on its set and its name
        wanted |= {"case": result.smallest.name, "case_sets": result.smallest.case_set}
    not_set = []
    for field, value in wanted.items():
        each = [settings, *({**settings, name: value} for name in recipe.parameters)]
        found = next((tried for tried in each if sets(tried, field, value)), None)
        if found is not None:
            settings = found
        elif field != "case_sets":  # its name is unique among several sets too
            not_set.append(f"{field} {value!r}")
    command = ["kbtool", "run-recipe", recipe.name]
    for name in recipe.parameters:
        command += ["--set", f"{name}={settings[name]}"] if name in settings else []
    lines = [f"again: {shlex.join(command)}"]
    if not_set:
        lines.append(f"but not with {' and '.join(not_set)}: the recipe has no parameter for that")
    return lines


def _failing(result: MinimiseResult) -> str:
    count = len(result.failing)
    return f"{count:,} of {many(result.cases, 'case')} fail{'s' * (count == 1)}"
