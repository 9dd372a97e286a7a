"""Excuses: faults of run records, which nobody may mend, each with the reason why it stays."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.model.base import Model, Text


class Excuse(Model):
    """One fault of one run record that `kbtool check` does not report."""

    run: Annotated[str, Field(pattern=r"^sessions/[^/]+/runs/[^/]+\.json$")]
    """The file of the run, as the finding names it."""
    rule: Literal["machine-path"]
    """The rule that it breaks, as the finding names it."""
    reason: Text
    """Why the fault stays."""


class Excuses(Model):
    """Faults of run records that stay. An excuse that nothing needs is itself a finding."""

    excuses: list[Excuse] = []
    """Each names one run record and one rule."""
