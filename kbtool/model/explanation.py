"""What `kbtool explain --json` prints.

Where the meaning or the name of a field changes, or one goes, the version goes up; a new field
alone does not raise it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.model.base import Output, PatternId, SessionId


class FittingPattern(Output):
    """A pattern that a symptom belongs to."""

    id: PatternId
    title: str


class FittingBug(Output):
    """A bug whose error message shows the same symptom."""

    session: SessionId
    id: str
    title: str
    status: str
    fixes: list[str]
    """The changes that fixed it, as recorded."""


class LikelyCause(Output):
    """A cause of a message that something else in the text gives away."""

    text: str
    """The line that does, or its part."""
    advice: str
    command: str | None
    """The command that does it, or that shows more."""


class Fit(Output):
    """One thing that fits the text, and what to do about it."""

    rank: Annotated[int, Field(ge=1)]
    """1 is the best."""
    how: Literal["match", "resemblance"]
    """Whether a line matched an expression, or words of the text are those of the record."""
    name: str
    """TOOL/ID of a symptom of the catalogue, PATTERN/ID of one of a pattern, or the id of a record
    that the text resembles."""
    title: str
    """What is wrong, in a few words."""
    line: int | None
    """The number of the line that matched; null for a resemblance."""
    text: str | None
    """The line that matched, or its part; null for a resemblance."""
    shared: list[str]
    """The words that text and record share; empty for a match."""
    role: Literal["cause", "warning", "consequence"]
    """Whether the line says why something failed, what may be wrong, or only that it failed."""
    values: dict[str, str]
    """Numbers in the line, as printed."""
    architectures: list[str]
    """The GPU architectures that the advice is for; all if empty."""
    causes: list[LikelyCause]
    """Which of its causes the text points to, the likeliest first: to be read before the advice."""
    advice: str | None
    command: str | None
    """The command that does it, or that shows more."""
    source: str | None
    """Where the wording stands."""
    patterns: list[FittingPattern]
    bugs: list[FittingBug]


class AskedRemedy(Output):
    """What a language model takes for the cause, and what it would do. Nobody has verified it."""

    cause: str
    advice: str
    command: str | None
    text: str | None
    """The part of the text that it gives as its reason; null if the text has no such part."""


class Asked(Output):
    """What a program that was asked about the text answered."""

    command: str
    """The program."""
    remedies: list[AskedRemedy]
    """The likeliest first; empty if it knows of none."""
    problem: str | None
    """Why there is no answer; null if there is one."""


class Explanation(Output):
    """What fits a text, the best first."""

    version: Literal[1] = 1
    fits: list[Fit]
    """All that fit; empty if nothing does."""
    lines: int
    """The lines that were read."""
    architectures: list[str]
    """The GPU architectures that the text names, such as sm_90."""
    record: str | None
    """The command that records the case if nothing fits."""
    asked: Asked | None = None
    """What a language model says of it, where one was asked."""


class Hit(Output):
    """A record that a search finds."""

    rank: Annotated[int, Field(ge=1)]
    kind: Literal[
        "pattern", "symptom", "bug", "session", "recipe", "kernel", "term", "guide", "decision"
    ]
    id: str
    """The record's id; of a symptom TOOL/ID, of a bug SESSION#bugs.ID, of a recipe its name,
    of a term, a section of the guide or a decision its page under docs/."""
    title: str
    score: float
    """Higher fits better; comparable within one search only."""
    shared: list[str]
    """The words of the search that it has."""
    text: str | None
    """What the record says first: a summary, an advice."""
    path: str
    """The file of the record, relative to the root; of kbtool's own catalogue from symptoms/ on."""


class Search(Output):
    """What `kbtool search --json` prints."""

    version: Literal[1] = 1
    hits: list[Hit]
    """The best first; empty if there is none."""
    unknown: list[str]
    """Words of the search that no record has."""
