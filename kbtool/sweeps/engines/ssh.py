"""Hosts that ssh reaches, by execnet: it starts a Python there through the ssh of the system.

So the user's ~/.ssh/config, keys, agent and jump hosts count. What a host does is in ``there``.
A job is named HOST/SLOT/CELL/TRY before the host is asked to start it, so whoever drives the sweep
next knows whom to ask; and a host never starts what it was asked for once and gave up.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import kbtool
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.sweep import EngineUse
from kbtool.store.write import write_atomic
from kbtool.sweeps.engines import JobState
from kbtool.sweeps.folder import GIVEN_UP, AttemptFolder, Claim

OPTIONS = {"hosts": "", "python": "python3", "time": "", "patience": "300"}
"""What the engine is told, and its defaults: ``time`` in minutes, ``patience`` in seconds."""
ANSWERS_S = 60.0
"""Seconds in which a host answers a question; an archive may take longer."""
AGAIN_S = 10.0
"""Seconds between two attempts to reach a host that does not answer."""
# No question can be answered, and a dead line is noticed within half a minute.
_SSH = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"


class SSH:
    """A process for each attempt on one of several hosts: one a card, or one on the processor."""

    is_here = False

    def __init__(self, folder: Path, use: EngineUse, minutes: int) -> None:
        try:
            import execnet  # noqa: F401
        except ImportError:
            raise MachineError("execnet is not installed: pip install 'kbtool[sweep]'") from None
        unknown = next((name for name in use.options if name not in OPTIONS), None)
        if unknown is not None:
            raise UsageError(
                f"--engine-option {unknown}: engine ssh takes {', '.join(list(OPTIONS)[1:])}"
            )
        told = OPTIONS | use.options
        self._sweep = folder.parent
        self._most = use.jobs
        self._limit_s = max(1, round(60 * _number("time", told["time"] or str(minutes))))
        self._patience_s = _number("patience", told["patience"])
        self._hosts = {
            name: _Host(name, at_once, told["python"], self._sweep.name)
            for name, at_once in hosts_of(told["hosts"]).items()
        }
        self._jobs: list[str] = []
        """Those that have not ended, as far as is known."""

    @property
    def slots(self) -> int:
        """As many as the hosts take that answer, and those that run on the others."""
        self._all(self._hosts.values(), lambda host: None)
        up = [host for host in self._hosts.values() if host.is_up]
        if not any(host.slots for host in self._hosts.values()) and not self._jobs:
            raise MachineError("no host answers: `ssh HOST` has to work without a question")
        away = sum(not self._hosts[_host(job)].is_up for job in self._jobs)
        most = away + sum(host.slots for host in up)
        return min(most, self._most or most)

    def submit(self, attempts: Sequence[Path]) -> list[str]:
        """Start them where a slot is free."""
        orders: dict[str, list[tuple[Path, str]]] = {}
        jobs = []
        for path, (host, slot) in zip(attempts, self._free(), strict=False):
            job = f"{host}/{slot}/{path.parent.name}/{path.name}"
            AttemptFolder(path).queued_as(job)
            orders.setdefault(host, []).append((path, job))
            jobs.append(job)
        self._jobs += jobs
        self._all(
            [self._hosts[one] for one in orders], lambda host: self._start(host, orders[host.name])
        )
        return jobs

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """How the hosts say that they are; what they wrote comes here first."""
        self._jobs = list(jobs)
        asked: dict[str, list[str]] = {}
        for job in jobs:
            asked.setdefault(_host(job), []).append(job)
        found: dict[str, JobState] = {}
        hosts = [self._hosts[name] for name in asked]
        for states in self._all(hosts, lambda host: self._look(host, asked[host.name])):
            found |= states or {}
        for host in hosts:
            if host.away_s > self._patience_s:
                gone = JobState(True, "unreachable", f"{host.name} did not answer any more")
                found |= dict.fromkeys(asked[host.name], gone)
        self._jobs = [job for job in jobs if job not in found or not found[job].gone]
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """Ask the hosts that answer to end them."""
        self._all(
            [self._hosts[name] for name in {_host(job) for job in jobs}],
            lambda host: host.ask(
                "cancel", [_name(job) for job in jobs if _host(job) == host.name]
            ),
        )

    def _all(self, hosts: Iterable[_Host], ask: Callable[[_Host], Any]) -> list[Any]:
        """Ask hosts, all at the same time; ``None`` of one that does not answer."""
        hosts, keep = list(hosts), [_name(job) for job in self._jobs]

        def asked(host: _Host) -> Any:
            with contextlib.suppress(_AwayError):
                host.reach(keep)
                return ask(host)

        with ThreadPoolExecutor(len(self._hosts)) as pool:
            return list(pool.map(asked, hosts))

    def _free(self) -> Iterator[tuple[str, int]]:
        """The slots that are free, of all hosts in turn."""
        up = [host for host in self._hosts.values() if host.is_up]
        for slot in range(max((host.slots for host in up), default=0)):
            for host in up:
                taken = any(job.startswith(f"{host.name}/{slot}/") for job in self._jobs)
                if slot < host.slots and not taken:
                    yield host.name, slot

    def _start(self, host: _Host, orders: Sequence[tuple[Path, str]]) -> None:
        for path, job in orders:
            request = AttemptFolder(path).request()
            if not host.ask("has", request["digest"]):
                host.ask("take", Path(request["archive"]).read_bytes())
            slot = int(job.split("/")[1])
            host.ask("start", _name(job), request, slot, self._limit_s)

    def _look(self, host: _Host, jobs: Sequence[str]) -> dict[str, JobState]:
        logs = {_name(job): self._attempt(job).path / "log" for job in jobs}
        has = {name: log.stat().st_size if log.exists() else 0 for name, log in logs.items()}
        seen = host.ask("look", has)
        return {job: self._kept(job, seen[_name(job)]) for job in jobs}

    def _kept(self, job: str, seen: Mapping[str, Any]) -> JobState:
        """Write down here what an attempt wrote there; its end comes last."""
        attempt = self._attempt(job)
        if seen["log"]:
            with (attempt.path / "log").open("ab") as log:
                log.write(seen["log"])
        claim = json.loads(seen["claim.json"] or "null")
        if claim and claim["job"] != GIVEN_UP:
            started = datetime.fromisoformat(claim["started"])
            attempt.claimed_by(Claim(job, started, claim["machine"], claim["cards"]))
        for name in ("run.json", "ended.json"):
            if seen[name] is not None:
                write_atomic(attempt.path / name, seen[name])
        # What has said how it ended needs its slot no more, even while its process ends.
        return JobState(gone=not seen["lives"] or seen["ended.json"] is not None)

    def _attempt(self, job: str) -> AttemptFolder:
        return AttemptFolder(self._sweep / "cells" / _name(job))


class _AwayError(Exception):
    """A host does not answer."""


class _Host:
    """A host, and the connection to it while there is one."""

    def __init__(self, name: str, at_once: int | None, python: str, sweep: str) -> None:
        self.name = name
        self.slots = 0
        self._at_once = at_once
        self._python = python
        self._sweep = sweep
        self._group: Any = None
        self._channel: Any = None
        self._away_since: float | None = None
        self._is_told = False
        self._next = 0.0

    @property
    def is_up(self) -> bool:
        """Whether it answered when it was asked last."""
        return self._channel is not None

    @property
    def away_s(self) -> float:
        """Seconds since it did not answer for the first time, if it has not since."""
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    def reach(self, keep: Sequence[str]) -> None:
        """Connect to it, if it is time to try.

        Args:
            keep: the attempts that it is to go on with; what else it runs of the sweep, it ends.

        Raises:
            _AwayError: it does not answer.
        """
        import execnet

        if self._channel is not None:
            return
        if time.monotonic() < self._next:
            raise _AwayError
        self._group = execnet.Group()
        with tempfile.TemporaryFile() as said:
            # What ssh says would else come between the lines of the progress.
            spec = execnet.XSpec(f"ssh=host//id={self.name}")
            spec.ssh = f"-E /proc/{os.getpid()}/fd/{said.fileno()} {_SSH} {self.name}"
            spec.python = self._python
            try:
                gateway = self._group.makegateway(spec)
                channel = gateway.remote_exec(
                    "from kbtool.sweeps.engines.there import serve; serve(channel)"
                )
                channel.send((kbtool.__version__, self._sweep))
                cards = channel.receive(ANSWERS_S)
            except Exception as error:  # of ssh, of the Python there, of kbtool there
                said.seek(0)
                why = (said.read().decode("utf-8", "replace") or str(error)).strip()
                self._drop()
                self._next = time.monotonic() + AGAIN_S
                if not self._is_told:
                    self._tell(f"does not answer: {(why.splitlines() or [repr(error)])[-1]}")
                self._is_told = True
                raise _AwayError from None
        self._channel = channel
        self.slots = min(self._at_once or cards, cards) if cards else self._at_once or 1
        self.ask("keep", keep)
        if self._is_told:
            self._tell("answers again")
        self._away_since, self._is_told = None, False

    def ask(self, verb: str, *told: object) -> Any:
        """What it answers.

        Raises:
            _AwayError: it does not.
        """
        if self._channel is None:
            raise _AwayError
        try:
            self._channel.send((verb, *told))
            return self._channel.receive(None if verb == "take" else ANSWERS_S)
        except Exception:  # a connection that breaks says nothing of the host: try again at once
            self._drop()
            raise _AwayError from None

    def _drop(self) -> None:
        self._group.terminate(timeout=1.0)
        self._group = self._channel = None
        if self._away_since is None:
            self._away_since = time.monotonic()

    def _tell(self, what: str) -> None:
        print(f"kbtool: {self.name} {what}", file=sys.stderr)


def hosts_of(text: str) -> dict[str, int | None]:
    """The hosts of ``HOST,HOST=JOBS`` or of ``@FILE``, one a line → how many jobs at once.

    Raises:
        UsageError: there is none, or one is no name of a host.
    """
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text("utf-8").splitlines()
        except OSError as error:
            raise UsageError(f"--on ssh:{text}: {error.strerror}") from None
        parts = [line.partition("#")[0] for line in lines]
    else:
        parts = text.split(",")
    found: dict[str, int | None] = {}
    for part in (one.strip() for one in parts):
        name, equals, number = part.partition("=")
        if not part:
            continue
        if name in found or name.startswith("-") or set(name) & set("@/: \t"):
            raise UsageError(
                f"--on ssh:{part}: write each host once, by its name in ~/.ssh/config, which also"
                " says its user and its port"
            )
        if equals and not (number.isdecimal() and int(number)):
            raise UsageError(f"--on ssh:{part}: write HOST=NUMBER, so many jobs at once")
        found[name] = int(number) if equals else None
    if not found:
        raise UsageError("--on ssh: name the hosts, ssh:HOST,HOST or ssh:@FILE")
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--engine-option {name}={text}: write a number") from None


def _host(job: str) -> str:
    return job.partition("/")[0]


def _name(job: str) -> str:
    """What its host calls a job: CELL/TRY."""
    return job.split("/", 2)[2]
