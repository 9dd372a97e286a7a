"""How often `kbtool explain` finds the right remedy for real messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from kbtool.model.cards import capability_of
from kbtool.model.explanation import Fit
from kbtool.runner.explain import architectures_in
from kbtool.runner.remedies import explain
from kbtool.store.tree import KnowledgeBase

FOLDER = Path(__file__).parent / "explain"
FIRST = 3
NONE = "none"
"""What is right for a message that the catalogue does not know: it counts as missed."""


class Message(NamedTuple):
    """A message as a tool printed it, and what is right for it."""

    text: str
    source: str
    right: list[str]


class Answer(NamedTuple):
    """What `kbtool explain` says of a message."""

    message: Message
    first: list[Fit]

    @property
    def is_right(self) -> bool:
        """Whether one of the first three is right."""
        return any(fit.name in self.message.right for fit in self.first)

    @property
    def is_for_another_card(self) -> bool:
        """Whether one of the first three is for other cards than the message names."""
        named = {one for line in self.message.text.splitlines() for one in architectures_in(line)}
        meant = [{capability_of(one) for one in fit.architectures} for fit in self.first]
        return any(one and named and not one & named for one in meant)


def messages(half: str) -> list[Message]:
    """The messages of a half: develop, measure."""
    files = sorted(FOLDER.glob(f"{half}*.yaml"))
    parts = [yaml.load(file.read_text("utf-8"), Loader=yaml.BaseLoader) for file in files]
    every = [one for part in parts for one in part["messages"]]
    return [Message(one["text"], one["source"], one["right"]) for one in every]


def unrelated() -> list[str]:
    """Texts that no remedy fits."""
    data = yaml.load((FOLDER / "unrelated.yaml").read_text("utf-8"), Loader=yaml.BaseLoader)
    return [str(text) for text in data["texts"]]


def answers(base: KnowledgeBase, of: Iterable[Message]) -> Iterator[Answer]:
    """What `kbtool explain` says of each message."""
    for message in of:
        found = explain(base, [message.text.encode()])
        yield Answer(message, found.fits[:FIRST])
