"""``kbtool check``: every problem in every record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, print_json
from kbtool.cli.pasted import pasted
from kbtool.model.words import many
from kbtool.runner.terminal import unguarded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kbtool.checks.history import Report, Unknown
    from kbtool.store.scan import File

EPILOG = """\b
Examples:
  kbtool check                      the whole knowledge base
  kbtool check sessions/2025-*      findings in these records only
  kbtool check --json | jq '.findings[].rule' | sort | uniq -c
  kbtool check --history            run records that any commit changed
  kbtool check --history=origin/main    only the commits that a branch adds

\b
One finding per line on stdout: path:line: rule: message.
With --history, JSON also has: unknown (runs whose stated commit is missing), signed (keys that git
verified, with commits and tags), shallow (a shallow clone), diverged (HEAD does not descend from
SINCE).
Exit status: 0 no problems, 1 findings, 2 usage, 3 no git or no repository (--history)."""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option(
    "--cache/--no-cache",
    default=True,
    help="Reuse earlier results for unchanged files (.kbtool/cache). This is the default.",
)
@click.option(
    "--history",
    metavar="[SINCE]",
    is_flag=False,
    flag_value="",
    default=None,
    help="Instead, find run records that commits changed: all commits, or those after SINCE.",
)
@json_option
@click.pass_context
def check(
    ctx: click.Context, paths: tuple[str, ...], cache: bool, history: str | None, as_json: bool
) -> None:
    """Check every record: schema, links, provenance, secrets, runs, recipes, kernels.

    Secrets, IP addresses and paths of a machine are also searched for in docs/, in README.md and
    similar files, and in the kernels' sources. Figures in prose are compared with the records that
    their links name.

    With PATH, report only problems in those files and folders; links are still checked against the
    whole knowledge base.

    --history finds every run record that was edited, given a new digest, deleted, renamed or moved
    by a commit or a merge after it was first committed. A run record states the commit that was
    run; --history also reports a run whose commit is no ancestor of the one that added the record.
    It reads only git, and lists the keys with which commits and tags are signed. If a stated commit
    is missing (rewritten before it was published, or cut off by a shallow clone), the run is
    reported as unknown, which is no finding.
    """
    from kbtool.checks.check import check_tree
    from kbtool.store.root import find_root

    root = find_root(ctx.find_root().obj)
    wanted = [_within(root, path) for path in paths]
    if history is not None:
        _check_history(ctx, root, history or None, wanted, as_json)
        return
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
            click.echo(pasted(_printable(str(finding))))
    if findings:
        _name_migration(root)
    click.echo(_summary(counts, len(findings)), err=True)
    if findings:
        ctx.exit(1)


def _name_migration(root: Path) -> None:
    """Say so if the knowledge base is older: names that have changed since may be the problem."""
    from kbtool.store.format import FORMAT, format_of

    number = format_of(root)
    if number < FORMAT:
        click.echo(
            f"kbtool: this knowledge base has format {number}, and this kbtool writes {FORMAT};"
            " `kbtool migrate --dry-run` shows what has other names now",
            err=True,
        )


def _check_history(
    ctx: click.Context, root: Path, since: str | None, wanted: list[str], as_json: bool
) -> None:
    from kbtool.checks.history import check_history

    report = check_history(root, since, _progress)
    broken = sorted(one for one in report.broken if _is_in(one.path, wanted))
    excuses = [one for one in report.findings if _is_in(one.path, wanted)]
    unknown = [one for one in report.unknown if _is_in(one.path, wanted)]
    counts = {"commits": report.commits, "runs": report.added}
    if as_json:
        found = [{**one.finding._asdict(), "commit": one.commit} for one in broken]
        print_json({
            "findings": [*found, *({**one._asdict(), "commit": None} for one in excuses)],
            "counts": counts,
            "unknown": [one._asdict() for one in unknown],
            "signed": [
                {**one.signature._asdict(), "commits": one.commits, "tags": one.tags}
                for one in report.signed
            ],
            "shallow": report.shallow,
            "diverged": report.diverged,
        })  # fmt: skip
    else:
        for finding in (*(one.finding for one in broken), *excuses):
            click.echo(_printable(str(finding)))
    for note in _notes(report, unknown):
        click.echo(_printable(note), err=True)
    click.echo(_summary(counts, len(broken) + len(excuses)), err=True)
    if broken or excuses:
        ctx.exit(1)


_WHY = {
    "missing": "is not here (rewritten before it was published, or not fetched)",
    "rewritten": "was rewritten by a rebase or an amended commit",
    "shallow": "cannot be judged in a shallow clone",
    "partial": "cannot be read in a partial clone",
}


def _notes(report: Report, unknown: list[Unknown]) -> Iterator[str]:
    """What is no finding, and worth knowing."""
    if report.diverged is not None:
        yield f"HEAD is not made of {report.diverged[:12]}: it left that line, or was rewritten"
    if report.shallow:
        yield "the clone is shallow: what its first commits hold counts as new (fetch --unshallow)"
    for why, said in _WHY.items():
        runs = [one for one in unknown if one.why == why]
        if runs:
            few = ", ".join(f"{one.path} {one.stated[:12]}".strip() for one in runs[:3])
            more = f" and {len(runs) - 3:,} more (--json lists them)" if len(runs) > 3 else ""
            yield f"unknown: of {many(len(runs), 'run')} the stated commit {said}: {few}{more}"
    for (verdict, key, fingerprint), commits, tags in report.signed:
        what = [many(len(commits), "commit")] * bool(commits) + [f"tag {tag}" for tag in tags]
        by = f"{verdict} signature of key {key or 'unknown'}"
        yield f"{', '.join(what)}: {by}{f' ({fingerprint})' if fingerprint else ''}"


def _progress(done: int, total: int) -> None:
    """On a terminal, how far a long walk is."""
    import sys

    if done % 1000 == 0 and sys.stderr.isatty():
        terminal = unguarded(sys.stderr)
        terminal.write(f"\r{done:,} of {total:,} commits")
        terminal.write("\r\033[K" * (done == total))
        terminal.flush()


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
    """``text`` without characters that a terminal cannot show: control characters, not UTF-8."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
