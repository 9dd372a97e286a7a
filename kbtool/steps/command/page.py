"""A command on the page of its run."""

from __future__ import annotations

from shlex import quote

from kbtool.markdown.escape import block, code
from kbtool.markdown.markup import bullets, folded, join, nothing
from kbtool.model.kinds.command import CommandResult
from kbtool.steps.base import Links
from kbtool.steps.logged import listed


def page(result: CommandResult, links: Links) -> str:
    """What it logged, the command line, its exit status, what it printed and what it produced.

    What it printed is folded where it logged something, for it says the same again.
    """
    metrics = listed(result, links)
    printed = block(result.output_tail) if result.output_tail.strip() else nothing("No output.")
    produced = [f"{code(name)} {code(digest[:12])}" for name, digest in result.produced.items()]
    exit_code = "none: it was stopped" if result.exit_code is None else str(result.exit_code)
    return join(
        [
            metrics,
            block(" ".join(quote(part) for part in result.argv)),
            f"Exit status: {exit_code}",
            folded("What it printed", printed) if metrics else printed,
            bullets(produced),
        ]
    )
