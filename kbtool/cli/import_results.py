"""``kbtool import-results``: result files of other benchmark tools become run records."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table
from kbtool.cli.pasted import pasted

if TYPE_CHECKING:
    from kbtool.runner.take_results import File

_SHOWN = 10
"""So many metrics of a file, and so many entries that were left out, are printed."""


@click.command(
    "import-results",
    epilog="""\b
Examples:
  kbtool import-results nvbench.json
  kbtool import-results .benchmarks/*/0001_*.json --session N+8
  kbtool import-results sweep.csv --case n --case dtype --value time --unit us --better lower
  kbtool import-results results/*/*.json --dry-run

\b
Nothing in such a file was validated here, and every view says so. A file that a run holds already
is not taken in twice; CSV read with other columns is. Exit status: 0 taken in; 2 a file cannot be
taken in, and none was.""",
)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--session",
    "session_name",
    metavar="ID",
    help="The session to take them into, as run-recipe takes it. Default: the running session, or"
    " the unsorted session of the day.",
)
@click.option("--value", metavar="COLUMN", help="CSV: the column of the values.")
@click.option(
    "--case", "case", metavar="COLUMN", multiple=True,
    help="CSV: a column that says what was measured: a shape, a setting. Repeatable; rows with the"
    " same case are samples.",
)  # fmt: skip
@click.option("--unit", metavar="UNIT", help="The unit of values of which the file says none.")
@click.option(
    "--better", type=click.Choice(["lower", "higher", "neither"]), default="neither",
    show_default=True, help="CSV: which of two values is the better one.",
)  # fmt: skip
@click.option("--metric", metavar="NAME", help="CSV: what is measured. Default: the column's name.")
@click.option("--dry-run", is_flag=True, default=False, help="Print what is in the files only.")
@json_option
@click.pass_context
def import_results(
    ctx: click.Context,
    files: tuple[Path, ...],
    session_name: str | None,
    value: str | None,
    case: tuple[str, ...],
    unit: str | None,
    better: Any,
    metric: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take in result files of nvbench, Google Benchmark, pytest-benchmark and asv, and CSV.

    Each file becomes a run record: metrics with units, the tool and its version, the machine and
    commit that the file names, its name and SHA-256. All files are taken in, or none.
    """
    from kbtool.gpu.probe import probe_machine
    from kbtool.runner.destination import destination
    from kbtool.runner.results.table import Columns
    from kbtool.runner.take_results import read_files, write_files
    from kbtool.store.edit import end_run_session
    from kbtool.store.lock import lock
    from kbtool.store.private import private_folder

    base = knowledge_base(ctx)
    written = []
    # Until the records are there, no other import may ask which files are known.
    with (
        nullcontext()
        if dry_run
        else lock(private_folder(base.root, "locks") / "import.lock", timeout=60)
    ):
        found = read_files(base, files, Columns(value, case, unit, better, metric))
        if not dry_run and any(one.known is None for one in found):
            machine = probe_machine()
            title = f"Results of {found[0].result.file}"
            session = destination(base, machine, session_name, title)
            written = write_files(base, session, found, machine)
            record = base.root / "sessions" / session / "session.yaml"
            end_run_session(
                record, written[0][0].started.astimezone(), written[-1][0].ended.astimezone()
            )
    paths = [base.shown(path) for _, path in written]
    if as_json:
        print_json({
            "written": paths, "dry_run": dry_run,
            "files": [{
                "file": one.name, "tool": one.result.tool, "version": one.result.tool_version,
                "sha256": one.result.sha256, "machine": one.result.machine, "known": one.known,
                "same_as": one.same_as,
                "metrics": len(one.result.metrics), "left_out": one.left_out,
            } for one in found],
        })  # fmt: skip
        return
    for one in found:
        _say(one, dry_run)
    for path in paths:
        click.echo(path)
    if written:
        session = written[0][0].session
        click.echo(pasted(f"next: `kbtool session show {session}`, `kbtool export runs`"), err=True)


def _say(one: File, dry_run: bool) -> None:
    from kbtool.model.words import many

    result = one.result
    tool = " ".join(filter(None, (result.tool, result.tool_version)))
    place = f", measured on {result.place}" if result.place else ", which names no machine"
    click.echo(f"kbtool: {one.name}: {many(len(result.metrics), 'metric')} of {tool}{place};"
               f" {result.unvalidated}", err=True)  # fmt: skip
    if one.known:
        click.echo(f"kbtool: {one.name} is in run {one.known} already: not taken in again",
                   err=True)  # fmt: skip
    elif one.same_as:
        click.echo(f"kbtool: {one.name} holds the same as {one.same_as}: taken in once", err=True)
    for text in one.left_out[:_SHOWN]:
        click.echo(f"left out: {text}", err=True)
    if len(one.left_out) > _SHOWN:
        click.echo(f"and {len(one.left_out) - _SHOWN} more; --json has all", err=True)
    if dry_run:
        print_table(
            ["metric", "benchmark and case", "value", "unit", "better", "samples"],
            [
                [s.name, s.label, f"{s.median:.6g}", s.unit, s.better, str(s.count)]
                for s in result.metrics[:_SHOWN]
            ],
            {2, 5},
        )
