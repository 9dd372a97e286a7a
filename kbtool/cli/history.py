"""``kbtool history``: the runs at which a kernel became slower or faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kbtool.ledger.timings.series import Change, Series

EPILOG = """\b
Examples:
  kbtool history                      every case of every kernel and machine
  kbtool history --metric chain --json
  make otava                          install Apache Otava, which finds the change points

\b
A series is one case on one machine: one time from each quiet run of a commit under the conditions
of the newest run. Change points need a series of 20 runs. Otava's packages conflict with kbtool's,
so `make otava` installs it in a folder of its own, .venv-otava. An otava on the PATH is used too.

\b
Exit status: 0 done; 2 usage; 3 a series has 20 runs, and Otava is not installed."""


@click.command(epilog=EPILOG)
@click.option(
    "--metric", type=click.Choice(["between", "chain"]),
    help="The time to follow: between plain kernels, or in a chain of its own calls."
    " Default: between, where there is one.",
)  # fmt: skip
@json_option
@click.pass_context
def history(ctx: click.Context, metric: Any, as_json: bool) -> None:
    """Find the runs at which a kernel became slower or faster."""
    from kbtool.ledger.timings.series import change_points, series
    from kbtool.ledger.timings.sides import newest_first

    base = knowledge_base(ctx)
    found = series(newest_first(entry.record for entry in base.runs), metric)
    long = [one for one in found if not one.is_short]
    changes = change_points(_otava(base.root), long) if long else []
    if as_json:
        print_json(_json(found, changes))
    else:
        _print(found, changes)
    warn_unreadable(base)


def _otava(root: Path) -> str:
    import shutil

    from kbtool.model.errors import MachineError

    own = root / ".venv-otava" / "bin" / "otava"
    found = shutil.which(str(own)) or shutil.which("otava")
    if found is None:
        raise MachineError(
            "Apache Otava, which finds change points, is not installed; `make otava`, or"
            " `pipx install apache-otava`"
        )
    return found


def _answer(found: Sequence[Series], changes: Sequence[Change]) -> str:
    from kbtool.ledger.timings.series import LEAST_RUNS
    from kbtool.model.words import many

    short = sum(one.is_short for one in found)
    most = max((one.left_out for one in found), default=0)
    others = f"; up to {many(most, 'run')} of a series left out, another problem" if most else ""
    if short == len(found):
        longest = max((len(one.us) for one in found), default=0)
        return f"too few runs: the longest series has {longest} of {LEAST_RUNS}{others}"
    left = (f"; {short} more have too few runs" if short else "") + others
    changed = many(len(changes), "change point") if changes else "no change point"
    series = f"{len(found) - short} series"
    return f"{changed} in {series}{left}"


def _print(found: Sequence[Series], changes: Sequence[Change]) -> None:
    from kbtool.model.words import significant

    click.echo(_answer(found, changes))
    if not changes:
        return
    click.echo()
    rows = [
        [
            one.series.case, one.series.machine, one.run.run.id, (one.run.commit or "")[:8],
            significant(one.before), significant(one.after), significant(one.ratio),
            "slower" if one.ratio > 1 else "faster",
        ]
        for one in sorted(changes, key=lambda one: (one.run.run.started, one.series.case))
    ]  # fmt: skip
    header = ["case", "machine", "from run", "commit", "before µs", "after µs", "ratio", ""]
    print_table(header, rows, {4, 5, 6})


def _json(found: Sequence[Series], changes: Sequence[Change]) -> dict[str, object]:
    return {
        "answer": _answer(found, changes),
        "series": [
            {
                "kernel": one.kernel, "machine": one.machine, "case": one.case,
                "metric": one.metric, "runs": [each.run.id for each in one.runs], "us": one.us,
                "too_few_runs": one.is_short, "another_problem": one.left_out,
                "changes": [
                    {
                        "run": change.run.run.id, "commit": change.run.commit,
                        "before": change.before, "after": change.after, "ratio": change.ratio,
                        "p": change.p,
                    }
                    for change in changes
                    if change.series is one
                ],
            }
            for one in found
        ],
    }  # fmt: skip
