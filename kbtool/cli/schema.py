"""``kbtool schema``: JSON Schemas of the records."""

from __future__ import annotations

from pathlib import Path

import click

from kbtool.cli.common import json_option, print_json

EPILOG = """\b
Examples:
  kbtool schema                write schemas/ in the knowledge base
  kbtool schema session        print one
  kbtool schema corpus         what `kbtool export corpus` writes
  kbtool schema twin           the JSON beside each page of the site
  kbtool schema --check        fail if schemas/ is not what kbtool would write
  kbtool schema --out DIR      write them elsewhere

\b
Editors with a YAML language server find the schema through a record's first line:
# yaml-language-server: $schema=../../schemas/session.json"""


_KINDS = (
    "session", "pattern", "symptoms", "kernel", "cheats", "ledger", "excuses", "run", "corpus",
    "twin", "explanation", "search", "diagnosis",
)  # fmt: skip


@click.command(epilog=EPILOG)
@click.argument(
    "kind",
    required=False,
    metavar=f"[{'|'.join(_KINDS)}]",
    type=click.Choice(_KINDS),
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where to write them.")
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    default=False,
    help="Write nothing; exit with 1 if a schema is out of date.",
)
@json_option
@click.pass_context
def schema(
    ctx: click.Context, kind: str | None, out: Path | None, only_check: bool, as_json: bool
) -> None:
    """Write, print or check the JSON Schemas of the records."""
    from kbtool.model.errors import UsageError
    from kbtool.store.root import find_root
    from kbtool.store.schema import FOLDER, schema_files, schema_text, stale_schemas
    from kbtool.store.write import write_atomic

    if kind is not None:
        if out is not None or only_check:
            raise UsageError(
                "one schema is printed; --out and --check are for all of them: leave KIND out"
            )
        click.echo(schema_text(kind), nl=False)
        return
    folder = out if out is not None else find_root(ctx.find_root().obj) / FOLDER
    stale = stale_schemas(folder)
    if only_check:
        if as_json:
            print_json({"folder": str(folder), "stale": stale})
        for name in stale if not as_json else ():
            click.echo(f"{folder / name} is stale")
        if stale:
            click.echo("kbtool: `kbtool schema` updates them", err=True)
            ctx.exit(1)
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = schema_files()
    for name in stale:
        write_atomic(folder / name, files[name])
        if not as_json:
            click.echo(folder / name)
    if as_json:
        print_json({"folder": str(folder), "written": stale})
    click.echo(f"{len(stale)} of {len(files)} schemas written", err=True)
