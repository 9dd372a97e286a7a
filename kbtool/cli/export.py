"""``kbtool export``: the records as other tools read them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbtool.cli.common import knowledge_base, print_json, warn_unreadable
from kbtool.cli.selection import Selection, day_option, select_sessions, selection_options
from kbtool.model.words import many

if TYPE_CHECKING:
    from datetime import date

    from kbtool.ledger.export.lines import Export
    from kbtool.ledger.export.runs import Format
    from kbtool.ledger.rollup import Links
    from kbtool.model.session import Session
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool export focus -o costs.csv                for FinOps tools: FOCUS 1.2
  kbtool export beancount -o costs.beancount      then: bean-check costs.beancount
  kbtool export jsonl | jq -r .amount             cost lines, one JSON object a line
  kbtool export parquet -o costs.parquet          cost lines, for data frames
  kbtool export runs --format csv -o runs.csv     what runs measured, a row per case and metric
  kbtool export corpus -o corpus.jsonl            what was tried, what failed, what worked
  kbtool export mlflow --tracking-uri URI         the same figures as runs of MLflow

\b
All take --session, --since and --until as `kbtool costs` does. stderr says what is left out.
Exit status: 0 done; 1 a record does not load, and was left out; 2 usage."""

FOCUS_EPILOG = """\b
Examples:
  kbtool export focus --since 2025-10-01 --until 2025-10-31 -o october.csv
  kbtool export focus --provider gpu='Google Cloud' --provider ai=Cursor --account team-7
  kbtool export focus --undated 2025-10-01        sessions without a date, at this day

\b
EffectiveCost holds every amount. BilledCost, ListCost and ContractedCost hold billed amounts, and 0
for claimed and estimated ones (see x_CostBasis). The charge period is the day of the session.
Left out: amounts that no record states, as of GPU that `kbtool costs` estimates from runs, and
engineers, because no provider charges for them."""

BEANCOUNT_EPILOG = """\b
Examples:
  kbtool export beancount -o costs.beancount && bean-check costs.beancount
  kbtool export beancount --undated 2025-10-01 | bean-query /dev/stdin 'SELECT sum(position)'

\b
One transaction per session: one account per kind of cost (Expenses:GPU), balanced by one per basis
(Liabilities:Billed, Equity:Claimed, Equity:Estimated). One balance per account and month, from
kbtool's own sums, without tolerance. Amounts that no record states are left out, as of GPU that
`kbtool costs` estimates from runs."""

JSONL_EPILOG = """\b
Examples:
  kbtool export jsonl | jq 'select(.basis == "billed")'
  kbtool export jsonl --session FIRST.. -o lines.jsonl

\b
Amounts are decimal text; null where no record states one. GPU that `kbtool costs` estimates from
runs has no line."""

PARQUET_EPILOG = """\b
Examples:
  kbtool export parquet -o costs.parquet
  python -c "import pyarrow.parquet as pq; print(pq.read_table('costs.parquet'))"

\b
Amounts are decimal128(38, 6). Needs pyarrow: pip install 'kbtool[parquet]'."""

RUNS_EPILOG = """\b
Examples:
  kbtool export runs | jq 'select(.metric == "time" and .counts)'
  kbtool export runs --format csv -o runs.csv
  kbtool export runs --format parquet -o runs.parquet
  kbtool export runs --format openmetrics -o runs.txt
  promtool tsdb create-blocks-from openmetrics runs.txt
  duckdb -c "SELECT card, arm, avg(value) FROM 'runs.parquet' WHERE metric = 'time' AND counts
             GROUP BY ALL"

\b
Metrics of benchmarks: time, time between plain kernels, host time, first call, bandwidth,
arithmetic, arithmetic intensity, shares of the read ceiling, of the arithmetic ceiling and of the
one that bounds the case, peak memory, workspace, and those of the harness; of validations: error,
with its bound in the column high. A noisy, wrong or refused figure has counts = false and the
reason in why_not. Results of other kinds of step are not in it. Parquet needs pyarrow: pip install
'kbtool[parquet]'. OpenMetrics is text for Prometheus and dashboards: a gauge per metric, the
columns as labels, the run's start as the time, in seconds and bytes; a row's low and high are
gauges too."""

MLFLOW_EPILOG = """\b
Examples:
  kbtool export mlflow --tracking-uri http://localhost:5000
  kbtool export mlflow --tracking-uri sqlite:///mlflow.db --experiment kernels --session last

\b
One run of MLflow per run that holds figures. Parameters: recipe, kernel, target, commit, problem,
card, versions, and set.NAME for what was set. Metrics: CASE SET/CASE/ARM/METRIC in UNIT; a figure
that does not count begins with "not counted/". A second export writes nothing twice: a run that is
there with the same content is left alone, and one with another content is replaced. Needs MLflow's
client: pip install 'kbtool[mlflow]'; for sqlite:/// and other databases pip install mlflow."""

