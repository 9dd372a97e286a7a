"""Progress of a run, on stderr: a live line on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from kbtool.model.control import visible
from kbtool.model.run import Run, StepRecord
from kbtool.model.words import many
from kbtool.runner.explain import Match
from kbtool.runner.terminal import Guarded, unguarded

Mode = Literal["auto", "tty", "plain", "quiet", "rawjson"]
QUIET_SECONDS = 30.0
"""After this long without output, plain progress reports what it waits for."""
_ITEM_SECONDS = 5.0


class Reporter:
    """Receives progress of a run. This base class prints nothing."""

    def run_started(self, run_id: str, session: str, expected: Sequence[float]) -> None:
        """The run begins; expected seconds of each step."""

    def step_started(self, number: int, total: int, record: StepRecord) -> None:
        """Step ``number`` of ``total`` begins."""

    def step_kept(self, number: int, total: int, record: StepRecord) -> None:
        """A step passed in an earlier attempt and is not run again."""

    def item(self, done: int, total: int, label: str) -> None:
        """An item of the step is done."""

    def waiting(self, what: str) -> None:
        """The step waits for something."""

    def tick(self) -> None:
        """Time passes."""

    def output(self, line: str) -> None:
        """A line that a compiler or a program printed."""

    def step_ended(self, record: StepRecord, matches: Sequence[Match], output: str) -> None:
        """The step has ended."""

    def run_ended(self, run: Run) -> None:
        """The run has ended and its record is written."""


def reporter(mode: Mode, *, verbose: bool, stream: TextIO | None = None) -> Reporter:
    """The reporter for ``mode``; ``auto`` looks at the stream."""
    stream = stream or sys.stderr
    if mode == "auto":
        moves = os.environ.get("TERM", "") not in {"", "dumb", "unknown"}
        mode = "tty" if moves and stream.isatty() else "plain"
    if mode == "tty":
        return Terminal(stream, verbose=verbose)
    if mode == "plain":
        return Plain(stream, verbose=verbose)
    return Raw(stream) if mode == "rawjson" else Reporter()


class Plain(Reporter):
    """A line for each thing that happens, and never a silence longer than 30 s."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream = stream
        self._verbose = verbose
        self._began = self._last_output = time.monotonic()
        self._prefix = ""
        self._waiting = ""
        self._expected = 0.0

    def run_started(self, run_id: str, session: str, expected: Sequence[float]) -> None:
        """Name the run, its session and the time it should take."""
        self._say(
            f"run {run_id} in session {session}: {many(len(expected), 'step')},"
            f" about {seconds(sum(expected))}"
        )

    def step_started(self, number: int, total: int, record: StepRecord) -> None:
        """Step k of n, and how long it should take."""
        self._prefix = f"[{number}/{total}] {record.id}"
        self._began = time.monotonic()
        self._expected = record.expected_seconds
        self._waiting = record.title
        source = "from past runs" if record.expected_from == "history" else "declared"
        self._say(
            f"{self._prefix}: {record.title} (expect {seconds(record.expected_seconds)}, {source})"
        )

    def step_kept(self, number: int, total: int, record: StepRecord) -> None:
        """Say that an earlier attempt did it."""
        self._say(f"[{number}/{total}] {record.id}: passed in attempt {record.attempt}, kept")

    def item(self, done: int, total: int, label: str) -> None:
        """Every few seconds, and the last."""
        self._waiting = f"{done} of {total} done, last {label}"
        if done == total or time.monotonic() - self._last_output >= _ITEM_SECONDS:
            self._say(f"{self._prefix}: {done} of {total}, {label}")

    def waiting(self, what: str) -> None:
        """Say it at once."""
        self._waiting = f"waiting for {what}"
        self._say(f"{self._prefix}: {self._waiting}")

    def tick(self) -> None:
        """Report the wait after a long time without output."""
        now = time.monotonic()
        if now - self._last_output >= QUIET_SECONDS:
            self._say(
                f"{self._prefix}: still running after {seconds(now - self._began)} of about"
                f" {seconds(self._expected)}: {self._waiting}"
            )

    def output(self, line: str) -> None:
        """Only with --verbose."""
        if self._verbose:
            self._say(f"    {line}")

    def step_ended(self, record: StepRecord, matches: Sequence[Match], output: str) -> None:
        """The outcome; of a failure the first error and the patterns that know it."""
        took = f" in {seconds(record.seconds)}" if record.seconds is not None else ""
        self._say(f"{self._prefix}: {record.status}{took}: {record.message}")
        for line in failure_lines(record, matches):
            self._say(f"    {line}")

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
        self._last_output = time.monotonic()


