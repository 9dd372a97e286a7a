"""Excuses: faults of run records, which must not be edited, each with the reason why it stays."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import MAX_ID, Commit, Instant, KernelId, Model, PatternId, Text, Title


class Excuse(Model):
    """One fault of one run record that `kbtool check` does not report."""

    run: Annotated[str, Field(pattern=r"^sessions/[^/]+/runs/[^/]+\.json$")]
    """The file of the run, as the finding names it."""
    rule: Literal[
        "machine-path", "case-bounds", "run-edited", "run-resealed", "run-deleted", "run-renamed",
        "run-moved", "run-commit",
    ]  # fmt: skip
    """The rule that it breaks, as the finding names it."""
    commit: Commit | None = None
    """The commit that broke the rule, for those of `kbtool check --history`: what a later commit
    does to the run is not excused."""
    reason: Text
    """Why the fault stays."""

    @model_validator(mode="after")
    def _names_a_commit(self) -> Self:
        if (self.rule in {"machine-path", "case-bounds"}) != (self.commit is None):
            said = "breaks no rule by a commit" if self.commit else "needs the commit that broke it"
            raise ValueError(f"rule {self.rule} {said}")
        return self


class Forgotten(Model):
    """A recipe that was deleted. Its runs stay, and may name its patterns and kernels."""

    recipe: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=MAX_ID)]
    """Its name."""
    title: Title | None = None
    """What it did, if its pattern still said so when it was forgotten."""
    patterns: list[PatternId]
    """The patterns that it belonged to; they may be deleted too."""
    kernels: list[KernelId] = []
    """The kernels that its runs ran; they may be deleted too."""
    at: Instant
    """When it was forgotten."""
    reason: Text
    """Why."""


class Excuses(Model):
    """What `kbtool check` accepts of run records, since nobody edits them. An excuse that nothing
    needs is itself a finding."""

    excuses: list[Excuse] = []
    """Each names one run record and one rule."""
    forgotten: list[Forgotten] = []
    """Recipes that were deleted; `kbtool forget` adds them."""
