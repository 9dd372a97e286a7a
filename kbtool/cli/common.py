"""What commands share: the knowledge base, JSON on stdout, tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.store.tree import KnowledgeBase

json_option = click.option(
    "--json", "as_json", is_flag=True, default=False, help="One JSON object on stdout."
)


def knowledge_base(ctx: click.Context) -> KnowledgeBase:
    """The knowledge base that ``--root``, ``KBTOOL_ROOT`` or the current folder names."""
    from kbtool.store.tree import KnowledgeBase, find_root

    return KnowledgeBase(find_root(ctx.find_root().obj))


def print_json(value: Any) -> None:
    """``value`` as one JSON document on stdout; decimals, times and models as text.

    In lines for a terminal, in one line for a program: ten times as fast to write.
    """
    import json

    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_jsonable)
    # A file name that is not UTF-8 comes as lone surrogates; escaped, they are JSON still.
    click.echo(text.encode("utf-8", "backslashreplace").decode())


def _jsonable(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: set[int], indent: str = ""
) -> None:
    """A table on stdout: aligned on a terminal and in a pipe alike, no colour, no borders.

    Args:
        header: column titles.
        rows: cells, as text.
        numeric: indices of the columns to align right.
        indent: what each line begins with.
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["─" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if i in numeric else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo((indent + "  ".join(cells)).rstrip())


def warn_unreadable(base: KnowledgeBase) -> None:
    """Say on stderr that records were left out, if any were."""
    if base.findings:
        many = f" and {len(base.findings) - 1} more" if len(base.findings) > 1 else ""
        click.echo(f"kbtool: left out: {base.findings[0]}{many}; see `kbtool check`", err=True)
