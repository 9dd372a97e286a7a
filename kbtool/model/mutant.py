"""A mutant: an edit that puts a bug back into a kernel, for validation to find."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from kbtool.model.base import KernelId, Model, Slug, Text


class Mutant(Model):
    """An edit that puts a bug back into a kernel of the knowledge base."""

    id: Slug
    """What `--set mutants=ID` calls it; unique in the knowledge base."""
    kernel: KernelId
    """The kernel."""
    target: Slug
    """The target of its manifest that is built and validated: cpu, cuda."""
    variant: str | None = None
    """The version of the operator that is called; without one the operator chooses."""
    file: Text
    """The source to edit, inside the kernel's folder."""
    find: Text
    """A text that stands in the file exactly once."""
    put: str
    """What is put in its place."""
    note: Text | None = None
    """What the edit does, where the bug's own text does not say it."""
    equivalent: Text | None = None
    """Why no case can show a difference, if none can; that one does is then the finding."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.find == self.put:
            raise ValueError("find and put are the same text: the edit changes nothing")
        return self
