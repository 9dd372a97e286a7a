"""What broke in a session, its possible causes, and what fixed it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import (
    Cited,
    Commit,
    Duration,
    Likelihood,
    Reference,
    RunStep,
    Slug,
    Text,
    Title,
)
from kbtool.model.mutant import Mutant


class Hypothesis(Cited):
    """A possible cause and how likely it was held to be."""

    id: Slug
    """A name for references."""
    statement: Text
    """The possible cause."""
    likelihood: Likelihood | None = None
    """As stated: 80 %."""
    verdict: Literal["open", "confirmed", "rejected"] = "open"
    """As this session left it."""
    note: str | None = None
    """What speaks for or against it."""


class Bug(Cited):
    """A fault that the session met. Its fix is a `fix`, in this session or in a later one."""

    id: Slug
    """A name for references; it stays with the bug."""
    title: Title
    """The fault in a few words."""
    component: str | None = None
    """The part at fault: a kernel, a script, the build."""
    symptom: Text | None = None
    """What was seen."""
    cause: str | None = None
    """Why; null, with the reason under `unknown`, while nobody knows."""
    status: Literal["open", "fixed", "worked-around", "unknown"]
    """As the session left it; what later fixes made of it is derived."""
    recurrence_of: Reference | None = None
    """The same fault met earlier: SESSION#bugs.ID."""
    minutes_lost: Duration | None = None
    """Time spent on it in this session."""
    error_text: str | None = None
    """The error message, as printed."""
    hypotheses: list[Hypothesis] = Field(default_factory=list)
    """What it might be, as believed in the session."""
    mutants: list[Mutant] = Field(default_factory=list)
    """Edits that put the bug back: the `mutants` step shows that validation finds each."""


class Fix(Cited):
    """A change that fixes a bug, of this session or of an earlier one."""

    id: Slug | None = None
    """A name for references."""
    bug: Reference
    """SESSION#bugs.ID, or #bugs.ID in this session."""
    change: Text
    """What was changed."""
    place: str | None = None
    """File and lines, as stated."""
    commit: Commit | None = None
    """The commit that holds the change."""
    confirmed: bool | None = None
    """Whether a test showed that the fault was gone."""
    shown_by: list[RunStep] = Field(default_factory=list)
    """The steps of runs that showed it; the audit asks whether they passed."""
    note: str | None = None
    """How it was shown, or what remained."""

    @property
    def kernel(self) -> str | None:
        """The kernel in whose folder the change was made, where ``place`` says so."""
        folder, _, rest = (self.place or "").partition("/")
        return rest.partition("/")[0] if folder == "kernels" and "/" in rest else None

    @model_validator(mode="after")
    def _shows_what_is_confirmed(self) -> Self:
        if self.shown_by and not self.confirmed:
            raise ValueError(
                "shown_by names what showed that the fault was gone, and confirmed is not true;"
                " leave one of the two out, or write confirmed: true"
            )
        return self
