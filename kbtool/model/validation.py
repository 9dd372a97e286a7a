"""What the validations of a session come to. Plain data: it is asked of runs and of facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple


class Validation(NamedTuple):
    """That a run validated a kernel."""

    started: datetime
    kernel: str | None
    run: str
    passed: bool


def newest_failed(validations: Iterable[Validation]) -> list[str]:
    """The runs that are the newest validation of a kernel, and failed."""
    newest = {one.kernel: one for one in sorted(validations, key=attrgetter("started"))}
    return [one.run for one in newest.values() if not one.passed]
