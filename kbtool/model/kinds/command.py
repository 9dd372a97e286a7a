"""The step kind ``command``: run a program of the knowledge base's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.model.base import Whole
from kbtool.model.kinds.base import Sha256, StepBase
from kbtool.model.kinds.logged import MetricsResult

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
    results: RelativePath | None = None
    """A JSON file of values that it writes, inside the tree: a list of objects as behind
    KBTOOL_RESULT in its output. The values go into the run record."""


class CommandResult(MetricsResult):
    """What a command step did."""

    type: Literal["command"] = "command"
    argv: list[str]
    exit_code: Whole | None
    output_tail: str
    """The last lines printed."""
    produced: dict[str, Sha256] = {}
    """File → hash."""
    scripts: dict[str, Sha256] = {}
    """Arguments of the command that are files of the knowledge base → hash, before it ran; empty
    in older records."""
