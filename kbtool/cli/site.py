"""``kbtool site``: the records as a web site."""

from __future__ import annotations

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.model.words import many


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def site() -> None:
    """Build or serve the records as a web site that needs no network."""


@site.command()
@click.option(
    "--out",
    metavar="DIR",
    default=None,
    help="Where to build it. Default: site/ in the knowledge base.",
)
@click.option(
    "--strict/--no-strict",
    default=True,
    show_default=True,
    help="Fail on an unreadable record, a broken link or a missing anchor.",
)
@json_option
@click.pass_context
def build(ctx: click.Context, out: str | None, strict: bool, as_json: bool) -> None:
    """Build the site. Pages of the last build are reused where nothing has changed.

    mkdocs lays it out, or Zensical if kbtool.yaml says `generator: zensical`.

    \b
    Examples:
      kbtool site build                  into site/; open site/index.html
      kbtool site build --out ../site    somewhere else
    """
    import os
    from datetime import date
    from pathlib import Path

    from kbtool.site.html.build import build as build_site

    root = knowledge_base(ctx).root
    built = build_site(root, Path(out).absolute() if out else root / "site", date.today())
    for problem in built.problems:
        click.echo(f"kbtool: {problem}", err=True)
    shown = os.path.relpath(built.home)
    if as_json:
        said = [str(problem) for problem in built.problems]
        told = {"home": shown, "pages": built.pages, "seconds": built.seconds, "problems": said}
        print_json(told)
    else:
        click.echo(f"{many(built.pages, 'page')} in {built.seconds:.1f} s; open {shown}")
    if built.problems and strict:
        problems = many(len(built.problems), "problem")
        click.echo(f"kbtool: {problems}; --no-strict builds regardless", err=True)
        ctx.exit(1)


@site.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port on the loopback interface; 0 picks a free one.",
)
@click.pass_context
def serve(ctx: click.Context, port: int) -> None:
    """Serve the site on this machine; pages show records as they are when they are asked for.

    \b
    Examples:
      kbtool site serve              on port 8000
      kbtool site serve --port 0     on a free port
    """
    from kbtool.site.html.serve import serve as serve_site

    serve_site(knowledge_base(ctx).root, port, lambda line: click.echo(f"kbtool: {line}", err=True))
