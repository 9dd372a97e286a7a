"""Errors that a user can correct; the message says how. A bug in kbtool is any other exception."""

from __future__ import annotations

from typing import ClassVar


class UserError(Exception):
    """Something that the user can correct. ``exit_code`` is kbtool's exit status."""

    exit_code: ClassVar[int] = 2


class UsageError(UserError):
    """A wrong argument, name or parameter."""


class NotFoundError(UserError):
    """A record, recipe or knowledge base that is not there; the message says what is."""


class MachineError(UserError):
    """Something that the machine lacks: a card, a compiler, a package, room on the disk."""

    exit_code: ClassVar[int] = 3


class RecordError(UserError):
    """A record that breaks the rules, where a command needs a sound one; names the findings."""

    exit_code: ClassVar[int] = 1
