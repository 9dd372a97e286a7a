"""Errors that a user can correct; the message says how. A bug in kbtool is any other exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pydantic import ValidationError


class UserError(Exception):
    """Something that the user can correct.

    Attributes:
        exit_code: kbtool's exit status.
        code: what a program tells it by, under ``--json``.
    """

    exit_code: ClassVar[int] = 2
    code: ClassVar[str] = "usage"


class UsageError(UserError):
    """A wrong argument, name or parameter."""


class NotFoundError(UserError):
    """A record, recipe or knowledge base that is not there; the message says what is."""

    code: ClassVar[str] = "not_found"


class MachineError(UserError):
    """Something that the machine lacks: a card, a compiler, a package, room on the disk."""

    exit_code: ClassVar[int] = 3
    code: ClassVar[str] = "machine"


class RecordError(UserError):
    """A record that breaks the rules, where a command needs a sound one; names the findings."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "record"


def first_problem(error: ValidationError) -> str:
    """The first problem, with its place."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    said = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said
