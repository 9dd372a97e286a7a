"""Completion of names by the shell, with click's mechanism.

A completion must answer at once and must never speak: whatever is wrong with the knowledge base,
there are then no names.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

_MOST = 500
"""The most names that are told."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completes(kind: str, *others: str) -> Complete:
    """What completes the names of a kind, as ``kbtool.store.names`` finds them."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            from kbtool.store import names
            from kbtool.store.root import find_root

            known = getattr(names, kind)(find_root(ctx.find_root().params.get("root")))
            return _fitting([*((one, "") for one in others), *known], incomplete)
        except Exception:
            return []

    return complete


def _fitting(names: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """The names that begin with what is written; if there are none, the only one that holds it."""
    from kbtool.store.names import is_plain

    known = {name: about for name, about in reversed([*names]) if is_plain(name)}
    ordered = list(reversed(known))
    begun = [name for name in ordered if name.startswith(incomplete)]
    if not begun and incomplete:
        held = [name for name in ordered if incomplete in name]
        begun = held if len(held) == 1 else []
    return [CompletionItem(name, help=known[name] or None) for name in begun[:_MOST]]


recipe_names = _completes("recipes")
session_names = _completes("sessions", "last")
session_or_new = _completes("sessions", "last", "new")
run_names = _completes("runs", "last")
bug_names = _completes("bugs")
own_bug_names = _completes("bugs", "last")
pattern_names = _completes("patterns")
kernel_names = _completes("kernels")


def answer() -> int | None:
    """Answer a shell that asks for completions; ``None`` if none does.

    Nothing is printed but names: a message would stand in the middle of the line that is typed.
    """
    from kbtool.cli.main import COMPLETING, cli

    if not os.environ.get(COMPLETING, "").endswith("_complete"):
        return None
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")  # click writes bytes
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(out):
        try:
            cli.main([], prog_name="kbtool", standalone_mode=False)
        except SystemExit:
            pass
        except BaseException:
            return 1
    with contextlib.suppress(OSError, ValueError):
        out.seek(0)
        sys.stdout.write(out.read().lstrip("\n"))  # of no names, an empty line
        sys.stdout.flush()
    return 0


SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
Examples:
  eval "$(kbtool completion bash)"           in ~/.bashrc
  eval "$(kbtool completion zsh)"            in ~/.zshrc, after compinit
  kbtool completion fish > ~/.config/fish/completions/kbtool.fish

\b
It completes commands, options, their choices, and the names of recipes, sessions, runs, bugs,
patterns and kernels of the knowledge base that you are in.""",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--json", "as_json", is_flag=True, default=False, help="One JSON object on stdout.")
def completion(shell: str, as_json: bool) -> None:
    """Print the script that lets a shell complete the commands and names of kbtool."""
    from click.shell_completion import get_completion_class

    from kbtool.cli.common import print_json
    from kbtool.cli.main import COMPLETING, cli

    kind: Any = get_completion_class(shell)
    script = kind(cli, {}, "kbtool", COMPLETING)
    # Not `source`, which asks bash for its version and warns.
    text = script.source_template % script.source_vars()
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        click.echo(text)
