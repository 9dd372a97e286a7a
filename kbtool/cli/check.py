"""``kbtool check``: every problem in every record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, print_json
from kbtool.model.words import many

if TYPE_CHECKING:
    from pathlib import Path

    from kbtool.store.scan import File

EPILOG = """\b
Examples:
  kbtool check                      the whole knowledge base
  kbtool check sessions/2025-*      findings in these records only
  kbtool check --json | jq '.findings[].rule' | sort | uniq -c

\b
One finding per line on stdout: path:line: rule: message.
Exit status: 0 no problems, 1 findings, 2 usage."""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option(
    "--cache/--no-cache",
    default=True,
    help="Reuse earlier results for unchanged files (.kbtool/cache). This is the default.",
)
@json_option
@click.pass_context
def check(ctx: click.Context, paths: tuple[str, ...], cache: bool, as_json: bool) -> None:
    """Check every record: schema, links, provenance, secrets, runs, recipes, kernels.

    docs/, README.md and similar files, and the kernels' sources are searched for secrets and for
    addresses and paths of machines too. Figures in prose are compared with the records that their
    links name.

    With PATH, report only problems in those files and folders; links are still checked against the
    whole knowledge base.
    """
    from kbtool.checks.check import check_tree
    from kbtool.store.root import find_root

    root = find_root(ctx.find_root().obj)
    wanted = [_within(root, path) for path in paths]
    report = check_tree(root, cached=cache)
    findings = [finding for finding in report.findings if _is_in(finding.path, wanted)]
    known = {file.path for file in report.files} | {finding.path for finding in report.findings}
    for given, place in zip(paths, wanted, strict=True):
        if place and not any(_is_in(path, [place]) for path in known):
            raise click.UsageError(f"{given} is no record, and there is none in it")
    counts = _counts([file for file in report.files if _is_in(file.path, wanted)])
    if as_json:
        print_json({"findings": [item._asdict() for item in findings], "counts": counts})
    else:
        for finding in findings:
            click.echo(_printable(str(finding)))
    click.echo(_summary(counts, len(findings)), err=True)
    if findings:
        ctx.exit(1)


def _within(root: Path, path: str) -> str:
    """``path`` relative to the root, as findings name it."""
    import os
    from pathlib import Path

    given = Path(os.path.normpath(Path.cwd() / path))
    for base in (root, root.resolve()):
        for candidate in (given, given.resolve()):
            if candidate.is_relative_to(base):
                if not os.path.lexists(given):
                    raise click.UsageError(f"there is no {path}")
                shown = candidate.relative_to(base).as_posix()
                return "" if shown == "." else shown
    raise click.UsageError(f"{path} is outside the knowledge base at {root}")


def _is_in(path: str, wanted: list[str]) -> bool:
    return not wanted or any(
        place in ("", path) or path.startswith(f"{place}/") for place in wanted
    )


def _counts(files: list[File]) -> dict[str, int]:
    kinds = [file.kind for file in files]
    return {
        "sessions": kinds.count("session"),
        "patterns": kinds.count("pattern"),
        "kernels": kinds.count("kernel"),
        "runs": kinds.count("run"),
    }


def _summary(counts: dict[str, int], findings: int) -> str:
    counted = ", ".join(many(number, name.removesuffix("s")) for name, number in counts.items())
    return f"checked {counted}: {many(findings, 'problem') if findings else 'no problems'}"


def _printable(text: str) -> str:
    """``text`` without what no terminal can show: names that are not UTF-8, control characters."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
