"""An ablation: edits that take one technique out of a kernel, to measure what it gains."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kbtool.model.base import KernelId, Model, Slug, Text


class Edit(Model):
    """A text in a source, and what is put in its place."""

    file: Text
    """The source or header to edit, inside the kernel's folder, or `kernel.yaml` for its flags."""
    find: Text
    """A text that stands in the file exactly once."""
    put: str
    """What is put in its place."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.find == self.put:
            raise ValueError("find and put are the same text: the edit changes nothing")
        return self


class Ablation(Model):
    """Edits that take a pattern's technique out of an attached kernel. What is left must be right:
    it is validated, then timed in turn with the whole kernel."""

    id: Slug
    """What `--set ablations=ID` calls it; unique in the knowledge base."""
    about: Text
    """What the kernel does without the technique."""
    kernel: KernelId
    """The kernel."""
    target: Slug
    """The target of its manifest that is built and timed: cpu, cuda."""
    edits: Annotated[list[Edit], Field(min_length=1)]
    """The edits, made together."""
    cases: Annotated[list[Text], Field(min_length=1)]
    """The cases to time, SET/NAME: those where the technique is expected to matter."""
