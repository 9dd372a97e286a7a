"""Child processes that cannot outlive their step: output as it comes, a deadline, no orphans."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 3.0
"""Between the request to stop and the kill."""
TAIL_LINES = 200


@dataclass(frozen=True)
class Completed:
    """A child that has ended, with all its descendants."""

    returncode: int
    output: str
    """The last lines of stdout and stderr together."""
    seconds: float
    timed_out: bool

    @property
    def died(self) -> str | None:
        """How the child was killed, in words, or ``None`` if it exited by itself."""
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
    """Run ``argv`` to its end, or until ``timeout`` seconds have passed.

    The child leads a process group of its own; the whole group is stopped on timeout, on Ctrl-C
    and on any exception, and killed if this process dies.

    Args:
        argv: the program and its arguments; no shell.
        cwd: where it runs.
        timeout: seconds.
        env: variables to add to this process's own.
        stdin: bytes to send; nothing can be read where it is ``None``.
        on_line: called with each line of stdout and stderr.
        on_event: if given, the child may write lines to the descriptor in ``KBTOOL_EVENTS``.
        on_tick: called several times a second while the child runs.

    Raises:
        FileNotFoundError: the program is not there.
    """
    read_events, write_events = os.pipe() if on_event else (-1, -1)
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**os.environ, **(env or {}), "KBTOOL_EVENTS": str(write_events)},
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[write_events] if on_event else [],
        )
        watchdog = _watch(child.pid)
    except BaseException:
        for descriptor in (read_events, write_events):
            if descriptor >= 0:
                os.close(descriptor)
        raise
    tail: deque[str] = deque(maxlen=TAIL_LINES)

    def line(raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").rstrip("\r")
        tail.append(text)
        on_line(text)

    timed_out = False
    try:
        assert child.stdout is not None
        if on_event:
            os.close(write_events)
        if stdin is not None:
            assert child.stdin is not None
            # A child that ends before it has read everything is judged by its exit, not by this.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(stdin)
                child.stdin.close()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ, _Lines(line))
            if on_event:
                selector.register(read_events, selectors.EVENT_READ, _Lines(on_event))
            while selector.get_map():
                left = timeout - (time.monotonic() - started)
                if left <= 0:
                    timed_out = True
                    break
                for key, _ in selector.select(min(0.2, left)):
                    chunk = os.read(key.fd, 1 << 16)
                    key.data.feed(chunk)
                    if not chunk:
                        selector.unregister(key.fileobj)
                on_tick()
                if child.poll() is not None and not selector.select(0):
                    # A grandchild may hold the pipe open for ever; the group is stopped below.
                    break
        if not timed_out:
            left = timeout - (time.monotonic() - started)
            try:
                child.wait(max(left, 0.0))
            except subprocess.TimeoutExpired:
                timed_out = True
    finally:
        _stop_group(child)
        # Only now: until the group is gone, a kill of this process must still end it.
        watchdog.kill()
        watchdog.communicate()
        if on_event:
            os.close(read_events)
        if child.stdout is not None:
            child.stdout.close()
    seconds = time.monotonic() - started
    return Completed(child.returncode, "\n".join(tail), seconds, timed_out)


class _Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take more bytes; an empty chunk ends the stream."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._sink(line)
        if not chunk and self._rest:
            self._sink(self._rest)
            self._rest = b""


def _stop_group(child: subprocess.Popen[bytes]) -> None:
    """Ask the child's process group to stop, then make it."""
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
    child.poll()  # reap, or the zombie leader keeps its group alive
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _watch(group: int) -> subprocess.Popen[bytes]:
    """A process that kills the group if this one dies, however it dies: it reads a pipe from here
    that nobody ever writes to, and the kernel closes it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$1"', "watchdog", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
