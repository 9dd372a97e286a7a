"""A pattern: a lesson that recurs, the evidence for and against it, and the recipes that act."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.ablation import Ablation
from kbtool.model.base import (
    Cited,
    Commit,
    HowMany,
    KernelId,
    Model,
    PatternId,
    Reference,
    SessionId,
    Slug,
    SourceFile,
    Text,
    Title,
)
from kbtool.model.claim import Claim
from kbtool.model.recipe import Recipe
from kbtool.model.symptom import Expression, finds


class Symptom(Cited):
    """What one sees when the pattern applies; matched against the output of a failing step."""

    id: Slug
    """A name for references."""
    match: Expression
    """A regular expression without look-around and backreferences, as in Rust and RE2, searched in
    each line of the output."""
    example: Annotated[str, Field(min_length=1)]
    """A text that it finds, as seen."""
    advice: str | None = None
    """The first thing to do."""

    @model_validator(mode="after")
    def _finds_its_example(self) -> Self:
        finds(self.match, self.example)
        return self


class Rule(Cited):
    """One part of the solution: a rule to follow, a component, a step by hand."""

    id: Slug
    """A name for references."""
    text: Annotated[str, Field(min_length=1)]
    """The rule."""


class Place(Model):
    """Where the pattern stands in the sources."""

    commit: Commit | None = None
    """The commit whose file it is; without it the file of today. Beside a file of today: the commit
    that brought it; else one that had it, since it was taken out."""
    kernel: KernelId | None = None
    """The kernel; none for a file of the repository that is no kernel's."""
    file: Text
    """The file, inside the kernel's folder; without a kernel, from the root of the repository."""
    text: Text
    """A text that stands there exactly once: `kbtool check` holds the pattern to it."""


class Learned(Model):
    """A lesson of a session that became the pattern."""

    session: SessionId
    """The session."""
    text: Text
    """Words that stand in exactly one of its lessons: `kbtool check` holds the pattern to them."""

    def is_in(self, lesson: str) -> bool:
        """Whether the words stand in a lesson, however either breaks its lines."""
        return " ".join(self.text.split()) in " ".join(lesson.split())


class Supersession(Cited):
    """A pattern that this one replaces."""

    pattern: PatternId
    """The pattern replaced."""
    since: SessionId
    """The session that replaced it. A later record that still relies on the old pattern, or runs
    its recipe, is a finding, unless its session speaks against the pattern."""
    reason: str | None = None
    """Why."""


class Pattern(Model):
    """A lesson that recurs."""

    id: PatternId
    """P07; permanent. Two lessons that share a number in the logs are P15a and P15b."""
    number: HowMany
    """The number the logs give it."""
    title: Title
    """The lesson's name."""
    summary: Annotated[str, Field(min_length=1)]
    """The lesson in a sentence."""
    sources: dict[Slug, SourceFile] = {}
    """The documents that the pattern was transcribed from."""
    stated_in: list[SessionId] = []
    """The sessions whose logs describe it."""
    stated_status: Literal["operational", "documented", "proposed", "superseded", "unknown"]
    """As the logs leave it; the standing is derived from the evidence."""
    supersedes: list[Supersession] = []
    """The patterns that this one replaces; the way back is derived."""
    related: list[PatternId] = []
    """Patterns to read beside it."""
    needs: list[PatternId] = []
    """Patterns without which it does not work."""
    conflicts: list[PatternId] = []
    """Patterns that do not go together with it: more of one is less of the other."""
    bugs: list[Reference] = []
    """Faults that taught it: SESSION#bugs.ID; the way back is derived."""
    lessons: list[Learned] = []
    """Lessons of sessions that became it; the way back is derived."""
    decisions: list[Annotated[int, Field(ge=1, le=9999)]] = []
    """Numbers of the decisions that it came from or that rest on it: 26 is docs/adr/0026-*.md; the
    way back is derived."""
    problem: str | None
    """What goes wrong without it."""
    solution: str | None
    """What to do."""
    rules: list[Rule] = []
    """The solution in parts."""
    when_to_use: list[str] | None
    """When it applies."""
    when_not: list[str] | None
    """When it does not."""
    code: Text | None = None
    """The smallest code that shows it."""
    places: list[Place] = []
    """Where it stands in the sources."""
    no_places: Annotated[str, Field(min_length=1)] | None = None
    """Why it stands in no source."""
    signs: list[Text] = []
    """What one sees when it applies and no tool prints: a metric, a shape, a difference."""
    symptoms: list[Symptom] = []
    """What tools print when it applies."""
    claims: list[Claim] = []
    """Figures stated of it."""
    recipes: list[Recipe] = []
    """The pattern as executable steps."""
    ablations: list[Ablation] = []
    """Edits that take its technique out of an attached kernel: `kbtool run-recipe ablate` measures
    what it gains."""
    not_ablated: Annotated[str, Field(min_length=1)] | None = None
    """Why what it gains cannot be measured apart."""
    tags: list[Slug] = []
    """Words to find it by."""
    rests_on: dict[str, list[Reference]] = {}
    """Path of a part of this pattern → the claims that it rests on."""
    acknowledged: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Path of a claim (claims.ID, or the field that makes it) that the audit finds inconsistent →
    why it is left so."""
    unknown: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Path of a null → why nobody knows."""

    def has_lesson(self, session: str, lesson: str) -> bool:
        """Whether a lesson of a session became it."""
        return any(one.session == session and one.is_in(lesson) for one in self.lessons)

    @model_validator(mode="after")
    def _not_itself(self) -> Self:
        if self.id in {older.pattern for older in self.supersedes}:
            raise ValueError(f"{self.id} cannot supersede itself")
        return self

    @model_validator(mode="after")
    def _has_places_or_none(self) -> Self:
        if self.places and self.no_places is not None:
            raise ValueError("no_places says why it stands in no source, and places says where")
        return self

    @model_validator(mode="after")
    def _number_is_in_its_id(self) -> Self:
        if self.number != int(self.id[1:3]):
            raise ValueError(f"number {self.number} is not that of its id, {self.id}")
        return self
