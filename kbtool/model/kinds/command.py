"""The step kind ``command``: run a program of the knowledge base's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.model.base import Whole
from kbtool.model.kinds.base import ResultBase, Sha256, StepBase

RelativePath = Annotated[str, Field(min_length=1)]


class CommandStep(StepBase):
    """Run a program of the knowledge base's own, without a shell."""

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments. python3 is the one that runs kbtool, with its packages."""
    cwd: RelativePath = "."
    """Where it runs, inside the tree."""
    env: dict[str, str] = {}
    """Environment variables to add."""
    exit_code: Whole = 0
    """The exit status that counts as passed."""
    produces: list[RelativePath] = []
    """Files that must be there afterwards, inside the tree."""


class CommandResult(ResultBase):
    """What a command step did."""

    type: Literal["command"] = "command"
    argv: list[str]
    exit_code: Whole | None
    output_tail: str
    """The last lines printed."""
    produced: dict[str, Sha256] = {}
    """File → hash."""
