"""Run child processes with live output and a timeout. No child outlives its step."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

GRACE_SECONDS = 3.0
"""Time from SIGTERM to SIGKILL."""
TAIL_LINES = 200
MAX_CHARACTERS = 4000
"""Of a line of output, and of a text in an event: records keep no more."""


def shortened(text: str) -> str:
    """``text``, cut where it is too long for a record."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


@dataclass(frozen=True)
class Completed:
    """A child process that has ended, with all its descendants."""

    returncode: int
    output: str
    """The last lines of stdout and stderr, merged."""
    seconds: float
    timed_out: bool

    @property
    def died(self) -> str | None:
        """The signal that killed the child, or ``None`` if it exited by itself."""
        if self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    on_line: Callable[[str], None] = lambda _: None,
    on_event: Callable[[bytes], None] | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> Completed:
    """Run ``argv`` until it ends, for at most ``timeout`` seconds.

    The child leads its own process group. The whole group is stopped on timeout, on Ctrl-C and on
    any exception, and killed if this process dies.

    Args:
        argv: the program and its arguments, run without a shell.
        cwd: working directory.
        timeout: seconds.
        env: environment variables to add.
        stdin: bytes to send; with ``None`` stdin is empty.
        on_line: called with each line of stdout and stderr.
        on_event: called with each line that the child writes to the descriptor in
            ``KBTOOL_EVENTS``.
        on_tick: called several times a second while the child runs.

    Raises:
        FileNotFoundError: the program does not exist.
    """
    started = time.monotonic()
    deadline = started + timeout
    tail: deque[str] = deque(maxlen=TAIL_LINES)

    def line(raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").rstrip("\r")
        tail.append(shortened(text))
        on_line(text)

    with _pipe() if on_event else contextlib.nullcontext() as events:
        write_end = events[1].fileno() if events else None
        with _child(argv, cwd, env or {}, write_end, stdin=stdin is not None) as child:
            assert child.stdout is not None
            sinks = {child.stdout.fileno(): _Lines(line)}
            if events and on_event:
                events[1].close()
                sinks[events[0].fileno()] = _Lines(on_event)
            if stdin is not None:
                _send(child, stdin)
            timed_out = not _read_to_end(child, sinks, deadline, on_tick)
    seconds = time.monotonic() - started
    return Completed(child.returncode, "\n".join(tail), seconds, timed_out)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """The read end and the write end of a pipe."""
    read, write = os.pipe()
    with FileIO(read, "r") as reader, FileIO(write, "w") as writer:
        yield reader, writer


@contextlib.contextmanager
def _child(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], events: int | None, *, stdin: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child in its own process group; the group is stopped at the end of the block.

    Args:
        argv: the program and its arguments.
        cwd: working directory.
        env: environment variables to add.
        events: descriptor for events.
        stdin: whether stdin is a pipe.
    """
    child = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**os.environ, **env, "KBTOOL_EVENTS": "-1" if events is None else str(events)},
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[] if events is None else [events],
    )
    watchdog = watch(child.pid)
    try:
        yield child
    finally:
        _stop_group(child)
        # Stop the watchdog last: until the group has ended, it must end with this process.
        watchdog.kill()
        watchdog.communicate()
        if child.stdout is not None:
            child.stdout.close()


def _send(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    # If the child ends before it has read everything, its exit status is what counts.
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(data)
        child.stdin.close()


def _read_to_end(
    child: subprocess.Popen[bytes],
    sinks: Mapping[int, _Lines],
    deadline: float,
    on_tick: Callable[[], None],
) -> bool:
    """Read the child's output until it ends. Returns whether it ended before the deadline.

    Args:
        child: the child.
        sinks: descriptor → the consumer of its bytes.
        deadline: time on the clock of ``time.monotonic``.
        on_tick: called several times a second.
    """
    with selectors.DefaultSelector() as selector:
        for descriptor, lines in sinks.items():
            selector.register(descriptor, selectors.EVENT_READ, lines)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(min(0.2, left)):
                chunk = os.read(key.fd, 1 << 16)
                key.data.feed(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            on_tick()
            if child.poll() is not None and not selector.select(0):
                # A grandchild may keep the pipe open; the caller stops the whole group.
                break
    try:
        child.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return False
    return True


class _Lines:
    """Splits a stream of bytes into lines."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._rest: list[bytes] = []
        """The beginning of a line, as it came: joined once, or a long line would take hours."""

    def feed(self, chunk: bytes) -> None:
        """Add bytes; an empty chunk ends the stream."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._sink(b"".join((*self._rest, line)))
            self._rest.clear()
        if rest:
            self._rest.append(rest)
        if not chunk and self._rest:
            self._sink(b"".join(self._rest))
            self._rest.clear()


def _stop_group(child: subprocess.Popen[bytes]) -> None:
    """Stop the child's process group: SIGTERM, then SIGKILL."""
    for request, grace in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        try:
            os.killpg(child.pid, request)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and _group_lives(child):
            time.sleep(0.02)
    child.wait()


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()  # reap the leader: a zombie would keep the group alive
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def watch(group: int) -> subprocess.Popen[bytes]:
    """Start a process that kills the group if this process dies. It reads from a pipe that nobody
    writes to; the operating system closes the pipe when this process ends."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$1"', "watchdog", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
