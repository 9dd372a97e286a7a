"""Turns at measuring: one benchmark at a time on the processor, and on each card.

The lock files lie in a folder that all users of a machine share, for two users disturb each other
as two checkouts do. The operating system releases a lock when the process that holds it ends,
however it ends, so a file that is left behind blocks nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from kbtool.model.errors import MachineError
from kbtool.store.lock import is_locked

VARIABLE = "KBTOOL_LOCKS"
"""The environment variable that names another folder for the lock files."""
_POLL = 0.2
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Holder:
    """The run that has a turn, as it wrote itself into the lock file."""

    run: str
    pid: int
    user: str
    since: str

    def __str__(self) -> str:
        run = f"run {self.run}" if self.run else "a run without a record"
        return f"{run} of {self.user} (pid {self.pid}, since {self.since})"


class BusyError(Exception):
    """Another run has the turn, and this one was told not to wait; the message names it."""


@contextlib.contextmanager
def turn(
    card: str | None,
    run: str,
    *,
    wait: bool,
    on_wait: Callable[[str], None],
    on_tick: Callable[[], None],
) -> Iterator[None]:
    """Hold the turn while the block runs.

    Runs on different cards go on at once. A run on the processor goes alone.

    Args:
        card: the UUID of the card; ``None`` for the processor.
        run: the run that measures, for those who wait.
        wait: whether to wait for others, without limit.
        on_wait: called with who is waited for, and again when that is another.
        on_tick: called several times a second meanwhile.

    Raises:
        BusyError: another run has the turn, and ``wait`` is not set.
        MachineError: the lock files cannot be opened.
    """
    processor = _folder() / "kbtool-benchmark.lock"
    wanted = [(processor, fcntl.LOCK_SH if card else fcntl.LOCK_EX)]
    if card:
        wanted.append((processor.with_name(f"kbtool-GPU-{card}.lock"), fcntl.LOCK_EX))
    said, handle = "", None
    with contextlib.ExitStack() as held:
        for path, mode in wanted:
            while (handle := _taken(path, mode)) is None:
                who = _holders(path if card else None)
                if not wait:
                    raise BusyError(
                        f"{who} measures on this machine: nothing was measured, as --no-wait says"
                    )
                if who != said:
                    on_wait(who)
                    said = who
                on_tick()
                time.sleep(_POLL)
            held.callback(os.close, handle)
        assert handle is not None
        held.enter_context(_written(handle, run))
        yield


def _folder() -> Path:
    """Where the lock files lie: not in ``$TMPDIR``, which differs between users and jobs."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_absolute():
            raise MachineError(
                f"{VARIABLE}={named}: write the whole path, from / on; from another folder this"
                " would be another one, and two runs would measure at once"
            )
        return Path(named)
    shared = Path("/tmp")
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def _taken(path: Path, mode: int) -> int | None:
    """The descriptor of a lock file that is now locked, or ``None`` if others hold the lock."""
    while True:
        handle = _opened(path)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise MachineError(_unusable(path, "no plain file"))
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
            # Folders for temporary files are cleaned: another process may lock a newer file by now.
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _opened(path: Path) -> int:
    # Opening a pipe, which any user may put into such a folder, would wait for ever.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        # Without O_CREAT first: with it Linux refuses a file of another user in such a folder.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | flags)
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
            os.fchmod(handle, 0o666)  # the umask of this user must not shut others out
            return handle
        return os.open(path, os.O_RDWR | flags)
    except PermissionError:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | flags)  # enough to lock it
        raise MachineError(_unusable(path, "permission denied")) from None
    except OSError as error:
        raise MachineError(_unusable(path, error.strerror or str(error))) from error


def _unusable(path: Path, why: str) -> str:
    try:
        owner = f", which belongs to {_user(path.lstat().st_uid)}"
    except OSError:
        owner = ""
    return (
        f"runs that measure take turns by {path}{owner}: {why}; remove it, or set {VARIABLE} to a"
        " folder that all users of this machine may write to"
    )


@contextlib.contextmanager
def _written(handle: int, run: str) -> Iterator[None]:
    """Write who holds the lock into its file. It is held too where that cannot be written."""
    holder = Holder(run, os.getpid(), _user(os.getuid()), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z")
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)


def _holders(file: Path | None) -> str:
    """Who holds the lock of a file; without one, of any: runs on cards share the processor's."""
    paths = [file] if file else sorted(_folder().glob("kbtool-*.lock"))
    found = [_holder(path) for path in paths if is_locked(path)]
    return ", ".join(map(str, found)) or "another run"


def _holder(path: Path) -> Holder | str:
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_MOST_BYTES))
        run, user, since = (_plain(fields[name]) for name in ("run", "user", "since"))
        return Holder(run, int(fields["pid"]), user, since)
    except (OSError, ValueError, TypeError, KeyError):
        return "another run"


def _plain(text: object) -> str:
    """Text of another user's file, for a terminal."""
    return "".join(letter for letter in str(text)[:100] if letter.isprintable())


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
