"""What tools print when something is wrong, and what to do: the catalogue of symptoms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from kbtool.model.base import Model, PatternId, Slug, Text
from kbtool.model.cards import capability_of
from kbtool.model.expression import found_in
from kbtool.model.profile import lines_of

Expression = Annotated[str, Field(min_length=3, max_length=1000)]
"""A regular expression without look-around and backreferences, as in Rust and RE2."""

UNCHECKED = "unchecked"
"""The context of a validation that leaves examples alone: `kbtool check` has looked at them, and to
compile all expressions takes longer than to search a log for them."""

Role = Literal["cause", "warning", "consequence"]
"""What a line tells: why it failed, what may be wrong, or only that something failed."""


def finds(match: str, example: str) -> None:
    """Refuse an expression that is none, or that finds its own example in no line.

    Raises:
        ValueError: the message says which.
    """
    try:
        found = any(found_in(match, line) for line in lines_of(example))
    except ValueError as error:
        raise ValueError(f"match: {error}") from None
    if not found:
        raise ValueError(f"match: {match!r} does not find its own example")


def _expression(stated: str) -> str:
    found_in(stated, "")  # raises for what is none
    return stated


def _architecture(stated: str) -> str:
    if capability_of(stated) is None:
        raise ValueError(f"{stated!r} is no architecture; write sm_90")
    return stated


_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d[\d,]{0,30}(?:\.\d{1,30})?")


class Value(Model):
    """A number in the line that matched. `${name}` in the advice stands for it."""

    after: Text | None = None
    """The text before the number; the next number after it is taken."""
    before: Text | None = None
    """The text after the number; the last number ahead of it is taken."""
    at_least: float | None = None
    """Below this number the symptom is not there."""
    at_most: float | None = None
    """Above this number the symptom is not there."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if (self.after is None) == (self.before is None):
            raise ValueError("say where the number stands: after a text, or before one")
        return self

    def read(self, line: str) -> str | None:
        """The number as it stands in a line; ``None`` if there is none."""
        if self.after is not None:
            _, mark, rest = line.partition(self.after)
            found = _NUMBER.search(rest) if mark else None
            return found[0] if found else None
        head, mark, _ = line.partition(self.before or "")
        numbers = _NUMBER.findall(head) if mark else []
        return numbers[-1] if numbers else None

    def fits(self, number: str) -> bool:
        """Whether a number lies within the bounds."""
        value = float(int(number, 16)) if number[:2] in {"0x", "0X"} else plain(number)
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


def plain(number: str) -> float:
    """A number as tools print it: 1,024 is 1024."""
    return float(number.replace(",", ""))


class Cause(Model):
    """One of several causes of a message, which something else in the text gives away."""

    sign: Expression
    """A regular expression as ``match``, searched in the lines at the beginning of the text and in
    those that report an error: for a version, a platform, a flag, a second message."""
    advice: Text
    """What to do about this cause."""
    command: Text | None = None
    """The command that does it, or that shows more."""


class KnownSymptom(Model):
    """One kind of message of a tool, and what to do about it."""

    id: Slug
    """A name, unique among the symptoms of the tool."""
    title: Text
    """What is wrong, in a few words."""
    match: Expression
    """A regular expression without look-around and backreferences, as in Rust and RE2, searched in
    each line of the text."""
    example: Text
    """A text that it finds, in the tool's own wording."""
    source: Text
    """Where the wording stands: an address, or a file of the tool."""
    role: Role = "cause"
    """Whether the line says why it failed, what may be wrong, or only that something failed. Causes
    are shown first."""
    general: bool = False
    """Whether others that find the same line say more: they are shown first."""
    architectures: list[Annotated[str, AfterValidator(_architecture)]] = []
    """The GPU architectures that the advice is for, such as sm_90; all if empty. It is not shown
    for a text that names only others."""
    advice: Text
    """What to do."""
    command: Text | None = None
    """The command that does it, or that shows more."""
    patterns: list[PatternId] = []
    """The patterns of this knowledge base that it belongs to."""
    causes: list[Cause] = []
    """What may lie behind it, the most specific first. Those whose signs the text has are shown
    ahead of the advice."""
    values: dict[Slug, Value] = {}
    """Numbers in the line that matched, by name."""
    words: Text | None = None
    """Other words that people use for it, for the search."""

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Self:
        if info.context == UNCHECKED:
            return self
        finds(self.match, self.example)
        for cause in self.causes:
            try:
                found_in(cause.sign, "")
            except ValueError as error:
                raise ValueError(f"causes: {error}") from None
        unread = [
            name
            for name, value in self.values.items()
            if not any(
                (number := value.read(line)) and value.fits(number)
                for line in lines_of(self.example)
                if found_in(self.match, line)
            )
        ]
        if unread:
            raise ValueError(f"values: the example has no number that fits {unread[0]!r}")
        texts = [self.advice, self.command or ""]
        texts += (text for one in self.causes for text in (one.advice, one.command or ""))
        unknown = [
            name for text in texts for name in _PLACEHOLDER.findall(text) if name not in self.values
        ]
        if unknown:
            raise ValueError(f"${{{unknown[0]}}} is no name of a value; see values")
        return self

    def read(self, line: str) -> dict[str, str] | None:
        """The numbers in a line; ``None`` if one is missing or outside its bounds."""
        found = {}
        for name, value in self.values.items():
            number = value.read(line)
            if number is None or not value.fits(number):
                return None
            found[name] = number
        return found


_PLACEHOLDER = re.compile(r"\$\{([a-z0-9][a-z0-9._-]*)\}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the numbers of a line in place of ``${name}``."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


class Symptoms(Model):
    """The symptoms that one tool shows."""

    id: Slug
    """The tool, as the file is named."""
    title: Text
    """The tool or the subject in plain words."""
    signs: Annotated[Expression, AfterValidator(_expression)] | None = None
    """What a text has that may be of this tool. A symptom that no line matches is shown for a text
    that resembles it only if the text has one of these; without it, for any."""
    prints: Annotated[Expression, AfterValidator(_expression)] | None = None
    """What a line has that shows that this tool printed it: its name as a prefix, or a form that is
    its own. Such a line is a general message of no other tool, and resembles none of another."""
    in_words: bool = False
    """Whether the expressions are people's words and not a tool's. Such words are used of anything,
    so they count only in a line that names a card, a kernel or a library for cards, or in a text
    that names a card."""
    symptoms: Annotated[list[KnownSymptom], Field(min_length=1)]
    """What it prints."""