CORPUS_EPILOG = """\b
Examples:
  kbtool export corpus -o corpus.jsonl
  kbtool export corpus | jq -r 'select(.type == "attempt") | .tried'
  kbtool schema corpus                            what a line may hold

\b
One JSON object per line, sorted; the same records give the same bytes. Paths of a machine are
shortened to the file's name. A secret or an IP address in a record stops the export."""

MANY = 1000
"""With this many sessions or more, reading takes long enough to report it."""

Command = TypeVar("Command", bound=Callable[..., Any])


_AS_JSON = "kbtool.export.as_json"


def _note_json(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[_AS_JSON] = True


def _output_option(command: Command) -> Command:
    """Add ``--output``, and ``--json``, which ``_export`` reads by itself."""
    json_option = click.option(
        "--json", is_flag=True, expose_value=False, callback=_note_json,
        help="With --output: one JSON object on stdout that says what was written.",
    )  # fmt: skip
    return click.option(
        "--output",
        "-o",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Where to write; stdout if not given. A file is replaced whole or not at all.",
    )(json_option(command))


_undated_option = click.option(
    "--undated",
    metavar="YYYY-MM-DD",
    help="The day for sessions without a date. Default: they are left out.",
)


@click.group(epilog=EPILOG)
def export() -> None:
    """Write costs and records in a form that other tools read."""


@export.command(epilog=FOCUS_EPILOG)
@selection_options
@_undated_option
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="KIND=NAME",
    help="The provider of a kind of cost: gpu, ai or other; repeatable.",
)
@click.option(
    "--account", metavar="ID", default="kbtool", show_default=True, help="The billing account."
)
@_output_option
@click.pass_context
def focus(
    ctx: click.Context,
    selection: Selection,
    undated: str | None,
    providers: tuple[str, ...],
    account: str,
    output: Path | None,
) -> None:
    """Write costs as FOCUS 1.2, the CSV of FinOps tools."""
    from kbtool.ledger.export.focus import focus
    from kbtool.model.errors import UsageError

    named = _providers(providers)
    if not account.strip():
        raise UsageError("--account is empty; give the billing account's id, or leave it out")
    day = _day(undated)
    _export(
        ctx, selection, output, "cost line",
        lambda base, sessions: focus(sessions, _links(base, sessions), day, account, named),
    )  # fmt: skip


@export.command(epilog=BEANCOUNT_EPILOG)
@selection_options
@_undated_option
@_output_option
@click.pass_context
def beancount(
    ctx: click.Context,
    selection: Selection,
    undated: str | None,
    output: Path | None,
) -> None:
    """Write costs as a journal that bean-check accepts."""
    from kbtool.ledger.export.beancount import beancount

    day = _day(undated)
    _export(
        ctx, selection, output, "cost line",
        lambda base, sessions: beancount(sessions, _links(base, sessions), day),
    )  # fmt: skip


@export.command(epilog=JSONL_EPILOG)
@selection_options
@_output_option
@click.pass_context
def jsonl(
    ctx: click.Context,
    selection: Selection,
    output: Path | None,
) -> None:
    """Write cost lines as JSON Lines."""
    from kbtool.ledger.export.jsonl import jsonl

    _export(
        ctx, selection, output, "cost line",
        lambda base, sessions: jsonl(sessions, _links(base, sessions)),
    )  # fmt: skip


@export.command(epilog=PARQUET_EPILOG)
@selection_options
@_output_option
@click.pass_context
def parquet(
    ctx: click.Context,
    selection: Selection,
    output: Path | None,
) -> None:
    """Write cost lines as Parquet."""
    from kbtool.ledger.export.parquet import parquet

    _refuse_terminal(output, binary=True)
    _export(
        ctx, selection, output, "cost line",
        lambda base, sessions: parquet(sessions, _links(base, sessions)),
    )  # fmt: skip


@export.command(epilog=RUNS_EPILOG)
@selection_options
@click.option(
    "--format", "format_", type=click.Choice(["jsonl", "csv", "parquet", "openmetrics"]),
    default="jsonl", show_default=True, help="What to write.",
)  # fmt: skip
@_output_option
@click.pass_context
def runs(
    ctx: click.Context,
    selection: Selection,
    format_: Format,
    output: Path | None,
) -> None:
    """Write what runs measured: one row per case, implementation and metric."""
    from kbtool.ledger.export.runs import runs

    _refuse_terminal(output, binary=format_ == "parquet")
    _export(
        ctx, selection, output, "figure",
        lambda base, sessions: runs(base, sessions, format_),
    )  # fmt: skip


@export.command(epilog=CORPUS_EPILOG)
@selection_options
@_output_option
@click.pass_context
def corpus(
    ctx: click.Context,
    selection: Selection,
    output: Path | None,
) -> None:
    """Write what was tried, what failed and what worked, as JSON Lines."""
    from kbtool.ledger.export.corpus import corpus

    _export(ctx, selection, output, "record", corpus)


