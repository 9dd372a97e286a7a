"""What `kbtool doctor --json` prints.

Where the meaning or the name of a field changes, or one goes, the version goes up; a new field
alone does not raise it.
"""

from __future__ import annotations

from typing import Literal

from kbtool.model.base import Output, PatternId, Slug
from kbtool.model.run import MachineInfo

Level = Literal["ok", "note", "warning", "missing"]
"""ok; note: worth knowing; warning: work can start, but its result may not be what one expects;
missing: some work cannot start, see ``stops``."""

Work = Literal["cpu", "cuda", "profile", "sanitise", "site"]
"""Recipes of target cpu, recipes of target cuda, recipes that profile, recipes that run the
sanitizers, building the site."""


class Check(Output):
    """One thing that was looked at."""

    name: Slug
    """What was looked at; several checks may have one name."""
    level: Level
    found: str
    """What was found, without a path of this machine."""
    why: str | None = None
    """Why it matters; null where all is well."""
    advice: str | None = None
    """What to do."""
    command: str | None = None
    """The command that does it, or that shows more; `python` is the one that runs kbtool."""
    stops: list[Work] = []
    """What cannot start because of it."""
    pattern: PatternId | None = None
    """The pattern of the knowledge base that is about it."""
    where: str | None = None
    """The path of the tool or folder; null without --verbose."""


class Start(Output):
    """Whether one kind of work can start."""

    work: Work
    can: bool
    stopped_by: list[Slug]
    """The names of the checks that stop it."""


class RecipeStart(Output):
    """Whether a recipe can start."""

    recipe: str
    can: bool
    problems: list[str]
    """What stops it."""


class Diagnosis(Output):
    """What is there, what is missing and what does not fit together."""

    version: Literal[1] = 1
    machine: MachineInfo
    checks: list[Check]
    starts: list[Start]
    recipe: RecipeStart | None
    """The recipe of --for; null without it."""
