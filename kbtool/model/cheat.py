"""Attacks on the gates of a run, and honest variants that look like one: each a small edit."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import Model, Slug, Text


class Cheat(Model):
    """An edit of a kernel's files that earns a figure it has no right to, or an honest one."""

    id: Slug
    """What `--set cheats=ID` calls it; unique in the catalogue."""
    about: Text
    """What it does."""
    target: Slug = "cpu"
    """The target of the manifest that has to be built."""
    honest: bool = False
    """Whether it does its work in every call, so that no gate may accuse it."""
    after: Literal["build", "validate"] | None = None
    """The step after which the edit is made; before the build where none is named."""
    file: Text
    """The file to edit, inside the kernel's folder."""
    find: Text
    """A text that stands in the file exactly once."""
    put: str
    """What is put in its place."""
    survives: Text | None = None
    """Why no gate stops it, where that is known."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.find == self.put:
            raise ValueError("find and put are the same text: the edit changes nothing")
        if self.honest and self.survives:
            raise ValueError("an honest variant is meant to pass; survives is for attacks")
        return self


class Catalogue(Model):
    """The attacks and honest variants of a kernel."""

    cheats: Annotated[list[Cheat], Field(min_length=1)]
    """Attacks and honest variants."""

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [cheat.id for cheat in self.cheats]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"two cheats are called {twice[0]!r}")
        return self