class Terminal(Plain):
    """Plain lines, with a live line under them for the step that runs."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        super().__init__(stream, verbose=verbose)
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._shown = stream.shown if isinstance(stream, Guarded) else visible
        self._console = Console(file=unguarded(stream), highlight=False)
        self._progress = Progress(
            SpinnerColumn("dots" if _has(stream, "⠋") else "line"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=self._console,
            transient=True,
        )
        self._task: Any = None

    def step_started(self, number: int, total: int, record: StepRecord) -> None:
        """Start the live line."""
        super().step_started(number, total, record)
        self._progress.start()
        self._task = self._progress.add_task(self._prefix, total=None, note="")

    def item(self, done: int, total: int, label: str) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(
                self._task, completed=done, total=total, note=visible(label[-40:])
            )

    def waiting(self, what: str) -> None:
        """Name it in the live line."""
        if self._task is not None:
            self._progress.update(self._task, note=f"waiting for {what}")

    def tick(self) -> None:
        """The live line moves by itself."""

    def step_ended(self, record: StepRecord, matches: Sequence[Match], output: str) -> None:
        """Take the live line away and say the outcome."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._progress.stop()
            self._task = None
        super().step_ended(record, matches, output)

    def _say(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(self._shown(text)), soft_wrap=True)
        self._last_output = time.monotonic()


def _has(stream: TextIO, text: str) -> bool:
    """Whether the stream's encoding has all characters of a text."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


class Raw(Reporter):
    """One JSON object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = unguarded(stream)  # JSON has its own escapes

    def run_started(self, run_id: str, session: str, expected: Sequence[float]) -> None:
        """The run begins."""
        self._send("run-started", run=run_id, session=session, expected_seconds=list(expected))

    def step_started(self, number: int, total: int, record: StepRecord) -> None:
        """A step begins."""
        self._send("step-started", number=number, total=total, step=record.id,
                   expected_seconds=record.expected_seconds)  # fmt: skip

    def step_kept(self, number: int, total: int, record: StepRecord) -> None:
        """A step is kept."""
        self._send("step-kept", number=number, total=total, step=record.id)

    def item(self, done: int, total: int, label: str) -> None:
        """An item is done."""
        self._send("item", done=done, total=total, label=label)

    def waiting(self, what: str) -> None:
        """The step waits."""
        self._send("waiting", what=what)

    def output(self, line: str) -> None:
        """A line of output."""
        self._send("output", line=line)

    def step_ended(self, record: StepRecord, matches: Sequence[Match], output: str) -> None:
        """A step has ended."""
        fields = {"status", "message", "seconds", "error", "patterns"}
        self._send("step-ended", step=record.id, **record.model_dump(mode="json", include=fields))

    def run_ended(self, run: Run) -> None:
        """The run has ended."""
        self._send("run-ended", run=run.id, status=run.status)

    def _send(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)


def failure_lines(record: StepRecord, matches: Sequence[Match]) -> list[str]:
    """What to read after a step: its first error, the patterns that know it or what it found."""
    lines = []
    if record.error and record.error != record.message:
        lines.append(f"first error: {record.error.splitlines()[0]}")
    what = "what to do" if record.status == "passed" else "this error"
    return [*lines, *known_lines(matches, what)]


def known_lines(matches: Sequence[Match], what: str = "this error") -> list[str]:
    """What is known of an error: the best remedies, a line each."""
    lines = []
    for match in matches[:REMEDIES]:
        likely = "".join(f" {told.cause.advice}" for told in match.causes[:1])
        advice = likely + (f" {match.advice}" if match.advice else "")
        command = f" Run: {match.command}" if match.command else ""
        if match.pattern is not None:
            lines.append(f"{match.pattern.id} {match.pattern.title} knows {what}:{advice}")
        else:
            lines.append(f"{match.title} ({match.name}):{advice}{command}")
    return lines


REMEDIES = 3
"""So many are shown; `kbtool explain --run RUN --all` shows the others."""


def seconds(value: float) -> str:
    """A time for people: 0.4 s, 12 s, 3 min 20 s."""
    if value < 0.05:
        return "under 0.1 s"
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 90:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
