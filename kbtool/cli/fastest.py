"""``kbtool fastest``: the fastest implementation that was measured for a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import kernel_names
from kbtool.model.words import significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.ledger.fastest import Found
    from kbtool.model.kernel import Case, CaseValue, Kernel
    from kbtool.model.run import Run
    from kbtool.model.twin import ArmTime, ProblemField
    from kbtool.store.tree import KnowledgeBase

_LONGEST = 40
"""The longest value of a field that is told in the list of fields."""

EPILOG = """\b
Examples:
  kbtool fastest KERNEL                                    the fields, and what was measured
  kbtool fastest KERNEL --set FIELD=VALUE --set FIELD=VALUE
  kbtool fastest KERNEL --set FIELD=VALUE --on H200        one machine, by words of its name
  kbtool fastest KERNEL --set FIELD=VALUE --json | jq '.machines[].nearest[0].commands[]'

\b
A field that is not set has its default. Times are
those of the newest commit that timed the case set, by quiet runs alone, between plain kernels where
that was measured. A ratio is the time of the implementation ÷ ours, with the ratio of the quartiles
that make it least and most: above 1 ours is faster.

\b
Only measured cases answer; nothing is interpolated. A case answers if every field of text, truth
value or list is the same. Its distance is the product, over the fields of numbers, of the larger
value ÷ the smaller: 1 is the same case, 2 has one field twice as large. The three nearest are told.

\b
Exit status: 0 done; 1 no measured case answers; 2 usage."""


@click.command(epilog=EPILOG)
@click.argument("kernel", metavar="KERNEL", shell_complete=kernel_names)
@click.option(
    "--set", "settings", metavar="FIELD=VALUE", multiple=True,
    help="A field of the kernel's cases; repeatable. A list is 1/2/3.",
)  # fmt: skip
@click.option("--on", "words", metavar="MACHINE", help="Only machines whose name has these words.")
@json_option
@click.pass_context
def fastest(
    ctx: click.Context, kernel: str, settings: tuple[str, ...], words: str | None, as_json: bool
) -> None:
    """Say which implementation of KERNEL is fastest for a shape, by what was measured."""
    from kbtool.ledger import fastest as by_rule
    from kbtool.ledger.repeat import commands
    from kbtool.model.errors import NotFoundError, UsageError
    from kbtool.store.holders import holders

    base = knowledge_base(ctx)
    found = _kernel(base, kernel)
    runs = _runs(base, found)
    holding = holders(base.root, runs)
    results = by_rule.measured(
        found, runs, "", lambda run: commands(run, holding.get((run.id, run.attempt)))
    )
    known = by_rule.fields(found, results)
    machines = [
        name
        for name in dict.fromkeys(of.machine for of in results)
        if words is None or words.lower() in name.lower()
    ]
    warn_unreadable(base)
    if not machines:
        where = f" on a machine called {words!r}" if words else ""
        raise NotFoundError(
            f"no quiet run timed {found.id}{where}; `kbtool recipes` lists what can"
        )
    if not settings:
        _list(found, known, machines, as_json)
        return
    try:
        asked = found.case_from(" ".join(settings))
    except ValueError as error:
        raise UsageError(f"--set: {error}") from None
    answers = {name: by_rule.nearest(known, results, name, asked) for name in machines}
    if as_json:
        print_json(by_rule.as_json(found, asked, answers))
    else:
        for name, every in answers.items():
            why = "" if every else by_rule.why_none(known, results, name, asked)
            _print(name, every, why, asked)
        shown = {arm for every in answers.values() for one in every for arm in one.case.arms}
        for name, told in found.implementations.items():
            if name in shown:
                click.echo(f"{name}: {told}")
    if not any(answers.values()):
        ctx.exit(1)


def _kernel(base: KnowledgeBase, name: str) -> Kernel:
    from kbtool.model.errors import NotFoundError

    if name not in base.kernels:
        known = ", ".join(sorted(base.kernels)) or "none"
        raise NotFoundError(f"there is no kernel {name!r}; there is {known}")
    return base.kernels[name].record


def _runs(base: KnowledgeBase, kernel: Kernel) -> list[Run]:
    """The last attempt of each run that timed or tuned the kernel, newest first."""
    own = [entry.record for entry in base.runs_with(kernel.id, "benchmark", "tune")]
    last = {run.id: run for run in sorted(own, key=lambda run: run.attempt)}
    return sorted(last.values(), key=lambda run: run.started, reverse=True)


def _list(
    kernel: Kernel, known: Sequence[ProblemField], machines: list[str], as_json: bool
) -> None:
    """What can be asked: the fields, with what the measured cases have."""
    from kbtool.model.kernel import value_text

    if as_json:
        print_json({"kernel": kernel.id, "fields": known, "machines": machines})
        return
    rows = [
        [one.name, value_text(one.default), _values(one.values), one.help]
        for one in known
        if len(one.values) > 1
    ]
    print_table(["field", "default", "measured", "what it is"], rows, set())
    click.echo(f"\nmachines: {', '.join(machines)}")


def _values(values: list[CaseValue]) -> str:
    from kbtool.model.kernel import value_text

    texts = [text for value in values if len(text := value_text(value)) <= _LONGEST]
    lists = len(values) - len(texts)
    return ", ".join([*texts, *([f"{lists} long lists"] if lists else [])])


def _print(machine: str, every: list[Found], why: str, asked: Case) -> None:
    from kbtool.model.kernel import value_text

    click.echo(machine)
    if why:
        click.echo(f"  {why} was measured here\n")
        return
    for one in every:
        how = "between plain kernels" if one.of.measure == "between" else "in a chain"
        far = "the same case" if one.distance == 1 else f"{significant(one.distance)} × away"
        parts = [
            f"{name}={value_text(one.case.case.get(name))}, not {value_text(asked.get(name))}"
            for name in one.apart
        ]
        click.echo(f"  {one.case.name}: {'; '.join([far, *parts])}")
        rows = [
            [
                arm + (f" ({one.of.target})" if timed.own else ""),
                significant(us),
                _ratio(timed),
                "fastest" if arm == one.fastest else "",
            ]
            for arm, timed in sorted(one.case.arms.items(), key=lambda arm: one.us(arm[0]) or 0)
            if (us := one.us(arm)) is not None
        ]
        print_table(["", "µs", "÷ ours", how], rows, {1, 2}, "    ")
        if one.case.tuned:
            tuned = one.case.tuned
            click.echo(
                f"    {tuned.setting}: {tuned.variant} chose {tuned.own}, best {tuned.best}"
                f" ({tuned.run})"
            )
        for command in one.commands:
            click.echo(f"    {command}")
        click.echo()


def _ratio(timed: ArmTime) -> str:
    if timed.ratio is None:
        return ""
    if timed.ratio_low is None or timed.ratio_high is None:
        return significant(timed.ratio)
    spread = f"{significant(timed.ratio_low)}–{significant(timed.ratio_high)}"
    return f"{significant(timed.ratio)} ({spread})"
