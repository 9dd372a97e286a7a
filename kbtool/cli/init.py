"""``kbtool init``: an empty knowledge base, ready for a first session."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kbtool.cli.common import json_option, print_json
from kbtool.model.words import many

EPILOG = """\b
Examples:
  kbtool init                  here
  kbtool init ../our-kernels   there
  kbtool init trial --with split-k && cd trial && kbtool run-recipe split-k
  kbtool init && git init && git add -A

\b
Existing files are not changed."""

PATTERN = """\
{modeline}
# A pattern is a lesson that recurs. This one is an example: keep it, change it, or remove it.
# The id is permanent and begins the name of the file; `number` is the one people call it by.
id: P01
number: 1
title: Validate before measuring
summary: A benchmark of a wrong kernel measures nothing; validate first, in the same run.

# operational, documented, proposed, superseded or unknown. Whether the pattern holds is derived
# from the `evidence` of the sessions that applied it.
stated_status: proposed
problem: A kernel that skips work is fast, and its speedup is believed for as long as nobody looks.
solution: Compare with a float64 reference before timing, and time only what has passed.
when_to_use:
  - Before any figure is written down.
when_not:
  - While looking for a crash; a kernel that does not run has nothing to validate.

# What one sees when the pattern applies. `kbtool` looks for these in the output of failing steps.
# symptoms:
#   - id: nan
#     match: "mismatch.*nan"
#     example: "max error: mismatch (nan)"
#     advice: look for a row that is read past its end

# Executable steps: `kbtool run-recipe look`.
recipes:
  - name: look
    title: See what this machine has
    steps:
      - id: look
        kind: environment
        title: Probe card, driver, compilers and versions
        expected: 5 s
        timeout: 60 s
"""

LEDGER = """\
{modeline}
# Prices by the hour, and the budget of a month. All of this is an example: the prices are made up.
# `kbtool session cost gpu --rate ID` takes a rate from here; `kbtool status` compares the running
# session with its own budget and with the month's.
# rates:
#   - id: l4
#     kind: gpu
#     rate: 0.20 USD/h
#     day: 2026-01-31         # the day on which it was stated, or read
#     card: L4
#     purchase: preemptible   # on-demand, preemptible, reserved, owned
#     provider: the name of the provider
#   - {{id: assistant, kind: ai, rate: 0.80 USD/h, day: 2026-01-31}}
#   - {{id: engineer, kind: engineer, rate: 50 USD/h, day: 2026-01-31}}
rates: []

# budgets:
#   - {{month: 2026-02, money: 200 USD, time: 80 h}}

# The defaults of `kbtool keep-or-stop`.
# keep_or_stop: {{rate: l4, people: [engineer], restart: 10 min}}
"""

SESSIONS = """\
# Sessions

One folder per session: `session.yaml` holds the figures, `notes.md` the prose, `runs/` what kbtool
measured. `kbtool session new "What it is about"` makes one. `ledger.yaml` holds prices by the hour
and the budget of each month.
"""

KERNELS = """\
# Kernels

One folder per kernel: `kernel.yaml` names its sources, its harness and its cases; recipes build,
validate and benchmark it. The guide has a whole example under "Attach your own kernel", what a
harness defines, and what each error looks like: `kbtool site serve`. `kbtool schema kernel`
describes the manifest.
"""

GITIGNORE = """\
/.kbtool/
/site/
# A run under way, and a file that is not in its place yet. `kbtool recover` removes what was left.
/sessions/*/runs/.*.journal
.*.tmp
"""

README = """\
# {name}

A lab notebook of kernel work, kept with kbtool.

    kbtool session new "What it is about"   # start a session
    kbtool check                            # every problem in every record
    kbtool costs --by month                 # where money and time went
    kbtool site serve                       # read it in a browser
"""


@click.command(epilog=EPILOG)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--with",
    "with_",
    metavar="RECIPE",
    help="A recipe that comes with kbtool, as split-k: with kbtool's kernels and patterns.",
)
@json_option
def init(folder: Path, with_: str | None, as_json: bool) -> None:
    """Make an empty knowledge base: folders, schemas, examples, a site configuration."""
    from kbtool.model.errors import UsageError
    from kbtool.store.format import format_of
    from kbtool.store.write import write_new

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    format_of(folder)
    made: list[str] = []
    for name, text in sorted(_files(folder, with_).items()):
        path = folder / name
        if path.exists() or _is_superfluous(folder, name):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, text)
        if not (as_json or with_):
            click.echo(path)
        made.append(name)
    for name in ("sessions", "patterns", "kernels"):
        (folder / name).mkdir(exist_ok=True)
    if as_json:
        print_json({"folder": str(folder.absolute()), "written": made})
    click.echo(
        f"{folder.absolute()} is a knowledge base: {many(len(made), 'file')} written" if made
        else f"{folder.absolute()} is a knowledge base already; nothing to do",
        err=True,
    )  # fmt: skip
    if made:
        root = "" if folder.samefile(".") else f" --root {shlex.quote(str(folder))}"
        what = f"run-recipe {with_}" if with_ else 'session new "What it is about"'
        click.echo(f"next: kbtool{root} {what}", err=True)


def _files(folder: Path, with_: str | None) -> dict[str, bytes]:
    from kbtool.model.errors import UsageError
    from kbtool.store.format import FILE, with_format
    from kbtool.store.packaged import kernels_with_patterns, recipes
    from kbtool.store.schema import FOLDER, modeline, schema_files

    name = folder.absolute().name or "knowledge base"
    texts = {
        "README.md": README.format(name=name),
        ".gitignore": GITIGNORE,
        "mkdocs.yml": _site(name),
        "sessions/README.md": SESSIONS,
        "sessions/ledger.yaml": LEDGER.format(modeline=modeline("ledger")),
        "kernels/README.md": KERNELS,
        _EXAMPLE: PATTERN.format(modeline=modeline("pattern")),
    }
    files = {path: text.encode() for path, text in texts.items()}
    if with_:
        known = recipes()
        if with_ not in known:
            raise UsageError(f"no recipe {with_!r} comes with kbtool; there is {', '.join(known)}")
        del files[_EXAMPLE]
        files |= kernels_with_patterns()
    if not any((folder / part).exists() for part in ("sessions", "patterns")):
        files[FILE] = with_format(None)  # records that are there may be of an earlier format
    return files | {f"{FOLDER}/{path}": text for path, text in schema_files().items()}


_EXAMPLE = "patterns/P01-validate-before-measuring.yaml"


def _is_superfluous(folder: Path, name: str) -> bool:
    """Whether the example is not needed, because there are patterns already."""
    return name == _EXAMPLE and any((folder / "patterns").glob("*.yaml"))


def _site(name: str) -> str:
    """kbtool's own site configuration, under this name."""
    import json

    from kbtool.site.html.tree import packaged

    text = packaged("mkdocs.yml").read_text(encoding="utf-8")
    return text.replace("site_name: kbtool\n", f"site_name: {json.dumps(name)}\n", 1)
