"""What engine ssh asks a host for: start attempts, tell how they are, end them.

``serve`` runs in the Python that execnet starts there, and ends with the connection. The attempts
outlive both: each is a process of its own, and its folder on the host says all about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import kbtool
from kbtool.model.errors import UserError
from kbtool.store.write import write_atomic
from kbtool.sweeps import processes
from kbtool.sweeps.cell import own_folder
from kbtool.sweeps.engines.here import start, visible_cards
from kbtool.sweeps.folder import GIVEN_UP, AttemptFolder, Claim, SweepFolder

MOST_LOG = 1 << 20
"""The bytes of a log that one answer holds."""


def serve(channel: Any) -> None:
    """Answer what the other end asks for, until it is gone."""
    version, sweep = channel.receive()
    if version != kbtool.__version__:
        raise UserError(f"kbtool is {kbtool.__version__} there and {version} here")
    host = Host(sweep)
    channel.send(host.cards)
    for verb, *told in channel:
        channel.send(getattr(host, verb)(*told))


class Host:
    """The attempts of one sweep on this machine. They are named CELL/TRY."""

    def __init__(self, sweep: str) -> None:
        self._folder = SweepFolder(own_folder() / "sweeps" / sweep)
        self._archives = own_folder() / "archives"
        self._cards = visible_cards()

    @property
    def cards(self) -> int:
        """How many there are."""
        return len(self._cards)

    def keep(self, names: Sequence[str]) -> None:
        """End what nobody waits for any more: every attempt but these."""
        self.cancel([name for name in self._all() if name not in names])

    def has(self, digest: str) -> bool:
        """Whether an archive is here."""
        return (self._archives / digest).is_file()

    def take(self, data: bytes) -> None:
        """Take an archive."""
        self._archives.mkdir(exist_ok=True)
        write_atomic(self._archives / hashlib.sha256(data).hexdigest(), data)

    def start(self, name: str, request: dict[str, Any], slot: int, limit_s: int) -> None:
        """Start an attempt.

        Args:
            name: its name.
            request: what it is to run.
            slot: which of the jobs at once it is: the number of its card, if there are any.
            limit_s: the seconds that it may take.
        """
        attempt = self._attempt(name)
        attempt.create({**request, "archive": str(self._archives / request["digest"])})
        card = self._cards[slot] if self._cards else None
        # A minute after the warning it is killed, as a cluster would.
        limit = ("timeout", "--signal=USR2", "--kill-after=60", str(limit_s))
        attempt.queued_as(processes.name_of(start(attempt.path, card, *limit).pid))

    def look(self, logs: dict[str, int]) -> dict[str, dict[str, Any]]:
        """How attempts are, and what their files say.

        One that has not begun and whose process is gone is given up here. So nobody has to know
        whether an order to start it arrived.

        Args:
            logs: attempt → the bytes of its log that the other end has.
        """
        return {name: _seen(self._attempt(name), has) for name, has in logs.items()}

    def cancel(self, names: Sequence[str]) -> None:
        """End attempts, whether they have begun or not."""
        for name in names:
            attempt = self._attempt(name)
            if not _given_up(attempt) and attempt.job:
                processes.end(attempt.job)

    def _attempt(self, name: str) -> AttemptFolder:
        cell, number = name.split("/")
        return self._folder.attempt(cell, int(number))

    def _all(self) -> Iterator[str]:
        for path in self._folder.path.glob("cells/*/*"):
            yield f"{path.parent.name}/{path.name}"


def _seen(attempt: AttemptFolder, has: int) -> dict[str, Any]:
    # The process first, then the files: what is gone by now has written its end.
    lives = attempt.job is not None and processes.lives(attempt.job)
    if not lives:
        _given_up(attempt)
    log = _bytes(attempt, "log") or b""
    new = log[has : has + MOST_LOG]
    is_all = has + len(new) >= len(log)
    ended = {name: _bytes(attempt, name) if is_all else None for name in ("run.json", "ended.json")}
    claim = _bytes(attempt, "claim.json")
    return {"lives": lives or not is_all, "log": new, "claim.json": claim, **ended}


def _given_up(attempt: AttemptFolder) -> bool:
    """Keep an attempt from beginning; false if it has begun."""
    attempt.path.mkdir(parents=True, exist_ok=True)
    return attempt.claimed_by(Claim(GIVEN_UP, datetime.now(UTC), None, 0))


def _bytes(attempt: AttemptFolder, name: str) -> bytes | None:
    try:
        return (attempt.path / name).read_bytes()
    except FileNotFoundError:
        return None
