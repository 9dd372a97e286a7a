"""kbtool: GPU kernel work as records in git, with recipes that run and a generated site."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kbtool.runner.log import SessionLog

__version__ = "0.1.0"


def session(name: str | None = None, *, root: str | Path | None = None) -> SessionLog:
    """The session that values of a script are logged to, for a ``with`` statement.

    >>> with kbtool.session() as s:
    ...     s.log("tokens/s", 1830, unit="1/s", better="higher", case={"batch": 8})

    Args:
        name: the session, as ``run-recipe --session`` takes it. Default: the running one, else the
            unsorted session of the day.
        root: the knowledge base. Default: ``KBTOOL_ROOT``, else the nearest from this folder
            upwards.
    """
    from kbtool.runner.log import SessionLog

    return SessionLog(name, root)