@export.command(epilog=MLFLOW_EPILOG)
@selection_options
@click.option(
    "--tracking-uri", metavar="URI", required=True, envvar="MLFLOW_TRACKING_URI",
    show_envvar=True, help="Where MLflow keeps its runs: a server's address or a database.",
)  # fmt: skip
@click.option(
    "--experiment", metavar="NAME", default="kbtool", show_default=True,
    help="The experiment; made if there is none of that name.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def mlflow(
    ctx: click.Context, selection: Selection, tracking_uri: str, experiment: str, as_json: bool
) -> None:
    """Write what runs measured into MLflow."""
    from kbtool.ledger.export.mlflow import export
    from kbtool.model.errors import UsageError

    if not experiment.strip():
        raise UsageError("--experiment is empty; give it a name, or leave it out")
    base = knowledge_base(ctx)
    sessions, no_date = select_sessions(base, selection)
    sent = export(base, sessions, tracking_uri, experiment)
    warn_unreadable(base)
    if as_json:
        print_json({
            "experiment": experiment, "written": sent.written, "replaced": sent.replaced,
            "known": sent.known, "metrics": sent.metrics, "without_figures": sent.empty,
            "undated": no_date,
            "unreadable": sorted({finding.path for finding in base.findings}),
        })  # fmt: skip
    _say(
        f"{many(len(sent.written), 'run')} written to experiment {experiment}, {len(sent.replaced)}"
        f" replaced, {len(sent.known)} there already; {many(sent.metrics, 'metric')} sent"
    )
    if no_date:
        _say(f"left out: {many(no_date, 'session')} without a date")
    if sent.empty:
        _say(f"left out: {many(sent.empty, 'run')} without a figure")
    if base.findings:
        ctx.exit(1)  # what was written lacks something


def _refuse_terminal(output: Path | None, *, binary: bool) -> None:
    from kbtool.model.errors import UsageError

    if binary and output is None and sys.stdout.isatty():
        raise UsageError("Parquet is no text: give --output FILE, or pipe it")


def _export(
    ctx: click.Context,
    selection: Selection,
    output: Path | None,
    what: str,
    make: Callable[[KnowledgeBase, list[Session]], Export],
) -> None:
    """Select the sessions, write the export, and report on stderr what was written and left out."""
    as_json = _AS_JSON in ctx.meta
    _writable(output, as_json)
    base = knowledge_base(ctx)
    waiting = sum(1 for _ in base.session_files())
    if waiting >= MANY:
        _say(f"reading {many(waiting, 'session')}")
    sessions, no_date = select_sessions(base, selection)
    done = make(base, sessions)
    if output is None:
        sys.stdout.buffer.write(done.data)
        sys.stdout.buffer.flush()
    else:
        from kbtool.store.write import write_atomic

        write_atomic(output, done.data)
        if as_json:
            print_json({
                "file": str(output), "written": done.written, "undated": no_date,
                "left_out": done.left_out, "notes": done.notes,
                "unreadable": sorted({finding.path for finding in base.findings}),
            })  # fmt: skip
    warn_unreadable(base)
    to = "" if output is None else f" to {output}"
    of = many(len(sessions if done.sessions is None else done.sessions), "session")
    _say(f"{many(done.written, what)} of {of} written{to}")
    if no_date:
        _say(f"left out: {many(no_date, 'session')} without a date")
    for why, count in done.left_out.items():
        _say(f"left out: {many(count, what)} {why}")
    for note in done.notes:
        _say(note)
    if not base.sessions:
        _say("there are no sessions yet; `kbtool session new TITLE`")
    if base.findings:
        ctx.exit(1)  # what was written lacks something


def _links(base: KnowledgeBase, sessions: list[Session]) -> Links:
    from kbtool.ledger.rollup import links_of

    return links_of(sessions, [entry.record for entry in base.runs])


def _writable(output: Path | None, as_json: bool) -> None:
    from kbtool.model.errors import UsageError

    if output is None:
        if as_json:
            raise UsageError("--json says what was written, on stdout: give --output FILE too")
        return
    if output.is_dir():
        raise UsageError(f"--output: {output} is a folder; name a file in it")
    if not output.parent.is_dir():
        raise UsageError(f"--output: there is no folder {output.parent}; make it first")


def _providers(given: tuple[str, ...]) -> dict[str, str]:
    from kbtool.ledger.export.focus import SERVICES
    from kbtool.model.errors import UsageError

    named: dict[str, str] = {}
    for text in given:
        kind, _, name = (part.strip() for part in text.partition("="))
        if kind not in SERVICES or not name:
            raise UsageError(
                f"--provider {text!r}: write KIND=NAME, where KIND is {', '.join(SERVICES)}"
            )
        if kind in named:
            raise UsageError(f"--provider names two for {kind}: {named[kind]} and {name}; give one")
        named[kind] = name
    return named


def _day(undated: str | None) -> date | None:
    from datetime import date

    from kbtool.model.errors import UsageError

    text = day_option("--undated", undated)
    day = None if text is None else date.fromisoformat(text)
    if day is not None and day.year == date.max.year:
        raise UsageError(f"--undated: {day} is too late; exports need the month after it")
    return day


def _say(message: str) -> None:
    click.echo(f"kbtool: {message}", err=True)
