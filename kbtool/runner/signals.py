"""What the signals that end a program do while runs are made."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP act as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with _handlers(interrupt, (signal.SIGTERM, signal.SIGHUP)):
        yield


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Writing the record takes milliseconds and must not be interrupted."""
    with _handlers(signal.SIG_IGN, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield


@contextlib.contextmanager
def _handlers(handler: Any, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    before = {}
    # Only the main thread may set handlers.
    with contextlib.suppress(ValueError):
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
