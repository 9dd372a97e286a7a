"""What the validations of a session come to. Plain data: it is asked of runs and of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple


class Validation(NamedTuple):
    """What a run's validation of a kernel said."""

    at: datetime
    kernel: str | None
    run: str
    verdicts: Mapping[str, bool]
    """See ``Run.verdicts``."""


def still_wrong(validations: Iterable[Validation], kernel: str | None = None) -> dict[str, str]:
    """Kernel → the run whose verdict of a part of it is the newest, and is that it is wrong.

    Args:
        validations: of one session, in any order.
        kernel: only of this one.
    """
    newest: dict[tuple[str | None, str], Validation] = {}
    for one in sorted(validations, key=lambda one: (one.at, not all(one.verdicts.values()))):
        newest.update({(one.kernel, area): one for area in one.verdicts})
    wrong = {key: one.run for key, one in newest.items() if not one.verdicts[key[1]]}
    return {name or "": run for (name, _), run in wrong.items() if kernel in (None, name)}


def contradiction(wrong: Mapping[str, str]) -> str:
    """What ``still_wrong`` found, in words."""
    each = (f"{kernel or 'what it ran'} ({run})" for kernel, run in wrong.items())
    return f"the newest validation in the session found {', '.join(each)} wrong"
