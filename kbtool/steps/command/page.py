"""A command on the page of its run."""

from __future__ import annotations

from shlex import quote

from kbtool.markdown.escape import block, code
from kbtool.markdown.markup import bullets, join, nothing
from kbtool.model.kinds.command import CommandResult
from kbtool.steps.base import Links
from kbtool.steps.logged import listed


def page(result: CommandResult, links: Links) -> str:
    """The command line, its exit status, and the files that it produced."""
    produced = [f"{code(name)} {code(digest[:12])}" for name, digest in result.produced.items()]
    exit_code = "none: it was stopped" if result.exit_code is None else str(result.exit_code)
    return join(
        [
            block(" ".join(quote(part) for part in result.argv)),
            f"Exit status: {exit_code}",
            block(result.output_tail) if result.output_tail.strip() else nothing("No output."),
            bullets(produced),
            listed(result, links),
        ]
    )
